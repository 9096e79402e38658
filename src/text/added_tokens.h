// SPDX-License-Identifier: Apache-2.0
// The tokens that are found in text before anything else: control tokens and whole added words.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace lacuna {

// One entry of "added_tokens". An empty content matches nowhere.
struct AddedToken {
  int id = 0;
  std::string content;
  bool special = false;
  bool normalized = false;   // looked for in a second pass, after the others are cut out
  bool single_word = false;  // not beside a letter, a digit or an underscore
  bool lstrip = false;       // takes the white space before it
  bool rstrip = false;       // and after it
};

// A stretch of text, or an added token in its place.
struct Segment {
  std::size_t begin, end;  // bytes
  int id = -1;             // -1: text
};

// A stretch of text in which special tokens are not looked for.
struct PlainRange {
  std::size_t begin, end;
};

class AddedTokens {
 public:
  explicit AddedTokens(std::span<const AddedToken> tokens);

  // Cuts `text` (valid UTF-8) at its added tokens: the longest one at the leftmost place, as
  // Hugging Face does. A special token that touches a plain range stays text. `plain` is in order.
  std::vector<Segment> split(std::string_view text, std::span<const PlainRange> plain) const;

 private:
  // Token contents as a tree of bytes.
  struct Trie {
    std::array<bool, 256> first{};                           // bytes that begin a token
    std::unordered_map<std::uint64_t, std::uint32_t> child;  // node * 256 + byte
    std::vector<int> token = {-1};                           // by node: index into tokens_
    void insert(std::string_view content, int index);
    // The longest token at `pos`, -1 when none begins there.
    int longest(std::string_view text, std::size_t pos) const;
  };

  // `part` is one text segment of `text`; what is found is appended to `out`.
  void split_part(const Trie& trie, std::string_view text, Segment part,
                  std::span<const PlainRange> plain, std::vector<Segment>& out) const;

  std::vector<AddedToken> tokens_;
  Trie raw_, normalized_;
};

}  // namespace lacuna
