// SPDX-License-Identifier: Apache-2.0
// A string of a template that remembers which of its bytes a user typed.
//
// The mark never changes the text: it only follows the bytes through slicing, joining and
// replacing, so that the rendered prompt can be cut into template text and user text. Strings
// compare by bytes.
//
// Positions are byte offsets into UTF-8. Invalid bytes count as one character each and are kept.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace lacuna::jinja {

class Text {
 public:
  Text() = default;
  explicit Text(std::string bytes, bool from_user = false);

  const std::string& bytes() const { return bytes_; }
  std::size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }
  bool from_user(std::size_t at) const { return !user_.empty() && user_[at] != 0; }
  bool any_from_user() const { return !user_.empty(); }

  void append(std::string_view bytes, bool from_user = false);
  void append(const Text& other) { append(other, 0, other.size()); }
  void append(const Text& other, std::size_t begin, std::size_t end);
  Text slice(std::size_t begin, std::size_t end) const;

  friend bool operator==(const Text& a, const Text& b) { return a.bytes_ == b.bytes_; }

 private:
  std::string bytes_;
  std::string user_;  // empty: no byte is from a user; else one byte, 0 or 1, per byte of bytes_
};

// The offset after the character that begins at `at`.
std::size_t next_char(std::string_view s, std::size_t at);
// The code point at `at`; an invalid byte gives 0xDC00 + byte, which no valid text contains.
char32_t code_point(std::string_view s, std::size_t at);
void append_utf8(std::string& out, char32_t c);
std::size_t count_chars(std::string_view s);
// The offset where every character begins, and the size at the end: n + 1 numbers.
std::vector<std::size_t> char_offsets(std::string_view s);

// What Python's str methods of these names do. An empty `chars` pointer means whitespace.
Text strip(const Text& s, const std::string* chars, bool left, bool right);
Text replace(const Text& s, std::string_view old, const Text& with, long long count);
std::vector<Text> split(const Text& s, std::string_view separator, long long limit);
std::vector<Text> split_space(const Text& s, long long limit);
std::vector<Text> rsplit(const Text& s, std::string_view separator, long long limit);
std::vector<Text> rsplit_space(const Text& s, long long limit);
std::vector<Text> split_lines(const Text& s, bool keep_ends);

}  // namespace lacuna::jinja
