// SPDX-License-Identifier: Apache-2.0
// Byte-level BPE: joins the bytes of a piece into tokens, best merge first.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "lacuna/result.h"

namespace lacuna {

// A rule "left right makes result"; its rank is its place in the list, lower ones go first.
struct MergeRule {
  int left, right, result;  // token ids
};

// Working memory of one encode.
struct BpeScratch {
  struct Symbol {
    int id;
    int previous, next;  // neighbours, -1 at an end
    bool alive;
  };
  struct Candidate {
    int rank, position;
  };
  struct Cached {
    std::uint32_t begin, count;  // in cached_ids
  };
  std::vector<Symbol> symbols;
  std::vector<Candidate> heap;
  std::unordered_map<std::string_view, Cached> cache;  // keys are views of the text being encoded
  std::vector<int> cached_ids;
};

class Bpe {
 public:
  // `byte_ids` has the token of every byte that UTF-8 text can hold (-1 for the others). When a
  // pair has several rules the last one counts. `whole_pieces`, when not empty, has the tokens (as
  // bytes) that a piece equal to one of them becomes without merging: "ignore_merges".
  Bpe(const std::array<int, 256>& byte_ids, std::span<const MergeRule> rules,
      std::unordered_map<std::string, int> whole_pieces);

  // Appends the tokens of one piece. O(n log n) in its bytes. Thread-safe with one scratch a
  // thread; `piece` must live as long as the scratch does.
  void encode(std::string_view piece, BpeScratch& scratch, std::vector<int>& ids) const;

 private:
  struct Rule {
    std::uint64_t pair;  // kNoPair marks an empty slot
    int rank, result;
  };

  const Rule* find(int left, int right) const;
  void merge(std::string_view piece, BpeScratch& scratch, std::vector<int>& ids) const;
  void offer(BpeScratch& scratch, int position) const;

  std::array<int, 256> byte_ids_;
  std::vector<Rule> rules_;  // open addressing, a power of two and at most half full
  std::unordered_map<std::string, int> whole_pieces_;
};

}  // namespace lacuna
