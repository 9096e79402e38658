// SPDX-License-Identifier: Apache-2.0
// 200 prompts of 100 tokens, 128 tokens each: the text with drafts is the text without. Some
// minutes; tests/drafts_test.cc has the short form.
#include <gtest/gtest.h>

#include "decode/generate.h"
#include "tests/support/golden.h"
#include "text/tokenizer.h"

namespace lacuna {
namespace {

std::vector<std::vector<int>> prompts(const Tokenizer& tokenizer) {
  std::vector<std::vector<int>> all;
  for (const char* file : {"models/val_prose.txt", "models/val_code.txt"}) {
    const auto text = read_text_file(file);
    if (!text.ok()) ADD_FAILURE() << text.error().what;
    const std::vector<int> tokens = tokenizer.encode(*text);
    for (std::size_t i = 0; i < 100; ++i) {
      const auto at = tokens.begin() + static_cast<std::ptrdiff_t>(i * (tokens.size() - 100) / 100);
      all.emplace_back(at, at + 100);
    }
  }
  return all;
}

TEST(DraftsLong, TwoHundredTextsAreTheSame) {
  for (const Precision precision : {Precision::kF32, Precision::kBf16}) {
    const auto engine = open_tiny(test_options(precision));
    ASSERT_NE(engine, nullptr);
    GenerateOptions options;
    options.sampling.temperature = 0;
    options.max_tokens = 128;
    options.ignore_eos = true;
    int accepted = 0;
    for (const std::vector<int>& prompt : prompts(engine->tokenizer())) {
      options.drafts = nullptr;
      const auto want = generate(*start(*engine), prompt, options);
      ASSERT_TRUE(want.ok()) << want.error().what;
      for (const char* policy : {"1", "2", "3", "5", "auto"}) {
        DraftControl control(*parse_draft_policy(policy, kMostDrafts));
        options.drafts = &control;
        const auto got = generate(*start_drafting(*engine), prompt, options);
        ASSERT_TRUE(got.ok()) << got.error().what;
        ASSERT_EQ(got->tokens, want->tokens) << policy;
        accepted += got->drafts.accepted;
      }
    }
    EXPECT_GT(accepted, 50'000);
  }
}

}  // namespace
}  // namespace lacuna
