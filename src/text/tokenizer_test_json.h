// SPDX-License-Identifier: Apache-2.0
// A small tokenizer.json for tests: 256 byte tokens (ids 0 to 255 in byte order) and a few more.
#pragma once

#include <nlohmann/json.hpp>

#include <string>

#include "text/utf8.h"

namespace lacuna {

inline std::string byte_letter(int byte) {
  std::string letter;
  append_utf8(letter, byte_to_letter(static_cast<unsigned char>(byte)));
  return letter;
}

inline nlohmann::json test_added_token(int id, const std::string& content, bool special) {
  return {{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", false}, {"special", special}};
}

// Tokens 256 "he", 257 "ll", 258 "hell", 259 "hello", 260 "Ġhello"; <bos> 261 and <end> 262 are
// special, <think> 263 is not.
inline nlohmann::json test_tokenizer_json() {
  nlohmann::json vocab;
  for (int b = 0; b < 256; ++b) vocab[byte_letter(b)] = b;
  const std::string space = byte_letter(' ');
  for (const std::string& token : {std::string("he"), std::string("ll"), std::string("hell"),
                                   std::string("hello"), space + "hello"}) {
    vocab[token] = vocab.size();
  }
  using nlohmann::json;
  const json byte_level = {{"type", "ByteLevel"},
                           {"add_prefix_space", false},
                           {"trim_offsets", true},
                           {"use_regex", true}};
  return {
      {"version", "1.0"},
      {"truncation", nullptr},
      {"padding", nullptr},
      {"added_tokens",
       {test_added_token(261, "<bos>", true), test_added_token(262, "<end>", true),
        test_added_token(263, "<think>", false)}},
      {"normalizer", nullptr},
      {"pre_tokenizer", byte_level},
      {"post_processor", nullptr},
      {"decoder", byte_level},
      {"model",
       {{"type", "BPE"},
        {"dropout", nullptr},
        {"unk_token", nullptr},
        {"continuing_subword_prefix", nullptr},
        {"end_of_word_suffix", nullptr},
        {"fuse_unk", false},
        {"byte_fallback", false},
        {"ignore_merges", false},
        {"vocab", vocab},
        {"merges",
         {"h e", "l l", json::array({"he", "ll"}), "hell o", json::array({space, "hello"})}}}},
  };
}

}  // namespace lacuna
