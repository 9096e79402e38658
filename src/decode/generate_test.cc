// SPDX-License-Identifier: Apache-2.0
#include "decode/generate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lacuna/engine.h"

namespace lacuna {
namespace {

using ::testing::HasSubstr;

class GenerateTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    EngineOptions options;
    options.context = 64;
    auto opened = Engine::open("models/tiny-nemotron-h/mlx-4bit", options);
    ASSERT_TRUE(opened.ok()) << opened.error().what;
    engine_ = *std::move(opened);
    prompt_ = engine_->tokenizer().encode(
        "<|im_start|>user\nWhat is a compiler?<|im_end|>\n<|im_start|>assistant\n");
  }
  static void TearDownTestSuite() { engine_.reset(); }

  GenerateTest() {
    options_.sampling.temperature = 0;
    options_.max_tokens = 12;
    options_.ignore_eos = true;
    auto session = engine_->new_session();
    EXPECT_TRUE(session.ok());
    session_ = *std::move(session);
  }

  GenerateResult generated() {
    auto result = generate(*session_, prompt_, options_);
    EXPECT_TRUE(result.ok()) << result.error().what;
    return result.ok() ? *result : GenerateResult();
  }
  std::string error_of(std::span<const int> prompt) {
    const auto result = generate(*session_, prompt, options_);
    return result.ok() ? "ok" : result.error().what;
  }

  static std::unique_ptr<Engine> engine_;
  static std::vector<int> prompt_;
  GenerateOptions options_;
  std::unique_ptr<Session> session_;
};

std::unique_ptr<Engine> GenerateTest::engine_;
std::vector<int> GenerateTest::prompt_;

TEST_F(GenerateTest, CountsWhatItDid) {
  const GenerateResult result = generated();
  EXPECT_EQ(result.tokens.size(), 12u);
  EXPECT_EQ(result.finish, FinishReason::kLength);
  EXPECT_EQ(result.prompt_tokens, static_cast<int>(prompt_.size()));
  EXPECT_EQ(result.sync.computed, result.prompt_tokens);
  EXPECT_EQ(result.prefill.counters.tokens, prompt_.size());
  EXPECT_EQ(result.decode.tokens, 11);  // the last token is never computed
  EXPECT_EQ(result.decode.counters.tokens, 11u);
  EXPECT_EQ(session_->tokens().size(), prompt_.size() + 11);
  EXPECT_GT(result.decode.seconds, 0);
  EXPECT_EQ(result.text, engine_->tokenizer().decode(result.tokens));
}

// Each token is the argmax of a session that is given everything before it at once.
TEST_F(GenerateTest, GreedyIsTheArgmaxOfAFreshSession) {
  const GenerateResult result = generated();
  std::vector<int> timeline = prompt_;
  for (const int token : result.tokens) {
    auto fresh = engine_->new_session();
    ASSERT_TRUE(fresh.ok());
    ASSERT_TRUE((*fresh)->sync(timeline).ok());
    EXPECT_EQ(argmax((*fresh)->logits()), token);
    timeline.push_back(token);
  }
}

TEST_F(GenerateTest, AgainOnTheSameSessionIsTheSame) {
  const std::vector<int> first = generated().tokens;
  EXPECT_EQ(generated().tokens, first);
  options_.sampling.temperature = 1.2f;
  options_.sampling.seed = 11;
  const std::vector<int> drawn = generated().tokens;
  EXPECT_NE(drawn, first);
  EXPECT_EQ(generated().tokens, drawn);
}

TEST_F(GenerateTest, StopTokensUnlessIgnored) {
  options_.max_tokens = -1;
  EXPECT_EQ(generated().finish, FinishReason::kLength);
  options_.ignore_eos = false;
  const GenerateResult result = generated();
  EXPECT_EQ(result.finish, FinishReason::kStop);
  for (const int stop : engine_->info().stop_tokens)
    EXPECT_EQ(std::count(result.tokens.begin(), result.tokens.end(), stop), 0);
}

TEST_F(GenerateTest, TheContextIsTheEnd) {
  options_.max_tokens = -1;
  EXPECT_EQ(generated().tokens.size() + prompt_.size(), 64u);
  const std::vector<int> full(64, 5), over(65, 5);
  const auto none = generate(*session_, full, options_);
  ASSERT_TRUE(none.ok());
  EXPECT_TRUE(none->tokens.empty());
  EXPECT_EQ(none->finish, FinishReason::kLength);
  const auto error = generate(*session_, over, options_);
  ASSERT_FALSE(error.ok());
  EXPECT_EQ(error.error().code, ErrorCode::kContextLength);
  EXPECT_THAT(error.error().what, HasSubstr("65"));
  EXPECT_THAT(error.error().what, HasSubstr("64"));
}

TEST_F(GenerateTest, CancelBeforeAndDuring) {
  std::atomic<bool> cancel = true;
  options_.cancel = &cancel;
  const GenerateResult nothing = generated();
  EXPECT_EQ(nothing.finish, FinishReason::kCancelled);
  EXPECT_TRUE(nothing.tokens.empty());

  cancel = false;
  std::string streamed;
  options_.on_text = [&](std::string_view text) {
    streamed += text;
    cancel = true;
  };
  const GenerateResult some = generated();
  EXPECT_EQ(some.finish, FinishReason::kCancelled);
  EXPECT_FALSE(some.tokens.empty());
  EXPECT_LT(some.tokens.size(), 12u);
  EXPECT_EQ(some.text, streamed);
}

// The same text, end and timeline whatever is drafted, under everything that bends a choice.
TEST_F(GenerateTest, DraftsChangeNothingButTheTime) {
  struct Case {
    const char* name;
    std::function<void(GenerateOptions&)> set;
  };
  const Case cases[] = {
      {"greedy", [](GenerateOptions&) {}},
      {"sampled", [](GenerateOptions& o) { o.sampling.temperature = 0.8f, o.sampling.seed = 3; }},
      {"filtered",
       [](GenerateOptions& o) {
         o.sampling.temperature = 1.1f, o.sampling.top_p = 0.9f, o.sampling.top_k = 40;
         o.sampling.min_p = 0.02f, o.sampling.seed = 9;
       }},
      {"penalised",
       [](GenerateOptions& o) {
         o.sampling.repeat_penalty = 1.3f, o.sampling.presence_penalty = 0.5f;
         o.sampling.frequency_penalty = 0.2f, o.sampling.logit_bias = {{300, 4.0f}, {301, -50.0f}};
       }},
      {"stop string", [](GenerateOptions& o) { o.stops = {"compile"}; }},
      {"stop token", [](GenerateOptions& o) { o.ignore_eos = false; }},
      {"one token", [](GenerateOptions& o) { o.max_tokens = 1; }},
      {"to the end of the context", [](GenerateOptions& o) { o.max_tokens = -1; }},
  };
  const GenerateOptions plain = options_;
  SessionOptions session_options;
  session_options.drafts = true;
  for (const Case& c : cases) {
    options_ = plain;
    options_.max_tokens = 40;
    c.set(options_);
    const GenerateResult want = generated();
    const std::vector<int> timeline(session_->tokens().begin(), session_->tokens().end());
    for (const char* policy : {"1", "2", "3", "5", "8", "auto"}) {
      SCOPED_TRACE(std::string(c.name) + ", drafts " + policy);
      auto session = engine_->new_session(session_options);
      ASSERT_TRUE(session.ok());
      DraftControl control(*parse_draft_policy(policy, kMostDrafts));
      options_.drafts = &control;
      for (const bool again : {false, true}) {
        const auto got = generate(**session, prompt_, options_);
        ASSERT_TRUE(got.ok()) << got.error().what;
        EXPECT_EQ(got->tokens, want.tokens);
        EXPECT_EQ(got->text, want.text);
        EXPECT_EQ(got->finish, want.finish);
        EXPECT_EQ(got->decode.tokens, want.decode.tokens);
        EXPECT_TRUE(std::equal(timeline.begin(), timeline.end(), (*session)->tokens().begin(),
                               (*session)->tokens().end()));
        EXPECT_EQ(got->sync.reused, again ? got->prompt_tokens : 0);
        EXPECT_LE(got->drafts.accepted, got->drafts.offered);
        EXPECT_EQ(got->decode.counters.tokens,
                  static_cast<std::uint64_t>(got->drafts.steps + got->drafts.offered));
        if (policy[0] != 'a' && want.tokens.size() > 20) {
          EXPECT_GT(got->drafts.accepted, 0);
        }
      }
    }
    options_.drafts = nullptr;
  }
}

// P7: an answer with drafts, its reuse for the next turn, and going back to an earlier one.
TEST_F(GenerateTest, DraftsAndReuseTogetherAreAFreshStart) {
  SessionOptions session_options;
  session_options.drafts = true;
  auto drafting = engine_->new_session(session_options);
  ASSERT_TRUE(drafting.ok());
  DraftControl control(*parse_draft_policy("3", kMostDrafts));
  options_.drafts = &control;
  std::vector<int> prompt = prompt_;
  for (int turn = 0; turn < 3; ++turn) {
    const auto got = generate(**drafting, prompt, options_);
    ASSERT_TRUE(got.ok());
    if (turn > 0) {
      EXPECT_GT(got->sync.reused, 0);
    }
    auto fresh = engine_->new_session();
    ASSERT_TRUE(fresh.ok());
    options_.drafts = nullptr;
    const auto want = generate(**fresh, prompt, options_);
    options_.drafts = &control;
    EXPECT_EQ(got->tokens, want->tokens) << "turn " << turn;
    if (turn == 1) {
      prompt = prompt_;
      prompt.push_back(40);
    } else {
      prompt.insert(prompt.end(), got->tokens.begin(), got->tokens.end() - 2);
      prompt.push_back(35);
    }
  }
}

TEST_F(GenerateTest, BadRequests) {
  EXPECT_THAT(error_of({}), HasSubstr("0 tokens"));
  EXPECT_THAT(error_of(std::vector<int>{1, 1 << 20}), HasSubstr("1048576"));
  options_.max_tokens = -2;
  EXPECT_THAT(error_of(prompt_), HasSubstr("max_tokens: -2"));
  options_.max_tokens = 4;
  options_.stops = {"x", ""};
  EXPECT_THAT(error_of(prompt_), HasSubstr("stop"));
  options_.stops = {};
  options_.sampling.top_p = 0;
  EXPECT_THAT(error_of(prompt_), HasSubstr("top_p"));
  options_.sampling.top_p = 1;
  EXPECT_EQ(error_of(prompt_), "ok");
}

}  // namespace
}  // namespace lacuna
