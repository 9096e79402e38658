// SPDX-License-Identifier: Apache-2.0
// Which tests a bench runs and in which settings, from the flags: as llama-bench spells them, and
// ours.
#pragma once

#include <string>
#include <vector>

#include "lacuna/result.h"

namespace lacuna {

// One thing that is timed: `prompt` tokens in one sync, then `gen` decode steps, after `depth`
// tokens.
struct BenchTest {
  int prompt = 0, gen = 0, depth = 0;

  // Tokens in place when the clock starts. A decode step needs one before it even at depth 0.
  int prefix() const { return prompt == 0 && depth == 0 ? 1 : depth; }
  int tokens() const { return prompt + gen; }               // computed on the clock
  int timeline() const { return prefix() + prompt + gen; }  // held in the end
  std::string label() const;                                // "pp512+tg128 @ d4096"

  friend bool operator==(const BenchTest&, const BenchTest&) = default;
};

struct BenchPlan {
  std::string prompts = "512", gens = "128", depths = "0";  // lists and ranges
  std::vector<std::string> pairs;                           // "PP,TG" each

  // At every depth in turn: prompts, generations, pairs. A count of 0 leaves its test out.
  // kInvalidArgument names the flag; also when no test is left, or too many are.
  Result<std::vector<BenchTest>> tests() const;
};

// "a,b" and in it "a-b", "a-b+step", "a-b*factor", both ends included. kInvalidArgument names the
// flag and quotes the part that is wrong.
Result<std::vector<int>> parse_counts(const std::string& flag, const std::string& text);

// Sparse as true, dense as false, from "sparse,dense" or one of them.
Result<std::vector<bool>> parse_experts(const std::string& text);

// What decode steps draft: "off", a number or "auto", each once. As parse_draft_policy reads them,
// a number as itself and 0 as "off". kInvalidArgument names the flag.
Result<std::vector<std::string>> parse_drafts(const std::string& text);
// Those of `drafts` (at least one) that a test runs with. A prompt drafts nothing: without decode
// steps that is "off", or the first when "off" is not among them.
std::vector<std::string> drafts_of(const BenchTest& test, const std::vector<std::string>& drafts);

// For each of `count` tokens of a text whether a draft of it is right, such that of two drafts
// `accept` (0 to 2) are accepted in the mean. The chance is the same at each token, the draws
// depend on nothing else: the same arguments give the same text.
std::vector<bool> replayed_drafts(double accept, int count);

}  // namespace lacuna
