// SPDX-License-Identifier: Apache-2.0
#include "ops/latent_attention/latent_attention.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tensor/dtype.h"
#include "tests/support/kernels.h"
#include "tests/support/random_weights.h"

namespace lacuna {
namespace {

using Picks = std::vector<std::int32_t>;

struct Shape {
  int heads, latent, rope;
};

// Rows and a query that both modes hold exactly.
struct Case {
  Case(const Shape& s, int row_count, std::uint64_t seed)
      : shape(s), dims(s.latent + s.rope), keys(row_count), random(seed) {
    rows32 = random.vector(static_cast<std::size_t>(keys) * dims);
    q = random.vector(static_cast<std::size_t>(s.heads) * dims);
    for (auto* v : {&rows32, &q}) {
      for (float& f : *v) f = bf16_to_f32(f32_to_bf16(f));
    }
    for (const float f : rows32) rows16.push_back(f32_to_bf16(f));
  }
  LatentRows rows(bool bf16) const {
    const void* data = bf16 ? static_cast<const void*>(rows16.data()) : rows32.data();
    return {data, bf16, shape.latent, shape.rope};
  }
  // `n` rows, rising.
  Picks some(int n) {
    Picks picks;
    for (int j = 0; j < keys; ++j) {
      if (random.below(keys - j) < n - static_cast<int>(picks.size())) picks.push_back(j);
    }
    return picks;
  }
  std::vector<float> picked(LatentPicked* kernel, bool bf16, const std::int32_t* picks,
                            int count) const {
    return run(count, [&](const LatentQuery& query, float* scratch, float* z) {
      kernel(rows(bf16), picks, count, query, scratch, z);
    });
  }
  std::vector<float> picked(LatentPicked* kernel, bool bf16, const Picks& picks) const {
    return picked(kernel, bf16, picks.data(), static_cast<int>(picks.size()));
  }
  std::vector<float> masked(LatentMasked* kernel, bool bf16, const std::uint64_t* mask) const {
    return run(kLatentPanel, [&](const LatentQuery& query, float* scratch, float* z) {
      kernel(rows(bf16), mask, keys, query, scratch, z);
    });
  }
  std::vector<float> masked(LatentMasked* kernel, bool bf16, const Picks& picks) const {
    std::vector<std::uint64_t> mask(static_cast<std::size_t>(keys) / 64 + 1);
    for (const int j : picks) mask[j / 64] |= std::uint64_t{1} << (j % 64);
    // What lies behind the last row must not count.
    if (keys % 64 != 0) mask[keys / 64] |= ~std::uint64_t{0} << (keys % 64);
    return masked(kernel, bf16, mask.data());
  }

  Shape shape;
  int dims, keys;
  Random random;
  std::vector<float> rows32, q;
  std::vector<std::uint16_t> rows16;

 private:
  template <class Body>
  std::vector<float> run(int count, const Body& body) const {
    const std::size_t floats = latent_scratch_floats(shape.heads, shape.latent, shape.rope, count);
    AlignedBytes scratch((floats + 16) * sizeof(float));
    auto* at = reinterpret_cast<float*>(scratch.data());
    std::fill_n(at, floats + 16, std::numeric_limits<float>::quiet_NaN());
    std::fill_n(at + floats, 16, 3.0f);
    std::vector<float> z(static_cast<std::size_t>(shape.heads) * shape.latent + 1, 5.0f);
    body({q.data(), shape.heads, 0.3f}, at, z.data());
    for (int i = 0; i < 16; ++i) EXPECT_EQ(at[floats + i], 3.0f) << "written behind scratch";
    EXPECT_EQ(z.back(), 5.0f) << "written behind z";
    z.pop_back();
    return z;
  }
};

std::string to_string(const Shape& s, int count) {
  return fmt::format("{} heads of {} + {}, {} rows", s.heads, s.latent, s.rope, count);
}

TEST(LatentAttention, EveryInstructionSetGivesTheDefinitionsBits) {
  const FlushDenormals flush;
  for (const Shape& shape :
       {Shape{1, 32, 32}, {2, 64, 32}, {5, 128, 64}, {17, 32, 64}, {24, 96, 32}}) {
    for (const int count : {1, 2, 3, 15, 16, 17, 31, 33, 64, 127, 129, 200, 257}) {
      SCOPED_TRACE(to_string(shape, count));
      Case c(shape, 400, static_cast<std::uint64_t>(count));
      const Picks picks = c.some(count);
      for (const bool bf16 : {false, true}) {
        const auto want = c.picked(cpu::scalar::latent_picked, bf16, picks);
        const auto want_masked = c.masked(cpu::scalar::latent_masked, bf16, picks);
        for_each_kernel([&](const Kernels& k) {
          ASSERT_TRUE(same_bits(want, c.picked(k.latent_picked, bf16, picks)));
          ASSERT_TRUE(same_bits(want_masked, c.masked(k.latent_masked, bf16, picks)));
        });
      }
    }
  }
}

TEST(LatentAttention, TheFullSizeLayerHasTheDefinitionsBits) {
  const FlushDenormals flush;
  Case c({64, 512, 64}, 700, 71);
  const Picks picks = c.some(333);
  for (const bool bf16 : {false, true}) {
    const auto want = c.picked(cpu::scalar::latent_picked, bf16, picks);
    for_each_kernel([&](const Kernels& k) {
      ASSERT_TRUE(same_bits(want, c.picked(k.latent_picked, bf16, picks)));
    });
  }
}

TEST(LatentAttention, WithoutAListOrMaskEveryRowTakesPart) {
  for_each_kernel([](const Kernels& k) {
    Case c({3, 64, 32}, 150, 73);
    const Picks all = c.some(150);
    for (const bool bf16 : {false, true}) {
      ASSERT_TRUE(same_bits(c.picked(k.latent_picked, bf16, all),
                            c.picked(k.latent_picked, bf16, nullptr, 150)));
      ASSERT_TRUE(same_bits(c.masked(k.latent_masked, bf16, all),
                            c.masked(k.latent_masked, bf16, nullptr)));
    }
  });
}

// Inside one band both forms have one maximum and the same chains.
TEST(LatentAttention, AMaskInOneBandGivesTheBitsOfTheList) {
  for_each_kernel([](const Kernels& k) {
    for (const int count : {1, 2, 31, 77, 128}) {
      Case c({4, 64, 32}, 128, static_cast<std::uint64_t>(count));
      const Picks picks = c.some(count);
      for (const bool bf16 : {false, true}) {
        ASSERT_TRUE(same_bits(c.picked(k.latent_picked, bf16, picks),
                              c.masked(k.latent_masked, bf16, picks)));
      }
    }
  });
}

TEST(LatentAttention, RowsOutsideTheListAreNotRead) {
  for_each_kernel([](const Kernels& k) {
    for (const int count : {1, 15, 40, 129}) {
      Case c({4, 64, 32}, 300, 77);
      const Picks picks = c.some(count);
      Case spoilt = c;
      for (int j = 0; j < c.keys; ++j) {
        if (std::binary_search(picks.begin(), picks.end(), j)) continue;
        for (int d = 0; d < c.dims; ++d) {
          spoilt.rows32[j * c.dims + d] = std::numeric_limits<float>::quiet_NaN();
          spoilt.rows16[j * c.dims + d] = 0x7fc0;
        }
      }
      for (const bool bf16 : {false, true}) {
        ASSERT_TRUE(same_bits(c.picked(k.latent_picked, bf16, picks),
                              spoilt.picked(k.latent_picked, bf16, picks)));
      }
    }
  });
}

TEST(LatentAttention, AHeadIsTheSameAloneAndAmongOthers) {
  for_each_kernel([](const Kernels& k) {
    Case c({13, 64, 32}, 200, 79);
    const Picks picks = c.some(90);
    const auto all = c.picked(k.latent_picked, true, picks);
    for (int h = 0; h < 13; ++h) {
      Case one = c;
      one.shape.heads = 1;
      one.q.assign(c.q.begin() + h * c.dims, c.q.begin() + (h + 1) * c.dims);
      ASSERT_TRUE(same_bits(std::span(all).subspan(static_cast<std::size_t>(h) * 64, 64),
                            one.picked(k.latent_picked, true, picks)));
    }
  });
}

TEST(LatentAttention, NoRowsGiveZeroAndBandsWithoutOneAreLeftOut) {
  for (const Isa isa : usable_isas()) {
    const Kernels& k = kernels_for(isa);
    Case c({3, 64, 32}, 600, 83);
    for (const bool bf16 : {false, true}) {
      const std::vector<float> zeros(3 * 64, 0.0f);
      const Picks none{7};
      EXPECT_TRUE(same_bits(zeros, c.picked(k.latent_picked, bf16, none.data(), 0)));
      EXPECT_TRUE(same_bits(zeros, c.masked(k.latent_masked, bf16, Picks{})));
      const Picks far{300, 301, 383};  // one band's, with empty ones before and behind
      EXPECT_TRUE(
          same_bits(c.picked(k.latent_picked, bf16, far), c.masked(k.latent_masked, bf16, far)))
          << isa_name(isa);
    }
  }
}

// A score is off by dims + 2 roundings of S, the largest Σ |q · row|, and so is the maximum: a
// weight by twice that, exp's 2 units and, in bf16, half a unit of 8 bits. The sums over rows add
// one rounding a row, each of a masked call's bands a few more; numerator and denominator count
// alike.
TEST(LatentAttentionBound, BothFormsAreCloseToFloat64) {
  Case c({2, 128, 64}, 500, 91);
  const Picks picks = c.some(300);
  for (const bool bf16 : {false, true}) {
    const auto list = c.picked(cpu::scalar::latent_picked, bf16, picks);
    const auto mask = c.masked(cpu::scalar::latent_masked, bf16, picks);
    for (int h = 0; h < 2; ++h) {
      std::vector<double> p;
      double most = 0, total = 0;
      for (const int j : picks) {
        double s = 0, size = 0;
        for (int d = 0; d < c.dims; ++d) {
          const double term = static_cast<double>(c.q[h * c.dims + d]) * c.rows32[j * c.dims + d];
          s += term;
          size += std::fabs(term);
        }
        most = std::max(most, size * 0.3);
        p.push_back(std::exp(s * 0.3f));
        total += p.back();
      }
      const double list_share =
          (4 * (c.dims + 2) * most + 2 * 300 + 16) * 0x1p-24 + (bf16 ? 0x1p-8 : 0.0);
      const double mask_share = list_share + 4 * 8 * 0x1p-24;
      for (int d = 0; d < 128; ++d) {
        double want = 0, sizes = 0;
        for (std::size_t i = 0; i < picks.size(); ++i) {
          const double term = p[i] / total * c.rows32[picks[i] * c.dims + d];
          want += term;
          sizes += std::fabs(term);
        }
        ASSERT_NEAR(list[h * 128 + d], want, sizes * list_share);
        ASSERT_NEAR(mask[h * 128 + d], want, sizes * mask_share);
        ASSERT_NEAR(mask[h * 128 + d], list[h * 128 + d], sizes * (list_share + mask_share));
      }
    }
  }
}

}  // namespace
}  // namespace lacuna
