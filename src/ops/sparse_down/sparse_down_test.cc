// SPDX-License-Identifier: Apache-2.0
// Skipping dead neurons changes no bit; every instruction set and both prefill ways agree.
#include "ops/sparse_down/sparse_down.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/support/kernels.h"
#include "tests/support/random_weights.h"

namespace lacuna {
namespace {

const MatrixSpec kSpecs[] = {  // [outputs, neurons]
    {128, 64, 4, 64, Dtype::kBf16},  {384, 192, 4, 64, Dtype::kBf16},
    {200, 128, 4, 32, Dtype::kBf16}, {256, 256, 4, 128, Dtype::kBf16},
    {128, 128, 8, 64, Dtype::kBf16}, {130, 128, 3, 64, Dtype::kBf16},
    {128, 192, 6, 64, Dtype::kF16},  {256, 128, 4, 64, Dtype::kF32},
    {384, 192, 0, 0, Dtype::kBf16},  {64, 100, 0, 0, Dtype::kF32},
    {8, 6, 0, 0, Dtype::kF32}};
const double kLiveShares[] = {0.0, 0.03, 0.3, 0.7, 1.0};

// Up-projection outputs of `tokens` tokens with about this share above 0, and the lists made of
// them.
struct Live {
  Live(Relu2Live* relu2, const NeuronMajor& w, int tokens, double share, bool round,
       bool keep_zeros, std::uint64_t seed)
      : index(static_cast<std::size_t>(tokens) * w.in),
        begin(static_cast<std::size_t>(tokens) * (w.groups + 1)),
        h(index.size()),
        sums(static_cast<std::size_t>(tokens) * w.groups),
        dense(index.size()) {
    Random random(seed);
    for (int t = 0; t < tokens; ++t) {
      std::vector<float> up(w.in);
      for (auto& v : up)
        v = std::fabs(random.uniform()) < share ? std::fabs(random.uniform())
                                                : -std::fabs(random.uniform());
      if (share == 1.0) {
        for (auto& v : up) v = std::fabs(v) + 0.1f;
      }
      const auto at = static_cast<std::ptrdiff_t>(t);
      counts.push_back(relu2(up.data(), w.in, w.group, round, keep_zeros, index.data() + at * w.in,
                             h.data() + at * w.in, begin.data() + at * (w.groups + 1),
                             sums.data() + at * w.groups));
      rows.push_back({index.data() + at * w.in, h.data() + at * w.in,
                      begin.data() + at * (w.groups + 1), sums.data() + at * w.groups});
      std::copy(up.begin(), up.end(), dense.begin() + at * w.in);
    }
  }
  std::vector<int> index, begin, counts;
  std::vector<float> h, sums;
  std::vector<float> dense;  // [tokens, in] ReLU² values
  std::vector<LiveRows> rows;
};

std::vector<float> run(SparseDown* kernel, const NeuronMajor& w, const LiveRows& live) {
  std::vector<float> y(w.width(), std::numeric_limits<float>::quiet_NaN());
  kernel(w, live, 0, w.width(), y.data());
  y.resize(w.out);
  return y;
}

// All outputs of all tokens, column block by column block.
template <class Column>
std::vector<float> by_column(const NeuronMajor& w, int tokens, const Column& column) {
  std::vector<float> y(static_cast<std::size_t>(tokens) * w.width());
  std::vector<float> part(static_cast<std::size_t>(tokens) * kColumnBlock);
  for (int s = 0; s * kColumnBlock < w.width(); ++s) {
    column(s * kColumnBlock, part.data());
    for (int t = 0; t < tokens; ++t) {
      std::copy_n(part.data() + static_cast<std::ptrdiff_t>(t) * kColumnBlock, kColumnBlock,
                  y.data() + static_cast<std::ptrdiff_t>(t) * w.width() + s * kColumnBlock);
    }
  }
  return y;
}

// Tokens in falling order, so that rows[] is looked at.
std::vector<float> run_dense(const Kernels& k, DenseDown* kernel, const NeuronMajor& w,
                             const Live& live, bool round) {
  const int tokens = static_cast<int>(live.rows.size());
  const int padded = w.group * w.groups;
  std::vector<float> x(static_cast<std::size_t>(tokens) * padded);
  std::vector<float> sums(static_cast<std::size_t>(tokens) * w.groups);
  std::vector<std::uint32_t> pairs(x.size() / 2);
  std::vector<int> rows(tokens);
  for (int t = 0; t < tokens; ++t) {
    const int row = rows[t] = tokens - 1 - t;
    k.prepare_activations(live.dense.data() + static_cast<std::ptrdiff_t>(t) * w.in, w.in, padded,
                          w.group, round, x.data() + static_cast<std::ptrdiff_t>(row) * padded,
                          pairs.data() + static_cast<std::ptrdiff_t>(row) * (padded / 2),
                          sums.data() + static_cast<std::ptrdiff_t>(row) * w.groups);
  }
  const Activations a{
      tokens, padded, w.group, w.groups, x.data(), round ? pairs.data() : nullptr, sums.data()};
  return by_column(w, tokens,
                   [&](int column, float* y) { kernel(w, a, rows.data(), tokens, column, y); });
}

TEST(SparseDown, SkippingDeadNeuronsChangesNoBit) {
  for_each_kernel([](const Kernels& k) {
    for (const MatrixSpec& spec : kSpecs) {
      const RandomMatrix m(spec, 17);
      const PackedNeurons packed(m.source);
      const PackedNeurons compact(m.source, has_compact_scales(m.source));
      for (const double share : kLiveShares) {
        for (const bool round : {false, true}) {
          SCOPED_TRACE(to_string(spec) + " live " + std::to_string(share) +
                       (round ? " bf16" : " f32"));
          const Live sparse(cpu::scalar::relu2_live, packed.w, 1, share, round, false, 23);
          const Live dense(cpu::scalar::relu2_live, packed.w, 1, share, round, true, 23);
          const std::vector<float> want = run(cpu::scalar::sparse_down, packed.w, dense.rows[0]);
          ASSERT_TRUE(same_bits(want, run(cpu::scalar::sparse_down, packed.w, sparse.rows[0])));
          ASSERT_TRUE(same_bits(want, run(k.sparse_down, packed.w, sparse.rows[0])));
          ASSERT_TRUE(same_bits(want, run(k.sparse_down, packed.w, dense.rows[0])));
          ASSERT_TRUE(same_bits(want, run(k.sparse_down, compact.w, sparse.rows[0])));
          if (round) {
            ASSERT_TRUE(same_bits(want, run(k.sparse_down_bf16, compact.w, sparse.rows[0])));
            ASSERT_TRUE(same_bits(want, run(k.sparse_down_bf16, compact.w, dense.rows[0])));
            ASSERT_TRUE(same_bits(want, run(k.sparse_down_bf16, packed.w, sparse.rows[0])));
            ASSERT_TRUE(same_bits(want, run(k.sparse_down_bf16, packed.w, dense.rows[0])));
          }
        }
      }
    }
  });
}

TEST(SparseDown, ATokenIsTheSameWithItsOwnRowsAndWithEveryRow) {
  for_each_kernel([](const Kernels& k) {
    for (const MatrixSpec& spec : kSpecs) {
      const RandomMatrix m(spec, 29);
      const PackedNeurons packed(m.source);
      const PackedNeurons compact(m.source, has_compact_scales(m.source));
      for (const int tokens : {1, 2, 3, 4, 9}) {
        for (const double share : kLiveShares) {
          for (const bool round : {false, true}) {
            SCOPED_TRACE(to_string(spec) + " live " + std::to_string(share) + " tokens " +
                         std::to_string(tokens) + (round ? " bf16" : " f32"));
            const Live live(cpu::scalar::relu2_live, packed.w, tokens, share, round, false, 31);
            const std::vector<float> all =
                run_dense(k, k.dense_down, tokens % 2 != 0 ? packed.w : compact.w, live, round);
            for (int t = 0; t < tokens; ++t) {
              const std::vector<float> want = run(cpu::scalar::sparse_down, packed.w, live.rows[t]);
              const auto at = static_cast<std::size_t>(t) * packed.w.width();
              const std::size_t n = packed.w.out;
              ASSERT_TRUE(same_bits(want, std::span(all).subspan(at, n))) << "token " << t;
            }
          }
        }
      }
    }
  });
}

TEST(SparseDown, ABandIsTheSameAsTheWhole) {
  for_each_kernel([](const Kernels& k) {
    const RandomMatrix m({384, 192, 4, 64, Dtype::kBf16}, 37);
    const PackedNeurons packed(m.source);
    const Live live(cpu::scalar::relu2_live, packed.w, 1, 0.1, true, false, 41);
    const std::vector<float> whole = run(k.sparse_down_bf16, packed.w, live.rows[0]);
    std::vector<float> part(384, 0.0f);
    k.sparse_down_bf16(packed.w, live.rows[0], 128, 256, part.data());
    EXPECT_TRUE(same_bits(std::span(whole).subspan(128, 128), std::span(part).subspan(128, 128)));
    EXPECT_EQ(part[127], 0.0f);
    EXPECT_EQ(part[256], 0.0f);
  });
}

// What the method is about: a dead neuron's row is not read, not even multiplied by zero.
TEST(SparseDown, ANanInADeadRowDoesNotReachTheOutput) {
  for_each_kernel([](const Kernels& k) {
    const RandomMatrix m({128, 128, 0, 0, Dtype::kF32}, 43);
    PackedNeurons packed(m.source);
    const Live live(cpu::scalar::relu2_live, packed.w, 1, 0.3, false, false, 47);
    std::vector<bool> alive(128, false);
    for (const LiveRows& r : live.rows) {
      for (int i = 0; i < r.group_begin[packed.w.groups]; ++i) alive[r.index[i]] = true;
    }
    const float nan = std::numeric_limits<float>::quiet_NaN();
    int dead = 0;
    for (int n = 0; n < 128; ++n) {
      if (alive[n]) continue;
      ++dead;
      for (std::size_t b = 0; b < packed.w.row_bytes(); b += 4)
        std::memcpy(packed.row(n) + b, &nan, 4);
    }
    ASSERT_GT(dead, 0);
    for (const float v : run(k.sparse_down, packed.w, live.rows[0])) ASSERT_FALSE(std::isnan(v));
  });
}

TEST(SparseDown, LiveListsAreTheSameAndHoldOnlyTrueZerosBack) {
  for_each_kernel([](const Kernels& k) {
    const float smallest = std::numeric_limits<float>::denorm_min();
    for (const int n : {1, 16, 63, 64, 65, 192}) {
      for (const bool round : {false, true}) {
        for (const bool keep : {false, true}) {
          Random random(53);
          std::vector<float> up = random.vector(n);
          up[0] = -0.0f;
          if (n > 20) up[1] = smallest, up[2] = 1e-15f, up[3] = 1e-25f, up[20] = 0.0f;
          const int groups = (n + 63) / 64;
          std::vector<int> ia(n), ib(n), ba(groups + 1), bb(groups + 1);
          std::vector<float> ha(n), hb(n), sa(groups), sb(groups), dense_a(up), dense_b(up);
          const int live_a = cpu::scalar::relu2_live(dense_a.data(), n, 64, round, keep, ia.data(),
                                                     ha.data(), ba.data(), sa.data());
          const int live_b = k.relu2_live(dense_b.data(), n, 64, round, keep, ib.data(), hb.data(),
                                          bb.data(), sb.data());
          ASSERT_EQ(live_a, live_b);
          ASSERT_EQ(ba, bb);
          ASSERT_TRUE(same_bits(sa, sb));
          ASSERT_TRUE(same_bits(dense_a, dense_b));
          const int count = ba[groups];
          ASSERT_TRUE(same_bits(std::span(ha).first(count), std::span(hb).first(count)));
          ASSERT_TRUE(std::equal(ia.begin(), ia.begin() + count, ib.begin()));
          ASSERT_EQ(count, keep ? n : live_a);
          for (int i = 0; i < count && !keep; ++i) ASSERT_GT(ha[i], 0.0f);
        }
      }
    }
  });
}

// Squares of what a half-precision float could not hold.
TEST(SparseDown, LargeActivationsStayFiniteAndExact) {
  for_each_kernel([](const Kernels& k) {
    const RandomMatrix m({128, 64, 4, 64, Dtype::kBf16}, 67);
    const PackedNeurons packed(m.source);
    std::vector<float> up(64, -1.0f), h(64), sums(1);
    std::vector<int> index(64), begin(2);
    up[3] = 300.0f, up[40] = 1000.0f;
    ASSERT_EQ(k.relu2_live(up.data(), 64, 64, false, false, index.data(), h.data(), begin.data(),
                           sums.data()),
              2);
    EXPECT_EQ(h[0], 90000.0f);
    EXPECT_EQ(h[1], 1000000.0f);
    const LiveRows live{index.data(), h.data(), begin.data(), sums.data()};
    const std::vector<float> y = run(k.sparse_down, packed.w, live);
    std::vector<float> weights(64);
    for (int d = 0; d < 128; ++d) {
      dequantize_row(m.source, d, weights.data());
      ASSERT_NEAR(y[d], 9e4 * weights[3] + 1e6 * weights[40], 2.0) << "1.1e6 times 0.1 times 2^-16";
    }
  });
}

TEST(SparseDownBound, DefinitionIsCloseToFloat64) {
  const FlushDenormals flush;
  for (const MatrixSpec& spec : kSpecs) {
    SCOPED_TRACE(to_string(spec));
    const RandomMatrix m(spec, 59);
    const PackedNeurons packed(m.source);
    const Live live(cpu::scalar::relu2_live, packed.w, 1, 0.3, false, false, 61);
    const LiveRows& r = live.rows[0];
    const std::vector<float> y = run(cpu::scalar::sparse_down, packed.w, r);
    std::vector<float> weights(spec.in);
    for (int d = 0; d < spec.out; ++d) {
      dequantize_row(m.source, d, weights.data());
      double want = 0;
      double sizes = 0;
      for (int i = 0; i < r.group_begin[packed.w.groups]; ++i) {
        want += static_cast<double>(r.h[i]) * weights[r.index[i]];
        sizes += std::fabs(static_cast<double>(r.h[i]));
      }
      // As for the projection: the largest term is 2 · (16 + levels) scales of at most 0.1 /
      // levels.
      const double levels = (1 << spec.bits) - 1;
      const double largest = spec.bits > 0 ? 2.0 * (17.0 + levels) * 0.1 / levels : 1.0;
      ASSERT_NEAR(y[d], want, spec.in * 0x1p-24 * sizes * largest) << "output " << d;
    }
  }
}

}  // namespace
}  // namespace lacuna
