// SPDX-License-Identifier: Apache-2.0
// Every instruction set gives the definition's bits; a row's bits do not depend on its neighbours;
// the definition itself is close to a float64 sum.
#include "ops/linear/linear.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tensor/packed_access.h"
#include "tests/support/kernels.h"
#include "tests/support/random_weights.h"

namespace lacuna {
namespace {

// One list of cases for every kernel: all widths MLX writes, odd edges of each dimension.
const MatrixSpec kSpecs[] = {{64, 64, 4, 64, Dtype::kBf16},   {100, 192, 4, 64, Dtype::kBf16},
                             {130, 384, 4, 64, Dtype::kBf16}, {8, 128, 4, 32, Dtype::kBf16},
                             {70, 256, 4, 128, Dtype::kBf16}, {65, 128, 2, 64, Dtype::kBf16},
                             {64, 128, 3, 64, Dtype::kBf16},  {64, 128, 5, 64, Dtype::kBf16},
                             {33, 192, 6, 32, Dtype::kBf16},  {129, 256, 8, 64, Dtype::kBf16},
                             {64, 256, 8, 128, Dtype::kF16},  {64, 128, 4, 64, Dtype::kF32},
                             {48, 128, 4, 64, Dtype::kF16},   {16, 384, 0, 0, Dtype::kBf16},
                             {67, 100, 0, 0, Dtype::kBf16},   {32, 8, 0, 0, Dtype::kF32},
                             {65, 130, 0, 0, Dtype::kF16},    {1, 64, 4, 64, Dtype::kBf16}};
const int kRowCounts[] = {1, 2, 3, 4, 5, 6, 7, 13, 96, 97, 101};

struct Inputs {
  Inputs(const RowBlocks& w, int rows, bool round, bool pairs, std::uint64_t seed)
      : x(static_cast<std::size_t>(rows) * w.groups * w.group),
        sums(static_cast<std::size_t>(rows) * w.groups),
        pair(pairs ? x.size() / 2 : 0) {
    Random random(seed);
    const int padded = w.groups * w.group;
    for (int r = 0; r < rows; ++r) {
      const std::vector<float> raw = random.vector(w.in);
      cpu::scalar::prepare_activations(
          raw.data(), w.in, padded, w.group, round,
          x.data() + static_cast<std::ptrdiff_t>(r) * padded,
          pairs ? pair.data() + static_cast<std::ptrdiff_t>(r) * padded / 2 : nullptr,
          sums.data() + static_cast<std::ptrdiff_t>(r) * w.groups);
    }
    a = {rows, padded, w.group, w.groups, x.data(), pairs ? pair.data() : nullptr, sums.data()};
  }
  std::vector<float> x, sums;
  std::vector<std::uint32_t> pair;
  Activations a;
};

std::vector<float> run(LinearBlock* kernel, const RowBlocks& w, const Activations& a,
                       const int* rows, int count) {
  std::vector<float> y(static_cast<std::size_t>(count) * w.out, -1.0f);
  for (int b = 0; b < w.blocks(); ++b) kernel(w, b, a, rows, count, y.data(), w.out);
  return y;
}

TEST(Linear, EveryInstructionSetGivesTheDefinitionsBits) {
  for_each_kernel([](const Kernels& k) {
    for (const MatrixSpec& spec : kSpecs) {
      const RandomMatrix m(spec, 7);
      const PackedRows packed(m.source);
      const PackedRows compact(m.source, has_compact_scales(m.source));
      for (const bool round : {false, true}) {
        for (const int rows : kRowCounts) {
          SCOPED_TRACE(to_string(spec) + (round ? " bf16 " : " f32 ") + std::to_string(rows) +
                       " rows");
          const Inputs in(packed.w, rows, round, round, 11);
          const auto want = run(cpu::scalar::linear_block, packed.w, in.a, nullptr, rows);
          ASSERT_TRUE(same_bits(want, run(k.linear_block, packed.w, in.a, nullptr, rows)));
          if (compact.w.form != ScaleForm::kCompact) continue;
          ASSERT_TRUE(same_bits(want, run(k.linear_block, compact.w, in.a, nullptr, rows)))
              << "compact scales";
        }
      }
    }
  });
}

TEST(Linear, ARowIsTheSameAloneAndAmongOthersAndGathered) {
  for_each_kernel([](const Kernels& k) {
    for (const MatrixSpec& spec : kSpecs) {
      SCOPED_TRACE(to_string(spec));
      const RandomMatrix m(spec, 3);
      const PackedRows packed(m.source);
      const Inputs in(packed.w, 40, true, true, 5);
      const std::vector<float> all = run(k.linear_block, packed.w, in.a, nullptr, 40);
      for (const int r : {0, 1, 17, 39}) {
        const std::span<const float> want(all.data() + static_cast<std::ptrdiff_t>(r) * spec.out,
                                          spec.out);
        ASSERT_TRUE(same_bits(want, run(k.linear_block, packed.w, in.a, &r, 1))) << "row " << r;
        const int few[] = {39, r, 2};
        const std::vector<float> three = run(k.linear_block, packed.w, in.a, few, 3);
        ASSERT_TRUE(same_bits(want, std::span(three).subspan(spec.out, spec.out))) << "row " << r;
      }
    }
  });
}

TEST(Linear, PreparedActivationsAreTheSameBits) {
  for_each_kernel([](const Kernels& k) {
    Random random(1);
    for (const int in : {8, 64, 100, 384}) {
      for (const int group : {32, 64, 128}) {
        for (const bool round : {false, true}) {
          const std::vector<float> x = random.vector(in);
          const int groups = (in + group - 1) / group;
          const int padded = groups * group;
          std::vector<float> a(padded), b(padded), sa(groups), sb(groups);
          std::vector<std::uint32_t> pa(padded / 2), pb(padded / 2);
          cpu::scalar::prepare_activations(x.data(), in, padded, group, round, a.data(),
                                           round ? pa.data() : nullptr, sa.data());
          k.prepare_activations(x.data(), in, padded, group, round, b.data(),
                                round ? pb.data() : nullptr, sb.data());
          ASSERT_TRUE(same_bits(a, b));
          ASSERT_TRUE(same_bits(sa, sb));
          ASSERT_EQ(pa, pb);
        }
      }
    }
  });
}

// The bound: a sum of n terms, each with its own rounding, is off by at most n·ε times the sum of
// their sizes; the offset 16 makes a 4-bit term up to 31 scales large, twice (code and bias).
TEST(LinearBound, DefinitionIsCloseToFloat64) {
  for (const MatrixSpec& spec : kSpecs) {
    SCOPED_TRACE(to_string(spec));
    const RandomMatrix m(spec, 9);
    const PackedRows packed(m.source);
    const Inputs in(packed.w, 2, false, false, 13);
    const std::vector<float> y = run(cpu::scalar::linear_block, packed.w, in.a, nullptr, 2);
    std::vector<float> weights(spec.in);
    for (int o = 0; o < spec.out; ++o) {
      dequantize_row(m.source, o, weights.data());
      double largest_scale = 1.0;
      if (spec.bits > 0) {
        largest_scale = 0;
        for (int g = 0; g < packed.w.groups; ++g) {
          largest_scale = std::max(
              largest_scale, std::fabs(static_cast<double>(row_block_scale(packed.w, o, g).scale)));
        }
        largest_scale *= 2.0 * (16.0 + (1 << spec.bits));
      }
      for (int r = 0; r < 2; ++r) {
        double want = 0;
        double sizes = 0;
        for (int i = 0; i < spec.in; ++i) {
          const double x = in.a.x[r * in.a.padded + i];
          want += x * weights[i];
          sizes += std::fabs(x) * (std::fabs(weights[i]) + largest_scale);
        }
        const double bound = spec.in * 0x1p-24 * sizes;
        ASSERT_NEAR(y[static_cast<std::size_t>(r) * spec.out + o], want, bound) << "output " << o;
      }
    }
  }
}

}  // namespace
}  // namespace lacuna
