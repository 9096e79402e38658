// SPDX-License-Identifier: Apache-2.0
#include "text/bpe.h"

#include <algorithm>
#include <bit>

#include "base/check.h"

namespace lacuna {
namespace {

constexpr std::uint64_t kNoPair = ~std::uint64_t{0};
constexpr std::size_t kMaxCachedBytes = 64;  // longer pieces seldom come again
constexpr std::size_t kMaxCachedPieces = 1 << 16;

std::uint64_t pair_key(int left, int right) {
  return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
}

std::size_t slot_of(std::uint64_t pair, std::size_t slots) {
  const std::uint64_t mixed = pair * 0x9E3779B97F4A7C15u;
  return static_cast<std::size_t>(mixed ^ mixed >> 32) & (slots - 1);
}

// Heap order: the lowest rank on top, the leftmost of equals.
bool comes_later(const BpeScratch::Candidate& a, const BpeScratch::Candidate& b) {
  return a.rank != b.rank ? a.rank > b.rank : a.position > b.position;
}

}  // namespace

Bpe::Bpe(const std::array<int, 256>& byte_ids, std::span<const MergeRule> rules,
         std::unordered_map<std::string, int> whole_pieces)
    : byte_ids_(byte_ids), whole_pieces_(std::move(whole_pieces)) {
  rules_.assign(std::bit_ceil(2 * rules.size() + 2), Rule{kNoPair, 0, 0});
  for (std::size_t rank = 0; rank < rules.size(); ++rank) {
    const std::uint64_t pair = pair_key(rules[rank].left, rules[rank].right);
    std::size_t slot = slot_of(pair, rules_.size());
    while (rules_[slot].pair != kNoPair && rules_[slot].pair != pair) {
      slot = (slot + 1) & (rules_.size() - 1);
    }
    rules_[slot] = {pair, static_cast<int>(rank), rules[rank].result};
  }
}

const Bpe::Rule* Bpe::find(int left, int right) const {
  const std::uint64_t pair = pair_key(left, right);
  for (std::size_t slot = slot_of(pair, rules_.size()); rules_[slot].pair != kNoPair;
       slot = (slot + 1) & (rules_.size() - 1)) {
    if (rules_[slot].pair == pair) return &rules_[slot];
  }
  return nullptr;
}

// Puts the merge of the symbol at `position` and the one after it on the heap, if there is a rule.
void Bpe::offer(BpeScratch& scratch, int position) const {
  const BpeScratch::Symbol& left = scratch.symbols[position];
  if (left.next < 0) return;
  const Rule* rule = find(left.id, scratch.symbols[left.next].id);
  if (rule == nullptr) return;
  scratch.heap.push_back({rule->rank, position});
  std::push_heap(scratch.heap.begin(), scratch.heap.end(), comes_later);
}

void Bpe::merge(std::string_view piece, BpeScratch& scratch, std::vector<int>& ids) const {
  std::vector<BpeScratch::Symbol>& symbols = scratch.symbols;
  const int n = static_cast<int>(piece.size());
  symbols.clear();
  scratch.heap.clear();
  for (int i = 0; i < n; ++i) {
    const int id = byte_ids_[static_cast<unsigned char>(piece[i])];
    LAC_CHECK(id >= 0, "byte {} of a piece is not UTF-8", i);
    symbols.push_back({id, i - 1, i + 1 < n ? i + 1 : -1, true});
  }
  for (int i = 0; i + 1 < n; ++i) offer(scratch, i);

  while (!scratch.heap.empty()) {
    std::pop_heap(scratch.heap.begin(), scratch.heap.end(), comes_later);
    const BpeScratch::Candidate top = scratch.heap.back();
    scratch.heap.pop_back();
    BpeScratch::Symbol& left = symbols[top.position];
    if (!left.alive || left.next < 0) continue;
    BpeScratch::Symbol& right = symbols[left.next];
    // A candidate is stale when one of its two symbols has grown since.
    const Rule* rule = find(left.id, right.id);
    if (rule == nullptr || rule->rank != top.rank) continue;
    left.id = rule->result;
    left.next = right.next;
    right.alive = false;
    if (left.next >= 0) symbols[left.next].previous = top.position;
    if (left.previous >= 0) offer(scratch, left.previous);
    offer(scratch, top.position);
  }
  for (int i = 0; i >= 0 && i < n; i = symbols[i].next) ids.push_back(symbols[i].id);
}

void Bpe::encode(std::string_view piece, BpeScratch& scratch, std::vector<int>& ids) const {
  if (!whole_pieces_.empty()) {
    const auto whole = whole_pieces_.find(std::string(piece));
    if (whole != whole_pieces_.end()) return ids.push_back(whole->second);
  }
  if (piece.size() > kMaxCachedBytes) return merge(piece, scratch, ids);
  const auto hit = scratch.cache.find(piece);
  if (hit != scratch.cache.end()) {
    const auto begin = scratch.cached_ids.begin() + hit->second.begin;
    ids.insert(ids.end(), begin, begin + hit->second.count);
    return;
  }
  const std::size_t before = ids.size();
  merge(piece, scratch, ids);
  if (scratch.cache.size() == kMaxCachedPieces) return;
  const auto count = static_cast<std::uint32_t>(ids.size() - before);
  scratch.cache.emplace(
      piece, BpeScratch::Cached{static_cast<std::uint32_t>(scratch.cached_ids.size()), count});
  scratch.cached_ids.insert(scratch.cached_ids.end(), ids.end() - count, ids.end());
}

}  // namespace lacuna
