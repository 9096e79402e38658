// SPDX-License-Identifier: Apache-2.0
// Our ids against those of Hugging Face `tokenizers`, as tools/record_tokenizer.py recorded them.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/mmap.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

namespace lacuna {
namespace {

using nlohmann::ordered_json;

const char* const kRecording = "tests/data/tokenizer/hugging_face.json";
const char* const kBundled = "models/tiny-nemotron-h/mlx-4bit/tokenizer.json";

ordered_json read(const char* path) {
  const Result<std::string> text = read_text_file(path);
  EXPECT_TRUE(text.ok()) << text.error().what;
  return ordered_json::parse(*text);
}

std::uint32_t fnv1a(std::uint32_t hash, unsigned char byte) { return (hash ^ byte) * 16777619u; }
constexpr std::uint32_t kFnvStart = 2166136261u;

std::string fingerprint(const std::vector<int>& ids) {
  std::uint32_t hash = kFnvStart;
  for (int id : ids) {
    for (int shift = 0; shift < 32; shift += 8)
      hash = fnv1a(hash, static_cast<unsigned char>(id >> shift));
  }
  return fmt::format("{:08x}", hash);
}

// The bundled file with a variant's changes, made as the recording script makes it.
std::string changed(ordered_json file, const ordered_json& changes) {
  for (const auto& [key, value] : changes.items()) {
    if (key == "added_tokens") {
      file[key].insert(file[key].end(), value.begin(), value.end());
    } else if (key == "ignore_merges") {
      file["model"][key] = value;
    } else {
      file[key] = value;
    }
  }
  return file.dump();
}

TEST(TokenizerGolden, IdsEqualHuggingFaces) {
  const ordered_json recording = read(kRecording), bundled = read(kBundled);
  const auto texts = recording["texts"].get<std::vector<std::string>>();
  ASSERT_GE(texts.size(), 1500u);
  ASSERT_GE(recording["variants"].size(), 16u);
  for (const auto& [name, variant] : recording["variants"].items()) {
    const Result<Tokenizer> t = Tokenizer::parse(changed(bundled, variant["changes"]), name);
    ASSERT_TRUE(t.ok()) << t.error().what;
    const auto special =
        name.ends_with("/plain") ? SpecialTokens::kPlainText : SpecialTokens::kParse;
    const auto prints = variant["fingerprints"].get<std::string>();
    ASSERT_EQ(prints.size(), 8 * texts.size());
    for (std::size_t i = 0; i < variant["first_ids"].size(); ++i) {
      EXPECT_EQ(t->encode(texts[i], special), variant["first_ids"][i].get<std::vector<int>>())
          << name << ": " << texts[i];
    }
    int differ = 0;
    for (std::size_t i = 0; i < texts.size(); ++i) {
      const std::vector<int> ids = t->encode(texts[i], special);
      if (fingerprint(ids) == prints.substr(8 * i, 8)) continue;
      if (++differ <= 3)
        ADD_FAILURE() << name << ": ids differ for " << ordered_json(texts[i]).dump();
    }
    EXPECT_EQ(differ, 0) << name;
  }
}

TEST(TokenizerGolden, DecodingGivesTheTextBack) {
  const auto texts = read(kRecording)["texts"].get<std::vector<std::string>>();
  const Result<Tokenizer> t = Tokenizer::open("models/tiny-nemotron-h/mlx-4bit");
  ASSERT_TRUE(t.ok()) << t.error().what;
  for (const std::string& text : texts) {
    const std::vector<int> ids = t->encode(text);
    ASSERT_EQ(t->decode(ids, true), text);
    StreamDecoder stream(*t, true);
    std::string streamed;
    for (int id : ids) streamed += stream.push(id);
    ASSERT_EQ(streamed + stream.finish(), text);
  }
}

// All strings of up to four bytes over the bytes that matter to UTF-8, against Python's decoder.
TEST(TokenizerGolden, RepairEqualsPythons) {
  const ordered_json recorded = read(kRecording)["invalid_utf8"];
  const auto alphabet = recorded["bytes"].get<std::vector<int>>();
  ASSERT_GE(alphabet.size(), 20u);
  std::uint32_t hash = kFnvStart;
  std::string text;
  const auto visit = [&](const auto& self, int left) -> void {
    if (left == 0) {
      for (char c : repair_utf8(text)) hash = fnv1a(hash, static_cast<unsigned char>(c));
      hash = fnv1a(hash, 0xFF);
      return;
    }
    for (int byte : alphabet) {
      text.push_back(static_cast<char>(byte));
      self(self, left - 1);
      text.pop_back();
    }
  };
  for (int length = 1; length <= 4; ++length) visit(visit, length);
  EXPECT_EQ(fmt::format("{:08x}", hash), recorded["fingerprint"].get<std::string>());
}

}  // namespace
}  // namespace lacuna
