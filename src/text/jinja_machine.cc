// SPDX-License-Identifier: Apache-2.0
#include "text/jinja_machine.h"

#include <fmt/core.h>

#include <algorithm>

#include "text/jinja_print.h"

namespace lacuna::jinja {

Machine::Machine(const Block& root, Value variables, const Limits& limits)
    : root_(root), variables_(std::move(variables)), budget_(limits) {}

Text Machine::render() {
  Text out;
  out_ = &out;
  run(root_, new_scope(nullptr));
  return out;
}

Scope& Machine::new_scope(Scope* parent) {
  budget_.allocate(sizeof(Scope));
  scopes_.push_back({parent, {}});
  return scopes_.back();
}

Namespace* Machine::new_namespace() {
  budget_.allocate(sizeof(Namespace));
  return &namespaces_.emplace_back();
}

Text Machine::text_of(const Value& v) { return to_text(v, budget_); }

void Machine::write(const Text& text) {
  budget_.allocate(text.size());
  out_->append(text);
  if (out_->size() > budget_.limits().output_bytes) {
    fail(fmt::format("the rendered text is longer than {} bytes", budget_.limits().output_bytes));
  }
}

Machine::Flow Machine::run(const Block& block, Scope& scope) {
  const Budget::Level level(budget_);
  for (const auto& statement : block) {
    const Flow flow = run(*statement, scope);
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Machine::Flow Machine::run(const Stmt& s, Scope& scope) {
  budget_.step();
  line_ = s.line;
  switch (s.kind) {
    case Stmt::Kind::kText:
      write(Text(s.text));
      break;
    case Stmt::Kind::kPrint:
      write(text_of(eval(*s.expr, scope)));
      break;
    case Stmt::Kind::kIf:
      return run_if(s, scope);
    case Stmt::Kind::kFor:
      return run_for(s, scope);
    case Stmt::Kind::kSet:
      assign(s.target, eval(*s.expr, scope), scope);
      break;
    case Stmt::Kind::kSetBlock:
      run_set_block(s, scope);
      break;
    case Stmt::Kind::kWith:
      return run_with(s, scope);
    case Stmt::Kind::kMacro: {
      ++captured_;
      auto macro = std::make_shared<Callable>(Callable{.kind = Callable::Kind::kMacro,
                                                       .name = s.macro.name,
                                                       .self = {},
                                                       .macro = &s.macro,
                                                       .scope = &scope});
      set_name(s.macro.name, Value(std::shared_ptr<const Callable>(std::move(macro))), scope);
      break;
    }
    case Stmt::Kind::kCallBlock:
      run_call_block(s, scope);
      break;
    case Stmt::Kind::kFilterBlock: {
      Text body;
      const Flow flow = capture(s.body, new_scope(&scope), body);
      if (flow != Flow::kNext) return flow;
      const Value filtered = apply_filters(*s.filter, Value(std::move(body)), scope);
      write(text_of(filtered));
      break;
    }
    case Stmt::Kind::kGeneration:
      run(s.macro.body, new_scope(&scope));
      break;
    case Stmt::Kind::kBreak:
      return Flow::kBreak;
    case Stmt::Kind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kNext;
}

Machine::Flow Machine::run_if(const Stmt& s, Scope& scope) {
  for (const Stmt::Branch& branch : s.branches) {
    if (truth(eval(*branch.condition, scope))) return run(branch.body, scope);
  }
  return run(s.otherwise, scope);
}

Machine::Flow Machine::run_for(const Stmt& s, Scope& scope) {
  const auto loop = std::make_shared<Loop>(elements(eval(*s.expr, scope), budget_));
  if (s.filter) {
    loop->accept = [&](const Value& item) {
      Scope& inner = new_scope(&scope);
      assign(s.target, item, inner);
      return truth(eval(*s.filter, inner));
    };
  }
  // A loop variable may outlive its loop in a namespace: what it holds of this frame must not.
  struct Finish {
    Loop& loop;
    ~Finish() {
      loop.finished = true;
      loop.accept = nullptr;
      loop.last_changed.reset();
    }
  } finish{*loop};
  // jinja2 takes the else block when no iteration ran to its end: break and continue do not count.
  bool completed = false;
  while (loop->advance()) {
    const Flow flow = run_iteration(s, scope, loop);
    if (flow == Flow::kBreak) break;
    completed = completed || flow == Flow::kNext;
  }
  return completed ? Flow::kNext : run(s.otherwise, new_scope(&scope));
}

Machine::Flow Machine::run_iteration(const Stmt& s, Scope& scope,
                                     const std::shared_ptr<Loop>& loop) {
  const std::size_t scopes = scopes_.size();
  const std::uint64_t captured = captured_;
  Scope& inner = new_scope(&scope);
  assign(s.target, loop->current, inner);
  set_name("loop", Value(loop), inner);
  const Flow flow = run(s.body, inner);
  if (captured == captured_) scopes_.resize(scopes);
  return flow;
}

Machine::Flow Machine::run_with(const Stmt& s, Scope& scope) {
  Scope& inner = new_scope(&scope);
  std::vector<Value> values;
  for (const auto& [target, expr] : s.assignments) values.push_back(eval(*expr, scope));
  for (std::size_t i = 0; i < values.size(); ++i) assign(s.assignments[i].first, values[i], inner);
  return run(s.body, inner);
}

// Runs a block with its output going into `into`.
Machine::Flow Machine::capture(const Block& block, Scope& scope, Text& into) {
  Text* const outer = std::exchange(out_, &into);
  const Flow flow = run(block, scope);
  out_ = outer;
  return flow;
}

void Machine::run_set_block(const Stmt& s, Scope& scope) {
  Text body;
  capture(s.body, new_scope(&scope), body);
  Value value(std::move(body));
  if (s.filter) value = apply_filters(*s.filter, value, scope);
  assign(s.target, value, scope);
}

void Machine::run_call_block(const Stmt& s, Scope& scope) {
  ++captured_;
  auto caller = std::make_shared<Callable>(Callable{.kind = Callable::Kind::kMacro,
                                                    .name = "caller",
                                                    .self = {},
                                                    .macro = &s.macro,
                                                    .scope = &scope});
  const Value callee = eval(*s.expr->children[0], scope);
  Args args = eval_args(*s.expr, scope);
  args.named.emplace_back("caller", Value(std::shared_ptr<const Callable>(std::move(caller))));
  write(text_of(call(callee, args)));
}

void Machine::set_name(std::string_view name, Value value, Scope& scope) {
  for (auto& [known, old] : scope.names) {
    if (known == name) {
      old = std::move(value);
      return;
    }
  }
  budget_.allocate(sizeof(scope.names[0]));
  scope.names.emplace_back(name, std::move(value));
}

void Machine::assign(const Target& target, const Value& value, Scope& scope) {
  if (target.kind == Target::Kind::kName) return set_name(target.name, value, scope);
  if (target.kind == Target::Kind::kAttribute) {
    const Value* object = find_name(target.name, scope);
    if (object == nullptr || !object->is_namespace()) {
      fail(fmt::format("cannot assign attribute on non-namespace object {}", quoted(target.name)));
    }
    object->as_namespace().attributes.set(Value::string(target.attribute), value);
    return;
  }
  const std::vector<Value> items = elements(value, budget_);
  if (items.size() != target.parts.size()) {
    fail(fmt::format("cannot unpack {} values into {} names", items.size(), target.parts.size()));
  }
  for (std::size_t i = 0; i < items.size(); ++i) assign(target.parts[i], items[i], scope);
}

namespace {

// Removes the named argument `name` and returns it.
std::optional<Value> take_named(Args& args, std::string_view name) {
  const auto found = std::find_if(args.named.begin(), args.named.end(),
                                  [&](const auto& n) { return n.first == name; });
  if (found == args.named.end()) return std::nullopt;
  Value value = found->second;
  args.named.erase(found);
  return value;
}

}  // namespace

// Gives every parameter its value, as Python's jinja2 does: positions, names, defaults, then the
// special names that the body reads.
void Machine::bind_macro(const MacroDef& macro, const Args& given, Scope& scope) {
  Args rest = given;
  const std::size_t n = macro.params.size();
  const std::size_t first_default = n - macro.defaults.size();
  for (std::size_t i = 0; i < n; ++i) {
    const std::string& name = macro.params[i];
    std::optional<Value> value;
    if (i < given.positional.size()) {
      value = given.positional[i];
    } else if (!(value = take_named(rest, name))) {
      value = i >= first_default
                  ? eval(*macro.defaults[i - first_default], scope)
                  : Value::undefined(fmt::format("parameter {} was not provided", quoted(name)));
    }
    set_name(name, *std::move(value), scope);
  }
  const bool has_caller =
      std::find(macro.params.begin(), macro.params.end(), "caller") != macro.params.end();
  if (macro.uses_caller && !has_caller) {
    set_name("caller", take_named(rest, "caller").value_or(Value::undefined("No caller defined")),
             scope);
  }
  if (macro.uses_kwargs) {
    set_name("kwargs", make_dict(rest.named, budget_), scope);
  } else if (!rest.named.empty()) {
    fail(fmt::format("macro {} takes no keyword argument {}", quoted(macro.name),
                     quoted(rest.named[0].first)));
  }
  std::vector<Value> more;
  for (std::size_t i = n; i < given.positional.size(); ++i) more.push_back(given.positional[i]);
  if (macro.uses_varargs) {
    set_name("varargs", make_tuple(std::move(more), budget_), scope);
  } else if (!more.empty()) {
    fail(fmt::format("macro {} takes not more than {} argument(s)", quoted(macro.name), n));
  }
}

Value Machine::call_macro(const Callable& callable, const Args& args) {
  const Budget::Level level(budget_);
  const std::size_t scopes = scopes_.size();
  const std::uint64_t captured = captured_;
  const int line = line_;
  Scope& scope = new_scope(callable.scope);
  bind_macro(*callable.macro, args, scope);
  Text body;
  capture(callable.macro->body, scope, body);
  line_ = line;
  if (captured == captured_) scopes_.resize(scopes);
  return Value(std::move(body));
}

}  // namespace lacuna::jinja
