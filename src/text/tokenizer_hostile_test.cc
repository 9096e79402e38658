// SPDX-License-Identifier: Apache-2.0
// tokenizer.json files that are wrong, or that need what lacuna does not have: each is refused with
// one line that names the place.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "text/tokenizer.h"
#include "text/tokenizer_test_json.h"

namespace lacuna {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::StartsWith;

std::string error_of(const json& file) {
  const Result<Tokenizer> t = Tokenizer::parse(file.dump(), "t.json");
  if (t.ok()) return "accepted";
  EXPECT_EQ(t.error().what.find('\n'), std::string::npos) << t.error().what;
  return t.error().what;
}

// The error of the small tokenizer with the value at a JSON pointer replaced.
std::string error_with(const char* pointer, const json& value) {
  json file = test_tokenizer_json();
  file[json::json_pointer(pointer)] = value;
  return error_of(file);
}

std::string error_without(const char* pointer, const char* key) {
  json file = test_tokenizer_json();
  file[json::json_pointer(pointer)].erase(key);
  return error_of(file);
}

TEST(HostileTokenizer, TheFileItselfIsFine) {
  EXPECT_EQ(error_of(test_tokenizer_json()), "accepted");
}

TEST(HostileTokenizer, UnknownComponentsAreNamed) {
  const std::tuple<const char*, const char*, const char*> cases[] = {
      {"/normalizer", R"({"type":"NFC"})", "normalizer: type \"NFC\" is not supported, want null"},
      {"/normalizer", R"({"type":"Sequence","normalizers":[{"type":"NFC"}]})",
       "normalizer: type \"Sequence\""},
      {"/pre_tokenizer", R"({"type":"Metaspace"})",
       "pre_tokenizer: type \"Metaspace\" is not supported"},
      {"/pre_tokenizer",
       R"({"type":"Sequence","pretokenizers":[{"type":"Digits","individual_digits":true},{"type":"Punctuation"}]})",
       "pre_tokenizer.pretokenizers[1]: type \"Punctuation\" is not supported"},
      {"/pre_tokenizer", R"({"type":"Digits","individual_digits":true})",
       "pre_tokenizer: no ByteLevel in it"},
      {"/pre_tokenizer/extra", "1", "pre_tokenizer: unknown key \"extra\""},
      {"/post_processor", R"({"type":"BertProcessing"})",
       "post_processor: type \"BertProcessing\""},
      {"/decoder", R"({"type":"WordPiece"})",
       "decoder: type \"WordPiece\" is not supported, want ByteLevel"},
      {"/model/type", R"("WordPiece")", "model: type \"WordPiece\" is not supported, want BPE"},
      {"/model/dropout", "0.1", "model.dropout: random merges"},
      {"/model/end_of_word_suffix", R"("</w>")", "model.end_of_word_suffix: \"</w>\", want null"},
      {"/model/shiny", "true", "model: unknown key \"shiny\""},
      {"/surprise", "1", "unknown key \"surprise\""},
  };
  for (const auto& [pointer, value, want] : cases) {
    EXPECT_THAT(error_with(pointer, json::parse(value)),
                StartsWith(std::string("t.json: ") + want));
  }
}

TEST(HostileTokenizer, SplitIsChecked) {
  const auto with_split = [](const char* changes) {
    json split = json::parse(
        R"({"type":"Split","pattern":{"Regex":"\\s+"},"behavior":"Isolated","invert":false})");
    split.merge_patch(json::parse(changes));
    const json byte_level = test_tokenizer_json()["pre_tokenizer"];
    return error_with("/pre_tokenizer",
                      {{"type", "Sequence"}, {"pretokenizers", {split, byte_level}}});
  };
  EXPECT_EQ(with_split("{}"), "accepted");
  const std::string at = "t.json: pre_tokenizer.pretokenizers[0]";
  EXPECT_THAT(with_split(R"({"behavior":"Sideways"})"), StartsWith(at + ".behavior: \"Sideways\""));
  EXPECT_THAT(with_split(R"({"invert":null})"), StartsWith(at + ": \"invert\" is missing"));
  EXPECT_THAT(with_split(R"({"pattern":null})"), StartsWith(at + ": \"pattern\" is missing"));
  EXPECT_THAT(with_split(R"({"pattern":{"Regex":"(\\w+"}})"),
              StartsWith(at + ".pattern.Regex: \"\\w\" at byte 1"));
  EXPECT_THAT(with_split(R"({"pattern":{"Regex":""}})"),
              StartsWith(at + ".pattern.Regex: an empty pattern"));
  EXPECT_THAT(with_split(R"({"pattern":{"Glob":"*"}})"),
              StartsWith(at + ".pattern: unknown key \"Glob\""));
}

TEST(HostileTokenizer, ByteLevelIsLast) {
  const json byte_level = test_tokenizer_json()["pre_tokenizer"];
  EXPECT_THAT(error_with("/pre_tokenizer",
                         {{"type", "Sequence"}, {"pretokenizers", {byte_level, byte_level}}}),
              HasSubstr("pretokenizers[1]: \"ByteLevel\" after ByteLevel"));
  json nested = byte_level;
  for (int i = 0; i < 20; ++i) nested = {{"type", "Sequence"}, {"pretokenizers", {nested}}};
  EXPECT_THAT(error_with("/pre_tokenizer", nested), HasSubstr("nested too deeply"));
}

TEST(HostileTokenizer, VocabularyAndMergesAreChecked) {
  EXPECT_THAT(error_with("/model/vocab/he", -1), HasSubstr("model.vocab: the id of \"he\""));
  EXPECT_THAT(error_with("/model/vocab/he", 5000000), HasSubstr("from 0 to 4194303"));
  EXPECT_THAT(error_with("/model/vocab/he", 1.5), HasSubstr("no whole number"));
  EXPECT_THAT(error_with("/model/vocab/he", 65), HasSubstr("or id 65 is there twice"));
  EXPECT_THAT(error_without("/model/vocab", "a"),
              HasSubstr("model: vocab has no token for byte 0x61"));
  EXPECT_EQ(error_without("/model/vocab", byte_letter(0xFF).c_str()),
            "accepted");  // no UTF-8 holds it
  EXPECT_THAT(error_with("/model/merges/0", "h e l"), HasSubstr("model.merges: rule 0 is neither"));
  EXPECT_THAT(error_with("/model/merges/2", json::array({"he"})), HasSubstr("rule 2 is neither"));
  EXPECT_THAT(error_with("/model/merges/1", 7), HasSubstr("rule 1 is neither"));
  EXPECT_THAT(error_with("/model/merges/1", "x y"), HasSubstr("rule 1 needs token \"xy\""));
  EXPECT_THAT(error_with("/model/merges", "h e"), HasSubstr("model.merges: want an array"));
  EXPECT_THAT(error_with("/model/vocab", json::array()), HasSubstr("model.vocab: want an object"));
}

TEST(HostileTokenizer, DuplicateKeysInTheVocabulary) {
  std::string text = test_tokenizer_json().dump();
  const std::size_t at = text.find("\"hell\":");
  ASSERT_NE(at, std::string::npos);
  text.insert(at, "\"hell\":999,");
  const Result<Tokenizer> t = Tokenizer::parse(text, "t.json");
  ASSERT_FALSE(t.ok());
  EXPECT_THAT(t.error().what, HasSubstr("is there twice"));
}

TEST(HostileTokenizer, AddedTokensAreChecked) {
  EXPECT_THAT(error_with("/added_tokens/0/id", -3),
              HasSubstr("added_tokens[0].id: a number, want a whole number"));
  EXPECT_THAT(error_with("/added_tokens/0/id", 262), HasSubstr("is there twice"));
  EXPECT_THAT(error_with("/added_tokens/0/id", 65),
              HasSubstr("id 65 or content \"<bos>\" is there twice"));
  EXPECT_THAT(error_with("/added_tokens/0/content", "he"),
              HasSubstr("\"he\" has id 261, but 256 in the vocabulary"));
  EXPECT_THAT(error_with("/added_tokens/1/content", "<bos>"), HasSubstr("added_tokens[1]: id 262"));
  EXPECT_THAT(error_with("/added_tokens/0/content", std::string(5000, 'x')),
              HasSubstr("5000 bytes long"));
  EXPECT_THAT(error_with("/added_tokens/0/lstrip", "no"),
              HasSubstr("added_tokens[0].lstrip: a string, want a boolean"));
  EXPECT_THAT(error_without("/added_tokens/2", "special"),
              HasSubstr("added_tokens[2]: \"special\" is missing"));
}

TEST(HostileTokenizer, TemplateProcessingIsChecked) {
  const auto with_single = [](const char* single) {
    json post = {{"type", "TemplateProcessing"},
                 {"pair", json::array()},
                 {"special_tokens", json::object()}};
    post["single"] = json::parse(single);
    return error_with("/post_processor", post);
  };
  EXPECT_EQ(with_single(R"([{"Sequence":{"id":"A","type_id":0}}])"), "accepted");
  EXPECT_THAT(with_single("[]"), HasSubstr("post_processor.single: want \"A\" once"));
  EXPECT_THAT(with_single(R"([{"Sequence":{"id":"B","type_id":0}}])"),
              HasSubstr("want \"A\" once"));
  EXPECT_THAT(with_single(R"([{"SpecialToken":{"id":"<s>","type_id":0}}])"),
              HasSubstr("post_processor.special_tokens: \"<s>\" is missing"));
  EXPECT_THAT(with_single(R"([7])"),
              HasSubstr("post_processor.single[0]: a number, want an object"));
}

// Cut anywhere, or with a byte changed, the file is refused or read: never a crash.
TEST(HostileTokenizer, TruncatedAndDamagedFiles) {
  const std::string whole = test_tokenizer_json().dump();
  for (std::size_t length = 0; length < whole.size(); length += 37) {
    EXPECT_FALSE(Tokenizer::parse(whole.substr(0, length), "t.json").ok()) << length;
  }
  int accepted = 0;
  for (std::size_t at = 0; at < whole.size(); at += 11) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x11);
    const Result<Tokenizer> t = Tokenizer::parse(damaged, "t.json");
    if (!t.ok()) continue;
    ++accepted;
    EXPECT_FALSE(t->encode("hello <end> 日本 12").empty());
  }
  EXPECT_GT(accepted, 0);
}

// Repetition is where tokenizers turn quadratic.
TEST(HostileTokenizer, LongMonotonousTexts) {
  const Result<Tokenizer> t = Tokenizer::open("models/tiny-nemotron-h/mlx-4bit");
  ASSERT_TRUE(t.ok()) << t.error().what;
  for (const char* unit : {"a", " ", "\n", "<", "ab", "<|im_", "\xF0\x9F", "é", "1"}) {
    std::string text;
    while (text.size() < 1000000) text += unit;
    const std::vector<int> ids = t->encode(text);
    EXPECT_EQ(t->decode(ids), repair_utf8(text)) << unit;
  }
}

}  // namespace
}  // namespace lacuna
