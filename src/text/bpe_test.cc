// SPDX-License-Identifier: Apache-2.0
#include "text/bpe.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace lacuna {
namespace {

// Token 0..255 are the bytes.
std::array<int, 256> plain_bytes() {
  std::array<int, 256> ids;
  for (int b = 0; b < 256; ++b) ids[b] = b;
  return ids;
}

std::vector<int> encode(const Bpe& bpe, std::string_view piece) {
  BpeScratch scratch;
  std::vector<int> ids;
  bpe.encode(piece, scratch, ids);
  return ids;
}

// The textbook loop: again and again the leftmost pair of the lowest rank.
std::vector<int> by_hand(const std::vector<MergeRule>& rules, std::string_view piece) {
  std::map<std::pair<int, int>, std::size_t> rank;
  for (std::size_t i = 0; i < rules.size(); ++i) rank[{rules[i].left, rules[i].right}] = i;
  std::vector<int> ids;
  for (char c : piece) ids.push_back(static_cast<unsigned char>(c));
  for (;;) {
    std::size_t best = rules.size(), at = 0;
    for (std::size_t i = 0; i + 1 < ids.size(); ++i) {
      const auto found = rank.find({ids[i], ids[i + 1]});
      if (found != rank.end() && found->second < best) best = found->second, at = i;
    }
    if (best == rules.size()) return ids;
    ids[at] = rules[best].result;
    ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  }
}

TEST(Bpe, AgreesWithTheTextbookLoop) {
  std::mt19937 rng(3);
  for (int round = 0; round < 300; ++round) {
    std::vector<MergeRule> rules;
    std::vector<int> tokens = {'a', 'b', 'c'};
    for (int r = 0; r < 20; ++r) {
      const int left = tokens[rng() % tokens.size()], right = tokens[rng() % tokens.size()];
      rules.push_back({left, right, 256 + r});
      tokens.push_back(256 + r);
    }
    const Bpe bpe(plain_bytes(), rules, {});
    std::string piece;
    for (int i = static_cast<int>(rng() % 60); i >= 0; --i) piece += "abc"[rng() % 3];
    // A later rule for the same pair replaces an earlier one, in both.
    ASSERT_EQ(encode(bpe, piece), by_hand(rules, piece)) << piece;
  }
}

TEST(Bpe, LowestRankThenLeftmost) {
  const std::vector<MergeRule> rules = {
      {'b', 'c', 300}, {'a', 'b', 301}, {'a', 300, 302}, {'a', 'a', 303}};
  const Bpe bpe(plain_bytes(), rules, {});
  EXPECT_EQ(encode(bpe, "abc"), (std::vector<int>{302}));
  EXPECT_EQ(encode(bpe, "ab"), (std::vector<int>{301}));
  EXPECT_EQ(encode(bpe, "aaa"), (std::vector<int>{303, 'a'}));
  EXPECT_EQ(encode(bpe, "x"), (std::vector<int>{'x'}));
  EXPECT_EQ(encode(bpe, ""), (std::vector<int>{}));
}

TEST(Bpe, OutdatedCandidatesAreDropped) {
  // "bc" takes the b that "ab" wanted.
  const std::vector<MergeRule> rules = {{'b', 'c', 300}, {'a', 'b', 301}, {'c', 'd', 302}};
  const Bpe bpe(plain_bytes(), rules, {});
  EXPECT_EQ(encode(bpe, "abcd"), (std::vector<int>{'a', 300, 'd'}));
}

TEST(Bpe, WholePiecesGoFirstWhenAsked) {
  const std::vector<MergeRule> rules = {{'a', 'b', 300}};
  const Bpe bpe(plain_bytes(), rules, {{"abc", 400}, {"a", 'a'}});
  EXPECT_EQ(encode(bpe, "abc"), (std::vector<int>{400}));
  EXPECT_EQ(encode(bpe, "abcd"), (std::vector<int>{300, 'c', 'd'}));
}

TEST(Bpe, TheCacheChangesNothing) {
  const std::vector<MergeRule> rules = {{'a', 'b', 300}, {300, 300, 301}};
  const Bpe bpe(plain_bytes(), rules, {});
  BpeScratch scratch;
  std::vector<int> ids;
  for (int i = 0; i < 3; ++i) {
    for (std::string_view piece : {"abab", "ab", "abab", "ba"}) bpe.encode(piece, scratch, ids);
  }
  std::vector<int> want;
  for (int i = 0; i < 3; ++i) want.insert(want.end(), {301, 300, 301, 'b', 'a'});
  EXPECT_EQ(ids, want);
}

TEST(Bpe, AMillionBytesInOnePiece) {
  std::vector<MergeRule> rules = {{'a', 'a', 256}};
  for (int id = 256; id < 266; ++id) rules.push_back({id, id, id + 1});
  const Bpe bpe(plain_bytes(), rules, {});
  const std::vector<int> ids = encode(bpe, std::string(1 << 20, 'a'));
  EXPECT_EQ(ids, std::vector<int>(512, 266));  // 2^11 bytes a token
}

}  // namespace
}  // namespace lacuna
