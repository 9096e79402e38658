// SPDX-License-Identifier: Apache-2.0
#include "decode/answer.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

namespace lacuna {
namespace {

constexpr int kEndOfTurn = 2;  // <|im_end|>

class AnswerTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    auto opened = Tokenizer::open("models/tiny-nemotron-h/mlx-4bit");
    ASSERT_TRUE(opened.ok()) << opened.error().what;
    tokenizer_.emplace(*std::move(opened));
  }

  AnswerTest() {
    options_.sampling.temperature = 0;
    options_.stop_tokens = {kEndOfTurn, 0};
    options_.on_text = [this](std::string_view text) { pieces_.emplace_back(text); };
  }

  // A row that says: this token.
  static std::vector<float> row(int id) {
    std::vector<float> logits(tokenizer_->vocabulary_size(), 0.0f);
    logits[id] = 10;
    return logits;
  }

  // Plays the tokens until the answer is done or they run out.
  AnswerBuilder play(const std::vector<int>& tokens) {
    AnswerBuilder answer(*tokenizer_, std::vector<int>{0}, options_);
    for (const int id : tokens) {
      if (answer.done()) break;
      const std::optional<int> next = answer.next(row(id));
      if (answer.done()) {
        EXPECT_EQ(next, std::nullopt);
      } else {
        EXPECT_EQ(next, id);
      }
    }
    return answer;
  }

  std::string streamed() const {
    std::string text;
    for (const std::string& piece : pieces_) text += piece;
    return text;
  }

  static std::optional<Tokenizer> tokenizer_;
  AnswerOptions options_;
  std::vector<std::string> pieces_;
};

std::optional<Tokenizer> AnswerTest::tokenizer_;

TEST_F(AnswerTest, StopTokenEndsItAndIsNoPartOfIt) {
  std::vector<int> tokens = tokenizer_->encode("A short answer.");
  const std::vector<int> wanted = tokens;
  tokens.push_back(kEndOfTurn);
  const AnswerBuilder answer = play(tokens);
  ASSERT_TRUE(answer.done());
  EXPECT_EQ(answer.reason(), FinishReason::kStop);
  EXPECT_EQ(answer.text(), "A short answer.");
  EXPECT_EQ(answer.tokens(), wanted);
  EXPECT_EQ(streamed(), answer.text());
  EXPECT_GT(pieces_.size(), 1u);
}

// Every end token ends, not only the first of the list.
TEST_F(AnswerTest, AnyStopToken) {
  const AnswerBuilder answer = play({0});
  ASSERT_TRUE(answer.done());
  EXPECT_EQ(answer.reason(), FinishReason::kStop);
  EXPECT_TRUE(answer.tokens().empty());
  EXPECT_TRUE(pieces_.empty());
}

TEST_F(AnswerTest, LimitCountsTokens) {
  options_.limit = 2;
  const std::vector<int> tokens = tokenizer_->encode("one two three four");
  const AnswerBuilder answer = play(tokens);
  ASSERT_TRUE(answer.done());
  EXPECT_EQ(answer.reason(), FinishReason::kLength);
  EXPECT_EQ(answer.tokens().size(), 2u);
  EXPECT_EQ(answer.text(), tokenizer_->decode(std::span(tokens).first(2)));
}

TEST_F(AnswerTest, LimitZeroIsDoneAtOnce) {
  options_.limit = 0;
  const AnswerBuilder answer(*tokenizer_, {}, options_);
  ASSERT_TRUE(answer.done());
  EXPECT_EQ(answer.reason(), FinishReason::kLength);
  EXPECT_EQ(answer.text(), "");
}

// Found in the field: a stop string over two tokens leaked its first half.
TEST_F(AnswerTest, StopStringOverTokens) {
  options_.stops = {"\nUser: "};
  const AnswerBuilder answer = play(tokenizer_->encode("Sure.\nUser: and then"));
  ASSERT_TRUE(answer.done());
  EXPECT_EQ(answer.reason(), FinishReason::kStop);
  EXPECT_EQ(answer.text(), "Sure.");
  EXPECT_EQ(streamed(), "Sure.");
}

TEST_F(AnswerTest, HeldBackTextIsShownAtTheEnd) {
  options_.stops = {"\nUser: "};
  std::vector<int> tokens = tokenizer_->encode("Sure.\nUse");
  tokens.push_back(kEndOfTurn);
  const AnswerBuilder answer = play(tokens);
  EXPECT_EQ(answer.text(), "Sure.\nUse");
  EXPECT_EQ(streamed(), answer.text());
}

TEST_F(AnswerTest, StopStringThatIsASpecialToken) {
  options_.stop_tokens = {};
  options_.stops = {"<|im_end|>"};
  const AnswerBuilder answer = play({tokenizer_->encode("x")[0], kEndOfTurn});
  ASSERT_TRUE(answer.done());
  EXPECT_EQ(answer.reason(), FinishReason::kStop);
  EXPECT_EQ(answer.text(), "x");
}

// Pieces are whole characters even where a character is several tokens.
TEST_F(AnswerTest, NoHalfCharacters) {
  const std::string text = "\xe6\xbc\xa2\xe5\xad\x97 \xf0\x9f\xa6\x99!";
  const std::vector<int> tokens = tokenizer_->encode(text);
  ASSERT_GT(tokens.size(), 4u);
  options_.limit = static_cast<int>(tokens.size());
  const AnswerBuilder answer = play(tokens);
  EXPECT_EQ(answer.text(), text);
  for (const std::string& piece : pieces_) {
    EXPECT_NE(static_cast<unsigned char>(piece[0]) & 0xc0, 0x80) << "begins inside a character";
  }
}

TEST_F(AnswerTest, ACharacterCutByTheLimit) {
  const std::vector<int> tokens = tokenizer_->encode("\xf0\x9f\xa6\x99");
  ASSERT_GT(tokens.size(), 1u);
  options_.limit = static_cast<int>(tokens.size()) - 1;
  const AnswerBuilder answer = play(tokens);
  EXPECT_EQ(answer.reason(), FinishReason::kLength);
  EXPECT_EQ(answer.text(), "\xef\xbf\xbd");
  EXPECT_EQ(streamed(), answer.text());
}

TEST_F(AnswerTest, CancelKeepsWhatIsThere) {
  options_.stops = {"zzz"};
  AnswerBuilder answer = play(tokenizer_->encode("so far z"));
  ASSERT_FALSE(answer.done());
  answer.cancel();
  EXPECT_EQ(answer.reason(), FinishReason::kCancelled);
  EXPECT_EQ(answer.text(), "so far z");
  EXPECT_EQ(streamed(), answer.text());
}

TEST(FinishReasonName, IsTheApiName) {
  EXPECT_STREQ(finish_reason_name(FinishReason::kStop), "stop");
  EXPECT_STREQ(finish_reason_name(FinishReason::kLength), "length");
  EXPECT_STREQ(finish_reason_name(FinishReason::kCancelled), "cancelled");
}

}  // namespace
}  // namespace lacuna
