// SPDX-License-Identifier: Apache-2.0
#include "decode/conversation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

namespace lacuna {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kTrimming =
    "{%- for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content | trim }}<|im_end|>\n"
    "{%- endfor %}<|im_start|>assistant\n";

class ConversationTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    auto tokenizer = Tokenizer::open("models/tiny-nemotron-h/mlx-4bit");
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().what;
    tokenizer_.emplace(*std::move(tokenizer));
    auto chat_template = ChatTemplate::open("models/tiny-nemotron-h/mlx-4bit");
    ASSERT_TRUE(chat_template.ok()) << chat_template.error().what;
    template_.emplace(*std::move(chat_template));
  }

  static Conversation make(const ChatTemplate& chat_template = *template_,
                           const Json& keywords = Json::object()) {
    Conversation conversation(*tokenizer_, chat_template, keywords);
    conversation.start("");
    return conversation;
  }
  static std::vector<int> ask(Conversation& conversation, std::string_view text) {
    const auto prompt = conversation.ask(text);
    EXPECT_TRUE(prompt.ok()) << prompt.error().what;
    return prompt.ok() ? *prompt : std::vector<int>();
  }
  static std::string text_of(std::span<const int> tokens) {
    return tokenizer_->decode(tokens, /*keep_special=*/true);
  }
  // The same text in more tokens than encode() would give: byte by byte.
  static std::vector<int> spelled(std::string_view text) {
    std::vector<int> tokens;
    for (const char c : text)
      for (const int id : tokenizer_->encode(std::string(1, c))) tokens.push_back(id);
    return tokens;
  }

  static std::optional<Tokenizer> tokenizer_;
  static std::optional<ChatTemplate> template_;
};

std::optional<Tokenizer> ConversationTest::tokenizer_;
std::optional<ChatTemplate> ConversationTest::template_;

TEST_F(ConversationTest, RendersAllMessages) {
  Conversation conversation = make();
  conversation.start("Be brief.");
  EXPECT_EQ(text_of(ask(conversation, "Hi")),
            "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
            "<|im_start|>assistant\n");
  conversation.answer("Hello.", tokenizer_->encode("Hello."));
  EXPECT_EQ(conversation.messages().size(), 3u);
  EXPECT_THAT(text_of(ask(conversation, "And?")),
              HasSubstr("<|im_start|>assistant\nHello.<|im_end|>\n<|im_start|>user\nAnd?"));
  conversation.start("");
  EXPECT_EQ(text_of(ask(conversation, "x")),
            "<|im_start|>user\nx<|im_end|>\n<|im_start|>assistant\n");
}

// The tokens the model chose stay, though encoding the text would give others.
TEST_F(ConversationTest, GeneratedTokensAreKept) {
  Conversation conversation = make();
  const std::vector<int> first = ask(conversation, "Hi");
  const std::vector<int> generated = spelled("Hello there");
  ASSERT_NE(generated, tokenizer_->encode("Hello there"));
  conversation.answer("Hello there", generated);
  const std::vector<int> second = ask(conversation, "And?");
  std::vector<int> known = first;
  known.insert(known.end(), generated.begin(), generated.end());
  ASSERT_GT(second.size(), known.size());
  EXPECT_TRUE(std::equal(known.begin(), known.end(), second.begin()));
  EXPECT_EQ(text_of(second), text_of(first) +
                                 "Hello there<|im_end|>\n<|im_start|>user\nAnd?<|im_end|>\n"
                                 "<|im_start|>assistant\n");
}

TEST_F(ConversationTest, WithCanonicalTokensItIsThePlainEncoding) {
  Conversation kept = make();
  const std::vector<int> first = ask(kept, "Hi");
  kept.answer("Hello.", tokenizer_->encode("Hello."));
  EXPECT_EQ(ask(kept, "And?"),
            tokenizer_->encode("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
                               "Hello.<|im_end|>\n<|im_start|>user\nAnd?<|im_end|>\n"
                               "<|im_start|>assistant\n"));
}

// The template changed the past: the tokens of the past must not be used.
TEST_F(ConversationTest, AChangedPastIsEncodedAnew) {
  const auto trimming = ChatTemplate::parse(kTrimming, "trimming");
  ASSERT_TRUE(trimming.ok()) << trimming.error().what;
  Conversation conversation = make(*trimming);
  ask(conversation, "Hi");
  conversation.answer(" Hello", spelled(" Hello"));
  const std::vector<int> second = ask(conversation, "And?");
  EXPECT_THAT(text_of(second), HasSubstr("assistant\nHello<|im_end|>"));
  EXPECT_EQ(second, tokenizer_->encode(text_of(second)));
}

// A stop string cut the text, or a special token was hidden: text and tokens differ.
TEST_F(ConversationTest, TokensThatSayMoreThanTheTextAreNotKept) {
  for (const std::string hidden : {" STOP", "<|im_start|>"}) {
    Conversation conversation = make();
    ask(conversation, "Hi");
    conversation.answer("Hello", tokenizer_->encode("Hello" + hidden));
    EXPECT_THAT(text_of(ask(conversation, "And?")), Not(HasSubstr("Hello" + hidden)));
  }
}

TEST_F(ConversationTest, TypedControlTokensStayText) {
  Conversation conversation = make();
  const std::vector<int> prompt = ask(conversation, "a<|im_end|>b");
  EXPECT_EQ(std::count(prompt.begin(), prompt.end(), 2), 1);
  conversation.answer("ok", tokenizer_->encode("ok"));
  const std::vector<int> second = ask(conversation, "<|im_end|>");
  EXPECT_EQ(std::count(second.begin(), second.end(), 2), 3);
}

TEST_F(ConversationTest, WithdrawTakesTheQuestionBack) {
  Conversation conversation = make();
  const std::vector<int> first = ask(conversation, "Hi");
  conversation.withdraw();
  EXPECT_TRUE(conversation.messages().empty());
  EXPECT_EQ(ask(conversation, "Hi"), first);
  conversation.answer("Hello", tokenizer_->encode("Hello"));
  conversation.withdraw();  // answered: stays
  EXPECT_EQ(conversation.messages().size(), 2u);
}

TEST_F(ConversationTest, TemplateErrorsLeaveTheMessagesAlone) {
  const auto strict = ChatTemplate::parse(
      "{% if messages | length > 1 %}{{ raise_exception('one question only') }}{% endif %}"
      "{{ messages[0].content }}",
      "strict");
  ASSERT_TRUE(strict.ok()) << strict.error().what;
  Conversation conversation = make(*strict);
  ask(conversation, "Hi");
  conversation.answer("Hello", tokenizer_->encode("Hello"));
  const auto failed = conversation.ask("And?");
  ASSERT_FALSE(failed.ok());
  EXPECT_THAT(failed.error().what, HasSubstr("one question only"));
  EXPECT_EQ(conversation.messages().size(), 2u);
}

TEST_F(ConversationTest, KeywordsReachTheTemplate) {
  const auto keyword = ChatTemplate::parse("{{ 'T' if enable_thinking else 'F' }}", "keyword");
  ASSERT_TRUE(keyword.ok()) << keyword.error().what;
  Conversation on = make(*keyword, {{"enable_thinking", true}});
  Conversation off = make(*keyword, {{"enable_thinking", false}});
  EXPECT_EQ(text_of(ask(on, "x")), "T");
  EXPECT_EQ(text_of(ask(off, "x")), "F");
}

TEST_F(ConversationTest, TextGetsTheBeginTokenTheTokenizerAsksFor) {
  EXPECT_EQ(encode_text(*tokenizer_, "a<|im_end|>"), tokenizer_->encode("a<|im_end|>"));
  EXPECT_TRUE(encode_text(*tokenizer_, "").empty());
}

TEST_F(ConversationTest, VariablesAreHuggingFaces) {
  const auto variables = template_variables(*tokenizer_, Json::array(), {{"a", 1}});
  ASSERT_TRUE(variables.ok());
  EXPECT_EQ(variables->at("bos_token"), "<|endoftext|>");
  EXPECT_EQ(variables->at("eos_token"), "<|im_end|>");
  EXPECT_EQ(variables->at("add_generation_prompt"), true);
  EXPECT_EQ(variables->at("a"), 1);
  EXPECT_FALSE(template_variables(*tokenizer_, Json::array(), Json::array()).ok());
  EXPECT_FALSE(template_variables(*tokenizer_, Json::array(), {{"messages", 1}}).ok());
}

}  // namespace
}  // namespace lacuna
