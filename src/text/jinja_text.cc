// SPDX-License-Identifier: Apache-2.0
#include "text/jinja_text.h"

#include <algorithm>

#include "text/jinja_unicode.h"

namespace lacuna::jinja {

Text::Text(std::string bytes, bool from_user) : bytes_(std::move(bytes)) {
  if (from_user) user_.assign(bytes_.size(), 1);
}

void Text::append(std::string_view bytes, bool from_user) {
  if (from_user && user_.empty()) user_.assign(bytes_.size(), 0);
  if (from_user || !user_.empty()) user_.append(bytes.size(), from_user ? 1 : 0);
  bytes_.append(bytes);
}

void Text::append(const Text& other, std::size_t begin, std::size_t end) {
  if (other.any_from_user() && user_.empty()) user_.assign(bytes_.size(), 0);
  if (other.any_from_user()) {
    user_.append(other.user_, begin, end - begin);
  } else if (!user_.empty()) {
    user_.append(end - begin, 0);
  }
  bytes_.append(other.bytes_, begin, end - begin);
}

Text Text::slice(std::size_t begin, std::size_t end) const {
  Text out;
  out.append(*this, begin, end);
  return out;
}

namespace {

// The length of the well-formed character at `at`, or 0.
std::size_t valid_length(std::string_view s, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(s[at + i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return 1;
  const std::size_t n = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || at + n > s.size()) return 0;
  for (std::size_t i = 1; i < n; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  if (lead == 0xE0 && byte(1) < 0xA0) return 0;
  if (lead == 0xED && byte(1) > 0x9F) return 0;
  if (lead == 0xF0 && byte(1) < 0x90) return 0;
  if (lead == 0xF4 && byte(1) > 0x8F) return 0;
  return n;
}

}  // namespace

std::size_t next_char(std::string_view s, std::size_t at) {
  return at + std::max<std::size_t>(valid_length(s, at), 1);
}

char32_t code_point(std::string_view s, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(s[at + i]); };
  const std::size_t n = valid_length(s, at);
  if (n == 0) return 0xDC00u + byte(0);
  if (n == 1) return byte(0);
  char32_t c = byte(0) & (0xFFu >> (n + 1));
  for (std::size_t i = 1; i < n; ++i) c = (c << 6) | (byte(i) & 0x3Fu);
  return c;
}

void append_utf8(std::string& out, char32_t c) {
  const auto put = [&](char32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (c < 0x80) return put(c);
  if (c < 0x800) {
    put(0xC0 | (c >> 6));
  } else if (c < 0x10000) {
    put(0xE0 | (c >> 12));
    put(0x80 | ((c >> 6) & 0x3F));
  } else {
    put(0xF0 | (c >> 18));
    put(0x80 | ((c >> 12) & 0x3F));
    put(0x80 | ((c >> 6) & 0x3F));
  }
  put(0x80 | (c & 0x3F));
}

std::size_t count_chars(std::string_view s) {
  std::size_t n = 0;
  for (std::size_t i = 0; i < s.size(); i = next_char(s, i)) ++n;
  return n;
}

std::vector<std::size_t> char_offsets(std::string_view s) {
  std::vector<std::size_t> out;
  for (std::size_t i = 0; i < s.size(); i = next_char(s, i)) out.push_back(i);
  out.push_back(s.size());
  return out;
}

namespace {

bool is_in(char32_t c, const std::string* chars) {
  if (chars == nullptr) return is_space(c);
  for (std::size_t i = 0; i < chars->size(); i = next_char(*chars, i)) {
    if (code_point(*chars, i) == c) return true;
  }
  return false;
}

std::size_t previous_char(std::string_view s, std::size_t at) {
  for (std::size_t back = std::min<std::size_t>(at, 4); back > 1; --back) {
    if (next_char(s, at - back) == at) return at - back;
  }
  return at - 1;
}

}  // namespace

Text strip(const Text& s, const std::string* chars, bool left, bool right) {
  const std::string& b = s.bytes();
  std::size_t begin = 0;
  std::size_t end = b.size();
  while (left && begin < end && is_in(code_point(b, begin), chars)) begin = next_char(b, begin);
  while (right && end > begin) {
    const std::size_t last = previous_char(b, end);
    if (last < begin || !is_in(code_point(b, last), chars)) break;
    end = last;
  }
  return s.slice(begin, end);
}

Text replace(const Text& s, std::string_view old, const Text& with, long long count) {
  Text out;
  const std::string& b = s.bytes();
  std::size_t at = 0;
  if (old.empty()) {
    // Python puts the new text before every character and at the end.
    while (count != 0) {
      out.append(with);
      --count;
      if (at == b.size()) return out;
      const std::size_t next = next_char(b, at);
      out.append(s, at, next);
      at = next;
    }
  }
  while (!old.empty() && count != 0) {
    const std::size_t found = b.find(old, at);
    if (found == std::string::npos) break;
    out.append(s, at, found);
    out.append(with);
    at = found + old.size();
    --count;
  }
  out.append(s, at, b.size());
  return out;
}

std::vector<Text> split(const Text& s, std::string_view separator, long long limit) {
  std::vector<Text> out;
  std::size_t at = 0;
  while (limit != 0) {
    const std::size_t found = s.bytes().find(separator, at);
    if (found == std::string::npos) break;
    out.push_back(s.slice(at, found));
    at = found + separator.size();
    --limit;
  }
  out.push_back(s.slice(at, s.size()));
  return out;
}

std::vector<Text> rsplit(const Text& s, std::string_view separator, long long limit) {
  std::vector<Text> out;
  std::size_t end = s.size();
  while (limit != 0 && end >= separator.size()) {
    const std::size_t found = s.bytes().rfind(separator, end - separator.size());
    if (found == std::string::npos) break;
    out.push_back(s.slice(found + separator.size(), end));
    end = found;
    --limit;
  }
  out.push_back(s.slice(0, end));
  std::reverse(out.begin(), out.end());
  return out;
}

std::vector<Text> split_space(const Text& s, long long limit) {
  std::vector<Text> out;
  const std::string& b = s.bytes();
  std::size_t at = 0;
  while (true) {
    while (at < b.size() && is_space(code_point(b, at))) at = next_char(b, at);
    if (at == b.size()) return out;
    std::size_t end = at;
    if (limit == 0) {
      out.push_back(s.slice(at, s.size()));
      return out;
    }
    while (end < b.size() && !is_space(code_point(b, end))) end = next_char(b, end);
    out.push_back(s.slice(at, end));
    at = end;
    --limit;
  }
}

std::vector<Text> rsplit_space(const Text& s, long long limit) {
  std::vector<Text> out;
  const std::string& b = s.bytes();
  const auto space_before = [&](std::size_t at) {
    return is_space(code_point(b, previous_char(b, at)));
  };
  std::size_t end = b.size();
  while (true) {
    while (end > 0 && space_before(end)) end = previous_char(b, end);
    if (end == 0) break;
    std::size_t begin = end;
    if (limit == 0) {
      out.push_back(s.slice(0, end));
      break;
    }
    while (begin > 0 && !space_before(begin)) begin = previous_char(b, begin);
    out.push_back(s.slice(begin, end));
    end = begin;
    --limit;
  }
  std::reverse(out.begin(), out.end());
  return out;
}

std::vector<Text> split_lines(const Text& s, bool keep_ends) {
  std::vector<Text> out;
  const std::string& b = s.bytes();
  std::size_t begin = 0;
  for (std::size_t at = 0; at < b.size();) {
    const char32_t c = code_point(b, at);
    std::size_t next = next_char(b, at);
    const bool ends_line = (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 ||
                           c == 0x2028 || c == 0x2029;
    if (ends_line) {
      if (c == '\r' && next < b.size() && b[next] == '\n') ++next;
      out.push_back(s.slice(begin, keep_ends ? next : at));
      begin = next;
    }
    at = next;
  }
  if (begin < b.size()) out.push_back(s.slice(begin, b.size()));
  return out;
}

}  // namespace lacuna::jinja
