// SPDX-License-Identifier: Apache-2.0
#include "ops/index_topk/index_topk.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "ops/index_topk/top_k.h"
#include "tensor/dtype.h"
#include "tests/support/kernels.h"
#include "tests/support/random_weights.h"

namespace lacuna {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

float rounded(float v) { return bf16_to_f32(f32_to_bf16(v)); }

// Keys and queries that both modes hold exactly; what follows the last key in its block is NaN.
struct Case {
  Case(int keys, int queries, int index_heads, int head_dim, std::uint64_t seed)
      : count(keys), rows(queries), heads(index_heads), dim(head_dim), random(seed) {
    const auto size = static_cast<std::size_t>((keys + 15) / 16 * 16) * dim;
    keys32.assign(size, kNan);
    keys16.assign(size, 0x7fc0);
    for (int j = 0; j < keys; ++j) {
      for (int d = 0; d < dim; ++d) {
        const float v = rounded(random.uniform());
        keys32[key_index(false, dim, j, d)] = v;
        keys16[key_index(true, dim, j, d)] = f32_to_bf16(v);
      }
    }
    q = random.vector(static_cast<std::size_t>(rows) * heads * dim);
    for (float& v : q) v = rounded(v);
    w = random.vector(static_cast<std::size_t>(rows) * heads);
  }
  std::vector<float> scores(IndexScores* kernel, bool bf16) const {
    const std::ptrdiff_t stride = count + 3;
    std::vector<float> out(static_cast<std::size_t>(rows * stride), -9.0f);
    const void* keys = bf16 ? static_cast<const void*>(keys16.data()) : keys32.data();
    kernel({keys, bf16, dim}, count, {q.data(), w.data(), rows, heads, 0.05f}, out.data(), stride);
    return out;
  }

  int count, rows, heads, dim;
  Random random;
  std::vector<float> keys32, q, w;
  std::vector<std::uint16_t> keys16;
};

TEST(IndexScores, EveryInstructionSetGivesTheDefinitionsBits) {
  struct Shape {
    int keys, queries, heads, dim;
  };
  const FlushDenormals flush;
  for (const Shape s : {Shape{1, 1, 1, 16},
                        {15, 2, 3, 16},
                        {16, 1, 8, 32},
                        {17, 3, 9, 48},
                        {33, 2, 15, 64},
                        {100, 2, 32, 128},
                        {48, 1, 64, 128},
                        {40, 1, 70, 128}}) {
    SCOPED_TRACE(
        fmt::format("{} keys, {} queries, {} heads of {}", s.keys, s.queries, s.heads, s.dim));
    const Case c(s.keys, s.queries, s.heads, s.dim, 21);
    const std::vector<float> want = c.scores(cpu::scalar::index_scores, false);
    ASSERT_TRUE(same_bits(want, c.scores(cpu::scalar::index_scores, true))) << "bf16 is f32";
    for_each_kernel([&](const Kernels& k) {
      ASSERT_TRUE(same_bits(want, c.scores(k.index_scores, false)));
      ASSERT_TRUE(same_bits(want, c.scores(k.index_scores, true)));
    });
  }
}

TEST(IndexScores, NoHeadThatFiresGivesPlusZeroAndNanStays) {
  for (const Isa isa : usable_isas()) {
    Case c(20, 1, 2, 16, 5);
    for (int d = 0; d < 16; ++d) {
      c.q[static_cast<std::size_t>(d)] = c.q[static_cast<std::size_t>(16 + d)] = 1.0f;
      for (int j = 0; j < 20; ++j) {
        const float v = j == 3 ? kNan : j == 7 ? 1.0f : -1.0f;
        c.keys32[key_index(false, 16, j, d)] = v;
        c.keys16[key_index(true, 16, j, d)] = f32_to_bf16(v);
      }
    }
    c.w = {-1.0f, -0.5f};
    for (const bool bf16 : {false, true}) {
      const std::vector<float> s = c.scores(kernels_for(isa).index_scores, bf16);
      EXPECT_TRUE(std::isnan(s[3])) << isa_name(isa);
      EXPECT_LT(s[7], 0.0f);
      EXPECT_EQ(s[8], 0.0f);
      EXPECT_FALSE(std::signbit(s[8])) << isa_name(isa);
    }
  }
}

// A term w · q · k passes through dim + heads + 1 roundings at most.
TEST(IndexScoresBound, DefinitionIsCloseToFloat64) {
  const Case c(70, 2, 32, 128, 31);
  const std::vector<float> got = c.scores(cpu::scalar::index_scores, false);
  for (int t = 0; t < c.rows; ++t) {
    for (int j = 0; j < c.count; ++j) {
      double want = 0, sizes = 0;
      for (int h = 0; h < c.heads; ++h) {
        double dot = 0, size = 0;
        for (int d = 0; d < c.dim; ++d) {
          const double term =
              static_cast<double>(c.q[static_cast<std::size_t>((t * c.heads + h) * c.dim + d)]) *
              c.keys32[key_index(false, c.dim, j, d)];
          dot += term;
          size += std::fabs(term);
        }
        const double w = c.w[static_cast<std::size_t>(t * c.heads + h)];
        want += w * std::max(0.0, dot);
        sizes += std::fabs(w) * size;
      }
      ASSERT_NEAR(got[static_cast<std::size_t>(t * (c.count + 3) + j)], 0.05f * want,
                  0.05f * sizes * (c.dim + c.heads + 2) * 0x1p-24);
    }
  }
}

TEST(KeepAbove, EveryInstructionSetKeepsTheSame) {
  for_each_kernel([](const Kernels& k) {
    Random random(41);
    for (const int n : {0, 1, 15, 16, 17, 200}) {
      std::vector<float> scores = random.vector(n);
      for (int i = 0; i < n; ++i) {
        const float edges[] = {0.0f, -0.0f, kInf, -kInf, kNan, 1e-40f};
        if (random.below(3) == 0) scores[static_cast<std::size_t>(i)] = edges[random.below(6)];
      }
      for (const float limit : {-kInf, -0.5f, -0.0f, 0.0f, 0.9f, kInf}) {
        std::vector<float> a(n + 16), b(n + 16);
        std::vector<std::int32_t> i(n + 16), j(n + 16);
        const int want = cpu::scalar::keep_above(scores.data(), n, 1000, limit, a.data(), i.data());
        const int got = k.keep_above(scores.data(), n, 1000, limit, b.data(), j.data());
        ASSERT_EQ(want, got) << "above " << limit;
        ASSERT_TRUE(same_bits(std::span(a).first(want), std::span(b).first(want)));
        ASSERT_TRUE(std::equal(i.begin(), i.begin() + want, j.begin()));
      }
    }
  });
}

// The best k by a sort over everything.
std::vector<std::int32_t> best_of(const std::vector<float>& scores, int k) {
  const auto value = [&](std::int32_t j) {
    const float s = scores[static_cast<std::size_t>(j)];
    if (std::isnan(s)) return -kInf;
    return std::fabs(s) < std::numeric_limits<float>::min() ? 0.0f : s;
  };
  std::vector<std::int32_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::int32_t a, std::int32_t b) { return value(a) > value(b); });
  order.resize(std::min(order.size(), static_cast<std::size_t>(k)));
  std::sort(order.begin(), order.end());
  return order;
}

std::vector<std::int32_t> blocked(TopK& top, const std::vector<float>& scores, int k, int block) {
  const int n = static_cast<int>(scores.size());
  for (int at = 0; at < n; at += block) top.push(scores.data() + at, std::min(block, n - at), at);
  std::vector<std::int32_t> picks(static_cast<std::size_t>(k), -1);
  picks.resize(static_cast<std::size_t>(top.finish(picks.data())));
  return picks;
}

// Few different values, none above the zeros, so that the cut falls among equals; or many. Every
// edge is among them.
std::vector<float> some_scores(int n, bool ties, std::uint64_t seed) {
  Random random(seed);
  std::vector<float> scores = random.vector(n);
  const float edges[] = {0.0f, -0.0f, kInf, -kInf, kNan, 1e-40f, -1e-40f};
  for (float& s : scores) {
    if (ties) s = static_cast<float>(random.below(4) - 3);
    if (random.below(4) == 0) s = edges[random.below(7)];
  }
  return scores;
}

TEST(TopK, IsExactWhateverTheBlocksAndTheInstructionSet) {
  for (const Isa isa : usable_isas()) {
    for (const int k : {1, 3, 64, 500}) {
      TopK top(k, kernels_for(isa).keep_above);
      for (const int n : {1, 2, 63, 64, 65, 400, 3000}) {
        for (const bool ties : {false, true}) {
          const std::vector<float> scores = some_scores(n, ties, static_cast<std::uint64_t>(n + k));
          const std::vector<std::int32_t> want = best_of(scores, k);
          for (const int block : {1, 2, 3, 8, 300, 4096}) {
            ASSERT_EQ(want, blocked(top, scores, k, block))
                << isa_name(isa) << " best " << k << " of " << n << " in blocks of " << block;
            const FlushDenormals flush;
            ASSERT_EQ(want, blocked(top, scores, k, block)) << "with denormals flushed";
          }
        }
      }
    }
  }
}

TEST(TopK, RisingAndFallingScoresAreTheFiltersExtremes) {
  const int k = 16, n = 2000;
  TopK top(k, kernels_for(usable_isas().back()).keep_above);
  std::vector<float> rising(n), falling(n), equal(n, -2.5f);
  for (int i = 0; i < n; ++i) {
    rising[i] = static_cast<float>(i - 1000);
    falling[i] = -rising[i];
  }
  for (const auto& scores : {rising, falling, equal})
    EXPECT_EQ(best_of(scores, k), blocked(top, scores, k, 100));
}

TEST(TopK, FewerThanKKeysAreAllPickedAndNothingIsPickedOfNothing) {
  TopK top(8, cpu::scalar::keep_above);
  EXPECT_EQ(blocked(top, {kNan, -kInf, 0.0f}, 8, 2), (std::vector<std::int32_t>{0, 1, 2}));
  EXPECT_EQ(blocked(top, {}, 8, 2), std::vector<std::int32_t>{});
}

}  // namespace
}  // namespace lacuna
