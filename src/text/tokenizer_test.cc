// SPDX-License-Identifier: Apache-2.0
#include "text/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <thread>

#include "text/tokenizer_test_json.h"

namespace lacuna {
namespace {

using testing::HasSubstr;
using Ids = std::vector<int>;

const char* const kBundled = "models/tiny-nemotron-h/mlx-4bit";
const std::string R(kReplacement);

Tokenizer make(const nlohmann::json& json) {
  Result<Tokenizer> tokenizer = Tokenizer::parse(json.dump(), "test.json");
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.error().what;
  return *std::move(tokenizer);
}

class Folder {
 public:
  Folder() : path_(std::filesystem::path(testing::TempDir()) / "lacuna_tokenizer_test") {
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  void write(const char* name, const std::string& text) const {
    std::ofstream(path_ / name) << text;
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

TEST(Tokenizer, OpensTheBundledModel) {
  const Result<Tokenizer> t = Tokenizer::open(kBundled);
  ASSERT_TRUE(t.ok()) << t.error().what;
  EXPECT_EQ(t->vocabulary_size(), 8192);
  EXPECT_EQ(t->bos_token(), 0);
  EXPECT_EQ(t->eos_token(), 2);
  EXPECT_FALSE(t->add_bos());
  EXPECT_TRUE(t->is_special(1));
  EXPECT_FALSE(t->is_special(4));
  EXPECT_FALSE(t->is_special(-1));
  EXPECT_FALSE(t->is_special(8192));
  EXPECT_EQ(t->find_token("<|im_start|>"), 1);
  EXPECT_EQ(t->find_token("Ġt"), t->encode(" t").at(0));
  EXPECT_EQ(t->find_token("no such token"), std::nullopt);
  EXPECT_EQ(t->encode("Hello, world!"), (Ids{6668, 15, 3598, 4}));
  EXPECT_EQ(t->encode("a<|im_end|>b"), (Ids{68, 2, 69}));
  EXPECT_EQ(t->encode(""), Ids{});
}

TEST(Tokenizer, MergesInBothFormsOfTheFile) {
  const Tokenizer t = make(test_tokenizer_json());
  EXPECT_EQ(t.encode("hello hello"), (Ids{259, 260}));
  EXPECT_EQ(t.encode("help"), (Ids{256, 'l', 'p'}));
  nlohmann::json legacy = test_tokenizer_json();
  legacy["model"]["merges"] = {"#version: 0.2", "h e", "l l"};
  EXPECT_EQ(make(legacy).encode("hell"), (Ids{256, 257}));
}

TEST(Tokenizer, IgnoreMergesTakesWholePieces) {
  nlohmann::json json = test_tokenizer_json();
  json["model"]["merges"] = nlohmann::json::array();
  EXPECT_EQ(make(json).encode(" hello"), (Ids{' ', 'h', 'e', 'l', 'l', 'o'}));
  json["model"]["ignore_merges"] = true;
  EXPECT_EQ(make(json).encode(" hello"), (Ids{260}));
  EXPECT_EQ(make(json).encode(" hellow"), (Ids{' ', 'h', 'e', 'l', 'l', 'o', 'w'}));
}

TEST(Tokenizer, SpecialTokensAsPlainText) {
  const Tokenizer t = make(test_tokenizer_json());
  EXPECT_EQ(t.encode("<end>"), (Ids{262}));
  EXPECT_EQ(t.encode("<end>", SpecialTokens::kPlainText), (Ids{'<', 'e', 'n', 'd', '>'}));
  // <think> is added but not special: it stays a token.
  EXPECT_EQ(t.encode("<think>", SpecialTokens::kPlainText), (Ids{263}));
}

TEST(Tokenizer, PartsAreOneText) {
  const Tokenizer t = make(test_tokenizer_json());
  using enum SpecialTokens;
  const auto encode = [&](std::vector<TextPart> parts) { return t.encode_parts(parts); };
  EXPECT_EQ(encode({{"he", kParse}, {"llo", kPlainText}}), (Ids{259}));
  EXPECT_EQ(encode({{"<end>", kParse}, {"<end>", kPlainText}, {"<end>", kParse}}),
            (Ids{262, '<', 'e', 'n', 'd', '>', 262}));
  EXPECT_EQ(encode({{"<en", kParse}, {"d>", kPlainText}}), (Ids{'<', 'e', 'n', 'd', '>'}));
  EXPECT_EQ(encode({{"<en", kParse}, {"", kPlainText}, {"d>", kParse}}), (Ids{262}));
  EXPECT_EQ(encode({{"\xE6\x97", kPlainText}, {"\xA5", kParse}}), t.encode(R + R));
  EXPECT_EQ(encode({}), Ids{});
}

TEST(Tokenizer, InvalidUtf8IsReadAsReplacementCharacters) {
  const Tokenizer t = make(test_tokenizer_json());
  EXPECT_EQ(t.encode("a\xE6\x97z\xFF"), t.encode("a" + R + "z" + R));
}

TEST(Tokenizer, DecodeGivesTheBytesBack) {
  const Tokenizer t = make(test_tokenizer_json());
  EXPECT_EQ(t.decode(t.encode("hello, 日本 🦙\n\t")), "hello, 日本 🦙\n\t");
  const Ids ids = {261, 259, 263, 262, -1, 999999};
  EXPECT_EQ(t.decode(ids), "hello<think>");
  EXPECT_EQ(t.decode(ids, true), "<bos>hello<think><end>");
  EXPECT_EQ(t.token_bytes(0xE6), "\xE6");
  EXPECT_EQ(t.token_bytes(260), " hello");
  EXPECT_EQ(t.token_bytes(-1), "");
  EXPECT_EQ(t.token_bytes(264), "");
}

TEST(Tokenizer, AnAddedTokenDecodesToItsContent) {
  nlohmann::json json = test_tokenizer_json();
  json["added_tokens"].push_back(test_added_token(264, "Ġé ｜", false));
  const Tokenizer t = make(json);
  EXPECT_EQ(t.encode("xĠé ｜"), (Ids{'x', 264}));
  EXPECT_EQ(t.decode(Ids{264}), "Ġé ｜");
}

TEST(Tokenizer, TemplateProcessingIsOfferedNotApplied) {
  nlohmann::json json = test_tokenizer_json();
  json["post_processor"] = nlohmann::json::parse(R"({"type":"Sequence","processors":[
      {"type":"ByteLevel","add_prefix_space":true,"trim_offsets":false,"use_regex":true},
      {"type":"TemplateProcessing","pair":[],
       "single":[{"SpecialToken":{"id":"<bos>","type_id":0}},{"Sequence":{"id":"A","type_id":0}},
                 {"SpecialToken":{"id":"<end>","type_id":0}}],
       "special_tokens":{"<bos>":{"id":"<bos>","ids":[261],"tokens":["<bos>"]},
                         "<end>":{"id":"<end>","ids":[262],"tokens":["<end>"]}}}]})");
  Folder folder;
  folder.write("tokenizer.json", json.dump());
  folder.write("tokenizer_config.json", R"({"bos_token":{"content":"<bos>","lstrip":false}})");
  const Result<Tokenizer> t = Tokenizer::open(folder.path());
  ASSERT_TRUE(t.ok()) << t.error().what;
  EXPECT_EQ(t->encode("hello"), (Ids{259}));
  EXPECT_THAT(t->prefix_tokens(), testing::ElementsAre(261));
  EXPECT_THAT(t->suffix_tokens(), testing::ElementsAre(262));
  EXPECT_EQ(t->bos_token(), 261);
  EXPECT_EQ(t->eos_token(), std::nullopt);
  EXPECT_TRUE(t->add_bos());
}

TEST(Tokenizer, ConfigIsOptionalAndItsFlagWins) {
  Folder folder;
  folder.write("tokenizer.json", test_tokenizer_json().dump());
  const Result<Tokenizer> bare = Tokenizer::open(folder.path());
  ASSERT_TRUE(bare.ok()) << bare.error().what;
  EXPECT_EQ(bare->bos_token(), std::nullopt);
  EXPECT_FALSE(bare->add_bos());
  folder.write("tokenizer_config.json",
               R"({"bos_token":"<bos>","eos_token":"<end>","add_bos_token":true})");
  const Result<Tokenizer> t = Tokenizer::open(folder.path());
  ASSERT_TRUE(t.ok()) << t.error().what;
  EXPECT_EQ(t->eos_token(), 262);
  EXPECT_TRUE(t->add_bos());
}

TEST(Tokenizer, ConfigErrorsNameTheFile) {
  Folder folder;
  EXPECT_EQ(Tokenizer::open(folder.path()).error().code, ErrorCode::kNotFound);
  folder.write("tokenizer.json", test_tokenizer_json().dump());
  const std::pair<const char*, const char*> cases[] = {
      {R"({"bos_token":"<s>"})", "tokenizer_config.json: bos_token: \"<s>\" is no token"},
      {R"({"eos_token":7})", "tokenizer_config.json: eos_token: a number, want a string"},
      {R"({"add_bos_token":"yes"})",
       "tokenizer_config.json: add_bos_token: a string, want a boolean"},
      {R"([])", "tokenizer_config.json: an array, want an object"},
      {R"({"a":)", "tokenizer_config.json: not valid JSON"},
  };
  for (const auto& [config, want] : cases) {
    folder.write("tokenizer_config.json", config);
    const Result<Tokenizer> t = Tokenizer::open(folder.path());
    ASSERT_FALSE(t.ok()) << config;
    EXPECT_THAT(t.error().what, HasSubstr(want));
  }
}

TEST(Tokenizer, ThreadsShareOne) {
  const Result<Tokenizer> t = Tokenizer::open(kBundled);
  ASSERT_TRUE(t.ok()) << t.error().what;
  const std::string text = "The quick brown fox, 123 times. 日本語 🦙\n\n";
  const Ids want = t->encode(text);
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int j = 0; j < 200; ++j) wrong += t->encode(text) != want;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

// Every chunk shown is whole UTF-8, and all of them are the repaired decode.
std::string stream(const Tokenizer& t, const Ids& ids, bool keep_special = false) {
  StreamDecoder decoder(t, keep_special);
  std::string text;
  for (int id : ids) {
    const std::string chunk = decoder.push(id);
    EXPECT_TRUE(is_utf8(chunk));
    text += chunk;
  }
  return text + decoder.finish();
}

TEST(StreamDecoder, HoldsBackUnfinishedCharacters) {
  const Tokenizer t = make(test_tokenizer_json());
  StreamDecoder decoder(t);
  EXPECT_EQ(decoder.push('a'), "a");
  EXPECT_EQ(decoder.push(0xF0), "");
  EXPECT_EQ(decoder.push(0x9F), "");
  EXPECT_EQ(decoder.push(262), "");  // a control token between changes nothing
  EXPECT_EQ(decoder.push(0xA6), "");
  EXPECT_EQ(decoder.push(0x99), "🦙");
  EXPECT_EQ(decoder.push(0xE6), "");
  EXPECT_EQ(decoder.push('x'), R + "x");
  EXPECT_EQ(decoder.push(0xE6), "");
  EXPECT_EQ(decoder.finish(), R);
  EXPECT_EQ(decoder.finish(), "");
}

TEST(StreamDecoder, EqualsTheWholeDecode) {
  const Tokenizer t = make(test_tokenizer_json());
  for (const char* text :
       {"Příliš žluťoučký kůň", "각하 한국어", "🇨🇿🇯🇵👩‍👩‍👧‍👦",
        "e\u0301\u200d\uFFFD", ""}) {
    EXPECT_EQ(stream(t, t.encode(text)), text);
  }
  EXPECT_EQ(stream(t, {261, 259, 262}, true), "<bos>hello<end>");
  EXPECT_EQ(stream(t, {261, 259, 262}), "hello");
  // Bytes in any order: the text is what repairing all of them at once gives.
  unsigned state = 1;
  for (int round = 0; round < 2000; ++round) {
    Ids ids;
    for (int i = 0; i < 12; ++i) {
      state = state * 1664525u + 1013904223u;
      const int any = static_cast<int>(state >> 24);
      ids.push_back(round % 2 == 0 ? any : any | 0x80);
    }
    ASSERT_EQ(stream(t, ids), repair_utf8(t.decode(ids)));
  }
}

}  // namespace
}  // namespace lacuna
