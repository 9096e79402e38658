// SPDX-License-Identifier: Apache-2.0
#include "ops/index_topk/top_k.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <iterator>
#include <utility>

#include "base/check.h"

namespace lacuna {
namespace {

constexpr int kPiece = 256;  // scores that go through the filter at once

// A number that is larger for the better key: the score's bits in an order that compares as
// integers, then the complement of the key's number.
std::uint64_t rank_of(float score, std::int32_t number) {
  auto bits = std::bit_cast<std::uint32_t>(score);
  const std::uint32_t size = bits & 0x7fffffffu;
  if (size > 0x7f800000u) bits = 0xff800000u;  // NaN
  if (size < 0x00800000u) bits = 0;
  const std::uint32_t rising = bits >> 31 ? ~bits : bits | 0x80000000u;
  return std::uint64_t{rising} << 32 | ~static_cast<std::uint32_t>(number);
}

std::int32_t number_of(std::uint64_t rank) {
  return static_cast<std::int32_t>(~static_cast<std::uint32_t>(rank));
}

float score_of(std::uint64_t rank) {
  const auto rising = static_cast<std::uint32_t>(rank >> 32);
  return std::bit_cast<float>(rising >> 31 ? rising & 0x7fffffffu : ~rising);
}

// The k-th largest of n different values, which lose their order; `room` holds n more. A partition
// without branches, since they would fall at random.
std::uint64_t kth_largest(std::uint64_t* values, int n, int k, std::uint64_t* room) {
  while (n > 32) {
    std::uint64_t some[] = {values[0], values[n / 4], values[n / 2], values[n / 4 * 3],
                            values[n - 1]};
    std::sort(std::begin(some), std::end(some));
    const std::uint64_t pivot = some[2];
    int above = 0, below = 0;
    for (int i = 0; i < n; ++i) {
      const std::uint64_t v = values[i];
      values[above] = room[below] = v;
      above += v > pivot;
      below += v < pivot;
    }
    if (k == above + 1) return pivot;
    if (k <= above) {
      n = above;
    } else {
      k -= above + 1;
      n = below;
      std::swap(values, room);
    }
  }
  std::nth_element(values, values + (k - 1), values + n, std::greater<>());
  return values[k - 1];
}

}  // namespace

TopK::TopK(int k, KeepAbove* filter)
    : k_(k),
      filter_(filter),
      list_(static_cast<std::size_t>(k) * 2 + kPiece),
      order_(2 * list_.size()),
      kept_(kPiece + 16),
      number_(kPiece + 16) {
  LAC_CHECK(k > 0, "the best {} of nothing", k);
}

void TopK::add(float score, std::int32_t number) {
  list_[static_cast<std::size_t>(size_++)] = rank_of(score, number);
}

void TopK::push(const float* scores, int count, int first) {
  for (int at = 0; at < count; at += kPiece) {
    if (size_ + kPiece > static_cast<int>(list_.size())) keep_best();
    const int n = std::min(kPiece, count - at);
    if (!limited_) {
      for (int i = 0; i < n; ++i) add(scores[at + i], first + at + i);
      continue;
    }
    const int kept = filter_(scores + at, n, first + at, limit_, kept_.data(), number_.data());
    for (int i = 0; i < kept; ++i)
      add(kept_[static_cast<std::size_t>(i)], number_[static_cast<std::size_t>(i)]);
  }
}

// Ranks are unique, so exactly k_ are at least as good as the K-th best.
void TopK::keep_best() {
  if (size_ <= k_) return;
  std::copy_n(list_.begin(), size_, order_.begin());
  const std::uint64_t least = kth_largest(order_.data(), size_, k_, order_.data() + list_.size());
  int n = 0;
  for (int i = 0; i < size_; ++i) {
    const std::uint64_t rank = list_[static_cast<std::size_t>(i)];
    list_[static_cast<std::size_t>(n)] = rank;
    n += rank >= least;
  }
  size_ = n;
  limit_ = score_of(least);
  limited_ = true;
}

int TopK::finish(std::int32_t* picks) {
  keep_best();
  const int n = size_;
  for (int i = 0; i < n; ++i) picks[i] = number_of(list_[static_cast<std::size_t>(i)]);
  size_ = 0;
  limited_ = false;
  return n;
}

}  // namespace lacuna
