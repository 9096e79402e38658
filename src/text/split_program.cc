// SPDX-License-Identifier: Apache-2.0
#include "text/split_program.h"

#include <fmt/core.h>

#include <algorithm>
#include <optional>

namespace lacuna {
namespace {

constexpr std::size_t kMaxInstructions = 1 << 16;
constexpr std::size_t kMaxFramesPerSymbol = 4;
constexpr std::size_t kMaxFrames = 1 << 20;  // and kMaxFramesPerSymbol a symbol

using Kind = PatternNode::Kind;

// The symbols a node can begin with, and whether it can match without taking any.
struct First {
  std::array<bool, 256> symbols{};
  bool can_be_empty = true;

  void merge(const First& other) {
    for (std::size_t s = 0; s < symbols.size(); ++s) symbols[s] |= other.symbols[s];
  }
};

// The instruction and the position of the newest frame, which goes when it has no more positions.
std::uint32_t go_back(std::vector<SplitProgram::Frame>& frames, std::size_t& at) {
  SplitProgram::Frame& frame = frames.back();
  const std::uint32_t instruction = frame.instruction;
  at = frame.position;
  if (frame.position == frame.last) {
    frames.pop_back();
  } else {
    frame.position += frame.rising ? 1 : -1;
  }
  return instruction;
}

}  // namespace

class ProgramBuilder {
 public:
  ProgramBuilder(const SplitPattern& pattern, const SymbolTable& symbols);
  Result<SplitProgram> run(const PatternNode& root);

 private:
  using Op = SplitProgram::Op;
  using Instruction = SplitProgram::Instruction;

  void emit(const PatternNode& node);
  void emit_alternatives(const PatternNode& node);
  void emit_repeat(const PatternNode& node);
  void emit_look(const PatternNode& node);
  void emit_sub_program(Op op, const PatternNode& body);
  std::size_t add(Instruction instruction);
  void land(std::size_t jump) {
    program_.code_[jump].target = static_cast<std::uint32_t>(program_.code_.size());
  }

  First first_of(const PatternNode& node) const;
  std::optional<int> length_of(const PatternNode& node) const;
  int add_class(const First& first);

  void fail(std::string_view what) {
    if (!error_) error_ = Error{ErrorCode::kUnsupported, std::string(what)};
  }

  SplitProgram program_;
  std::optional<Error> error_;
};

ProgramBuilder::ProgramBuilder(const SplitPattern& pattern, const SymbolTable& symbols) {
  for (const CodePointSet& set : pattern.sets) {
    SplitProgram::Class members{};
    for (std::size_t s = 0; s < symbols.examples().size(); ++s) {
      members[s] = set.contains(symbols.examples()[s]);
    }
    program_.classes_.push_back(members);
  }
}

Result<SplitProgram> ProgramBuilder::run(const PatternNode& root) {
  const First first = first_of(root);
  program_.can_be_empty_ = first.can_be_empty;
  program_.first_ = add_class(first);
  emit(root);
  add({Op::kAccept});
  if (error_) return *error_;
  return std::move(program_);
}

std::size_t ProgramBuilder::add(Instruction instruction) {
  if (program_.code_.size() == kMaxInstructions) {
    fail(fmt::format("needs a program of more than {} instructions", kMaxInstructions));
    return 0;
  }
  program_.code_.push_back(instruction);
  return program_.code_.size() - 1;
}

int ProgramBuilder::add_class(const First& first) {
  const auto at = std::find(program_.classes_.begin(), program_.classes_.end(), first.symbols);
  const auto index = static_cast<int>(at - program_.classes_.begin());
  if (at == program_.classes_.end()) program_.classes_.push_back(first.symbols);
  return index;
}

First ProgramBuilder::first_of(const PatternNode& node) const {
  First first;
  switch (node.kind) {
    case Kind::kSet:
      return {program_.classes_[node.set], false};
    case Kind::kSequence:
      for (const PatternNode& child : node.children) {
        const First next = first_of(child);
        first.merge(next);
        first.can_be_empty = next.can_be_empty;
        if (!first.can_be_empty) break;
      }
      return first;
    case Kind::kAlternatives:
      first.can_be_empty = false;
      for (const PatternNode& child : node.children) {
        const First next = first_of(child);
        first.merge(next);
        first.can_be_empty |= next.can_be_empty;
      }
      return first;
    case Kind::kRepeat:
      if (node.max > 0) first = first_of(node.children[0]);
      first.can_be_empty |= node.min == 0;
      return first;
    case Kind::kAtomic:
      return first_of(node.children[0]);
    default:
      return first;
  }
}

// How many symbols every match of the node has, if that is one number.
std::optional<int> ProgramBuilder::length_of(const PatternNode& node) const {
  std::optional<int> total = 0;
  switch (node.kind) {
    case Kind::kSet:
      return 1;
    case Kind::kSequence:
      for (const PatternNode& child : node.children) {
        const std::optional<int> length = length_of(child);
        if (!length || *length + *total > static_cast<int>(kMaxInstructions)) return std::nullopt;
        *total += *length;
      }
      return total;
    case Kind::kAlternatives:
      for (std::size_t i = 0; i < node.children.size(); ++i) {
        const std::optional<int> length = length_of(node.children[i]);
        if (!length || (i > 0 && length != total)) return std::nullopt;
        total = length;
      }
      return total;
    case Kind::kRepeat:
      total = length_of(node.children[0]);
      if (!total || node.min != node.max || *total > static_cast<int>(kMaxInstructions))
        return std::nullopt;
      return *total * node.min;
    case Kind::kAtomic:
      return length_of(node.children[0]);
    default:
      return total;
  }
}

void ProgramBuilder::emit(const PatternNode& node) {
  if (error_) return;
  switch (node.kind) {
    case Kind::kSet:
      add({.op = Op::kSet, .set = node.set});
      return;
    case Kind::kSequence:
      for (const PatternNode& child : node.children) emit(child);
      return;
    case Kind::kAlternatives:
      return emit_alternatives(node);
    case Kind::kRepeat:
      return emit_repeat(node);
    case Kind::kAtomic:
      return emit_sub_program(Op::kAtomic, node.children[0]);
    case Kind::kLookahead:
    case Kind::kLookbehind:
      return emit_look(node);
    case Kind::kBegin:
      add({Op::kBegin});
      return;
    case Kind::kEnd:
      add({Op::kEnd});
      return;
  }
}

// An alternative that cannot begin with the next symbol is passed over without a trial.
void ProgramBuilder::emit_alternatives(const PatternNode& node) {
  std::vector<std::size_t> to_end;
  for (std::size_t i = 0; i < node.children.size(); ++i) {
    if (i + 1 == node.children.size()) {
      emit(node.children[i]);
      break;
    }
    const First first = first_of(node.children[i]);
    const std::size_t attempt =
        first.can_be_empty ? add({Op::kTry}) : add({.op = Op::kTryIf, .set = add_class(first)});
    emit(node.children[i]);
    to_end.push_back(add({Op::kJump}));
    if (error_) return;
    land(attempt);
  }
  for (std::size_t jump : to_end) land(jump);
}

void ProgramBuilder::emit_repeat(const PatternNode& node) {
  const PatternNode& body = node.children[0];
  if (body.kind == Kind::kSet) {
    add({node.lazy ? Op::kLazyRun : Op::kRun, 0, body.set, node.min, node.max});
    return;
  }
  const bool unlimited = node.max == PatternNode::kUnlimited;
  if (unlimited && first_of(body).can_be_empty)
    return fail("repeats a group that can match nothing");
  const Op attempt = node.lazy ? Op::kTryOther : Op::kTry;
  for (int i = 0; i < node.min && !error_; ++i) {
    const std::size_t before = program_.code_.size();
    emit(body);
    if (program_.code_.size() == before) return;  // an empty body stays empty however often
  }
  if (unlimited) {
    const std::size_t loop = add({attempt});
    emit(body);
    add({.op = Op::kJump, .target = static_cast<std::uint32_t>(loop)});
    if (!error_) land(loop);
    return;
  }
  std::vector<std::size_t> exits;
  for (int i = node.min; i < node.max && !error_; ++i) {
    exits.push_back(add({attempt}));
    emit(body);
  }
  if (error_) return;
  for (std::size_t exit : exits) land(exit);
}

// Code that runs on its own and ends in kAccept; `op` goes on after it.
void ProgramBuilder::emit_sub_program(Op op, const PatternNode& body) {
  const std::size_t head = add({op});
  emit(body);
  add({Op::kAccept});
  if (!error_) land(head);
}

void ProgramBuilder::emit_look(const PatternNode& node) {
  const Op op = node.negated ? Op::kNotAhead : Op::kAhead;
  const PatternNode& body = node.children[0];
  if (node.kind == Kind::kLookahead) return emit_sub_program(op, body);
  // Each alternative steps back by its own length, and then has to match up to the place.
  const std::size_t head = add({op});
  const std::vector<PatternNode> one = {body};
  const bool several = body.kind == Kind::kAlternatives;
  const std::vector<PatternNode>& choices = several ? body.children : one;
  for (std::size_t i = 0; i < choices.size() && !error_; ++i) {
    const std::optional<int> length = length_of(choices[i]);
    if (!length) return fail("looks behind for a text of no fixed length");
    const bool last = i + 1 == choices.size();
    const std::size_t attempt = last ? 0 : add({Op::kTry});
    add({.op = Op::kBack, .min = *length});
    emit(choices[i]);
    add({Op::kAccept});
    if (!last && !error_) land(attempt);
  }
  if (!error_) land(head);
}

Result<SplitProgram> SplitProgram::compile(const SplitPattern& pattern,
                                           const SymbolTable& symbols) {
  return ProgramBuilder(pattern, symbols).run(pattern.root);
}

// As many symbols of the class as the run takes; what else it could have taken goes on the stack.
bool SplitProgram::take_run(const Instruction& in, std::uint32_t next, std::string_view symbols,
                            std::size_t& at, Stack& stack) const {
  const Class& members = classes_[in.set];
  const std::size_t most = std::min<std::size_t>(in.max, symbols.size() - at);
  const auto least = static_cast<std::size_t>(in.min);
  std::size_t count = 0;
  while (count < most && members[static_cast<unsigned char>(symbols[at + count])]) ++count;
  stack.spend(count);
  if (count < least) return false;
  const bool lazy = in.op == Op::kLazyRun;
  if (count > least && lazy) stack.frames.push_back({next, at + least + 1, at + count, true});
  if (count > least && !lazy) stack.frames.push_back({next, at + count - 1, at + least, false});
  at += lazy ? least : count;
  return true;
}

// Frames below the stack's height at entry belong to the callers of this run.
std::size_t SplitProgram::run(std::uint32_t pc, std::string_view symbols, std::size_t at,
                              Stack& stack) const {
  std::vector<Frame>& frames = stack.frames;
  const std::size_t base = frames.size();
  const std::size_t max_frames = kMaxFrames + kMaxFramesPerSymbol * symbols.size();
  const auto next_is = [&](int set) {
    return at < symbols.size() && classes_[set][static_cast<unsigned char>(symbols[at])];
  };

  std::size_t result = kNoMatch;
  while (stack.steps_left > 0 && frames.size() < max_frames) {
    const Instruction& in = code_[pc];
    std::uint32_t next = pc + 1;
    bool ok = true;
    stack.spend(1);
    if (in.op == Op::kAccept) {
      result = at;
      break;
    }
    switch (in.op) {
      case Op::kAccept:
        break;
      case Op::kSet:
        ok = next_is(in.set);
        ++at;
        break;
      case Op::kRun:
      case Op::kLazyRun:
        ok = take_run(in, next, symbols, at, stack);
        break;
      case Op::kTry:
        frames.push_back({in.target, at, at, false});
        break;
      case Op::kTryIf:
        if (next_is(in.set)) {
          frames.push_back({in.target, at, at, false});
        } else {
          next = in.target;
        }
        break;
      case Op::kTryOther:
        frames.push_back({next, at, at, false});
        next = in.target;
        break;
      case Op::kJump:
        next = in.target;
        break;
      case Op::kAhead:
      case Op::kNotAhead:
      case Op::kAtomic: {
        const std::size_t end = run(next, symbols, at, stack);
        ok = (end == kNoMatch) == (in.op == Op::kNotAhead);
        if (in.op == Op::kAtomic && ok) at = end;
        next = in.target;
        break;
      }
      case Op::kBack:
        ok = at >= static_cast<std::size_t>(in.min);
        at -= ok ? in.min : 0;
        break;
      case Op::kBegin:
        ok = at == 0;
        break;
      case Op::kEnd:
        ok = at == symbols.size();
        break;
    }
    if (!ok && frames.size() == base) return kNoMatch;
    pc = ok ? next : go_back(frames, at);
  }
  // Out of the loop without a result: out of steps or of room, and then all callers stop too.
  if (result == kNoMatch) stack.steps_left = 0;
  frames.resize(base);
  return result;
}

}  // namespace lacuna
