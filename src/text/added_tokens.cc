// SPDX-License-Identifier: Apache-2.0
#include "text/added_tokens.h"

#include <algorithm>

#include "text/code_point_set.h"
#include "text/utf8.h"

namespace lacuna {
namespace {

const CodePointSet& spaces() {
  static const CodePointSet set{space_ranges()};
  return set;
}
const CodePointSet& word_letters() {
  static const CodePointSet set{word_ranges()};
  return set;
}

// Where the character that ends at `end` begins.
std::size_t previous_char(std::string_view text, std::size_t end) {
  std::size_t begin = end - 1;
  while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) --begin;
  return begin;
}

bool stands_alone(std::string_view text, std::size_t begin, std::size_t end) {
  const bool word_before =
      begin > 0 && word_letters().contains(utf8_at(text, previous_char(text, begin)).code);
  const bool word_after = end < text.size() && word_letters().contains(utf8_at(text, end).code);
  return !word_before && !word_after;
}

std::size_t space_begin(std::string_view text, std::size_t end, std::size_t stop) {
  while (end > stop) {
    const std::size_t begin = previous_char(text, end);
    if (!spaces().contains(utf8_at(text, begin).code)) break;
    end = begin;
  }
  return std::max(end, stop);
}

std::size_t space_end(std::string_view text, std::size_t begin) {
  while (begin < text.size()) {
    const Utf8Char c = utf8_at(text, begin);
    if (!spaces().contains(c.code)) break;
    begin += c.length;
  }
  return begin;
}

// How a match lies to the plain ranges.
enum class Overlap { kNone, kPartly, kInside };

Overlap overlap(std::span<const PlainRange> plain, std::size_t begin, std::size_t end) {
  const auto range = std::partition_point(plain.begin(), plain.end(),
                                          [&](const PlainRange& r) { return r.end <= begin; });
  if (range == plain.end() || range->begin >= end) return Overlap::kNone;
  return range->begin <= begin && end <= range->end ? Overlap::kInside : Overlap::kPartly;
}

}  // namespace

void AddedTokens::Trie::insert(std::string_view content, int index) {
  if (content.empty()) return;
  first[static_cast<unsigned char>(content[0])] = true;
  std::uint32_t node = 0;
  for (char c : content) {
    const std::uint64_t key = std::uint64_t{node} << 8 | static_cast<unsigned char>(c);
    const auto [at, is_new] = child.try_emplace(key, static_cast<std::uint32_t>(token.size()));
    if (is_new) token.push_back(-1);
    node = at->second;
  }
  token[node] = index;
}

int AddedTokens::Trie::longest(std::string_view text, std::size_t pos) const {
  int found = -1;
  std::uint32_t node = 0;
  for (; pos < text.size(); ++pos) {
    const auto at = child.find(std::uint64_t{node} << 8 | static_cast<unsigned char>(text[pos]));
    if (at == child.end()) break;
    node = at->second;
    if (token[node] >= 0) found = token[node];
  }
  return found;
}

AddedTokens::AddedTokens(std::span<const AddedToken> tokens)
    : tokens_(tokens.begin(), tokens.end()) {
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    (tokens_[i].normalized ? normalized_ : raw_).insert(tokens_[i].content, static_cast<int>(i));
  }
}

std::vector<Segment> AddedTokens::split(std::string_view text,
                                        std::span<const PlainRange> plain) const {
  std::vector<Segment> first_pass, result;
  if (!text.empty()) split_part(raw_, text, {0, text.size(), -1}, plain, first_pass);
  for (const Segment& s : first_pass) {
    if (s.id >= 0) {
      result.push_back(s);
    } else {
      split_part(normalized_, text, s, plain, result);
    }
  }
  return result;
}

void AddedTokens::split_part(const Trie& trie, std::string_view text, Segment part,
                             std::span<const PlainRange> plain, std::vector<Segment>& out) const {
  // Words and spaces beyond the part do not count: an added token has been cut out there.
  const std::string_view view = text.substr(part.begin, part.end - part.begin);
  std::size_t done = 0;
  for (std::size_t pos = 0; pos < view.size();) {
    const int index =
        trie.first[static_cast<unsigned char>(view[pos])] ? trie.longest(view, pos) : -1;
    if (index < 0) {
      ++pos;
      continue;
    }
    const AddedToken& token = tokens_[index];
    std::size_t begin = pos, end = pos + token.content.size();
    const Overlap at =
        token.special ? overlap(plain, part.begin + begin, part.begin + end) : Overlap::kNone;
    // A token that reaches over a border of a plain range must not hide one that begins inside it.
    pos = at == Overlap::kPartly ? pos + 1 : end;
    if (at != Overlap::kNone) continue;
    if (token.single_word && !stands_alone(view, begin, end)) continue;
    if (token.lstrip) begin = space_begin(view, begin, done);
    if (token.rstrip) end = space_end(view, end);
    if (done < begin) out.push_back({part.begin + done, part.begin + begin, -1});
    out.push_back({part.begin + begin, part.begin + end, token.id});
    done = end;
  }
  if (done < view.size()) out.push_back({part.begin + done, part.end, -1});
}

}  // namespace lacuna
