// SPDX-License-Identifier: Apache-2.0
// A parsed pattern as a small backtracking program over symbols, with every step counted.
//
// Order   Alternatives from left to right, repetitions greedy unless lazy: the match is the one
//         that Perl, PCRE and Oniguruma find.
// Time    A step is one symbol looked at or one instruction. `match` stops when its allowance of
//         steps is used up, so that no pattern and no text can hold a caller for long.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "lacuna/result.h"
#include "text/split_pattern.h"

namespace lacuna {

class SplitProgram {
 public:
  // kUnsupported when the program would be too long, a repeated group can match nothing, or an
  // alternative of a lookbehind has no fixed length.
  static Result<SplitProgram> compile(const SplitPattern& pattern, const SymbolTable& symbols);

  // Where matching may go on after a failure. Working memory of one thread.
  struct Frame {
    std::uint32_t instruction;
    std::size_t position;
    std::size_t last;  // a run of one class: other positions up to this one, else `position`
    bool rising;       // whether they are tried upwards
  };
  struct Stack {
    std::vector<Frame> frames;
    std::uint64_t steps_left = 0;

    void spend(std::uint64_t steps) { steps_left -= steps < steps_left ? steps : steps_left; }
  };

  static constexpr std::size_t kNoMatch = ~std::size_t{0};
  // The end of the match that begins at `at`, or kNoMatch: none, or steps_left came to 0.
  std::size_t match(std::string_view symbols, std::size_t at, Stack& stack) const {
    return run(0, symbols, at, stack);
  }
  // Whether a match can begin with this symbol; can_be_empty is for the end of the text.
  bool can_begin(std::uint8_t symbol) const { return can_be_empty_ || classes_[first_][symbol]; }
  bool can_be_empty() const { return can_be_empty_; }

 private:
  friend class ProgramBuilder;
  using Class = std::array<bool, 256>;  // by symbol

  enum class Op : std::uint8_t {
    kAccept,
    kSet,       // one symbol of the class
    kRun,       // min to max symbols of the class
    kLazyRun,   // the same, fewest first
    kTry,       // go on here, and at `target` after a failure
    kTryOther,  // go on at `target`, and here after a failure
    kTryIf,     // kTry when the next symbol is in the class, else straight to `target`
    kJump,      // to `target`
    kAhead,     // the code up to `target` matches here; the place stays
    kNotAhead,  // … does not match
    kAtomic,    // … matches, and goes on from its end
    kBack,      // go back `min` symbols, which may not be there
    kBegin,
    kEnd,
  };
  struct Instruction {
    Op op;
    std::uint32_t target = 0;  // index of an instruction
    int set = 0;               // index of a class
    int min = 0, max = 0;
  };

  bool take_run(const Instruction& in, std::uint32_t next, std::string_view symbols,
                std::size_t& at, Stack& stack) const;
  std::size_t run(std::uint32_t pc, std::string_view symbols, std::size_t at, Stack& stack) const;

  std::vector<Instruction> code_;
  std::vector<Class> classes_;
  int first_ = 0;
  bool can_be_empty_ = false;
};

}  // namespace lacuna
