// SPDX-License-Identifier: Apache-2.0
#include "ops/attention/attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tensor/dtype.h"
#include "tests/support/kernels.h"
#include "tests/support/random_weights.h"

namespace lacuna {
namespace {

// One band of random keys and values, in both storage forms.
struct Band {
  explicit Band(int dim, std::uint64_t seed)
      : head_dim(dim),
        random(seed),
        keys(random.vector(std::size_t{kBandKeys} * dim)),
        values(random.vector(std::size_t{kBandKeys} * dim)) {
    for (auto* v : {&keys, &values}) {
      for (auto& f : *v) f = bf16_to_f32(f32_to_bf16(f));
    }
    keys16.resize(keys.size());
    values16.resize(values.size());
    for (int j = 0; j < kBandKeys; ++j) {
      for (int d = 0; d < dim; ++d) {
        keys16[key_index(true, dim, j, d)] = f32_to_bf16(key(j, d));
        values16[value_index(true, dim, j, d)] = f32_to_bf16(value(j, d));
      }
    }
  }
  KvBand view(bool bf16) const {
    return bf16 ? KvBand{keys16.data(), values16.data(), true, head_dim}
                : KvBand{keys.data(), values.data(), false, head_dim};
  }
  float key(int j, int d) const { return keys[key_index(false, head_dim, j, d)]; }
  float value(int j, int d) const { return values[value_index(false, head_dim, j, d)]; }

  int head_dim;
  Random random;
  std::vector<float> keys, values;
  std::vector<std::uint16_t> keys16, values16;
};

struct Output {
  std::vector<float> m, l, o;
};

Output attend(AttendBand* kernel, const KvBand& kv, std::vector<float> q,
              const std::vector<int>& valid) {
  if (kv.bf16) {
    for (float& v : q) v = bf16_to_f32(f32_to_bf16(v));
  }
  const int rows = static_cast<int>(valid.size());
  Output out{std::vector<float>(rows), std::vector<float>(rows), std::vector<float>(q.size())};
  std::vector<const float*> at;
  for (int r = 0; r < rows; ++r)
    at.push_back(q.data() + static_cast<std::ptrdiff_t>(r) * kv.head_dim);
  kernel(kv, at.data(), valid.data(), rows, 0.125f, out.m.data(), out.l.data(), out.o.data());
  return out;
}

TEST(Attention, EveryInstructionSetGivesTheDefinitionsBits) {
  for_each_kernel([](const Kernels& k) {
    for (const int dim : {16, 64, 80, 128}) {
      Band band(dim, 81);
      for (const std::vector<int>& valid : {std::vector<int>{1},
                                            {16, 17},
                                            {256, 255, 254},
                                            {3, 40, 41, 256, 1},
                                            {250, 250, 250, 251, 251, 251, 252, 252}}) {
        const std::vector<float> q =
            band.random.vector(valid.size() * static_cast<std::size_t>(dim));
        for (const bool bf16 : {false, true}) {
          SCOPED_TRACE("head_dim " + std::to_string(dim) + " rows " + std::to_string(valid.size()) +
                       (bf16 ? " bf16" : " f32"));
          const Output want = attend(cpu::scalar::attend_band, band.view(bf16), q, valid);
          const Output got = attend(k.attend_band, band.view(bf16), q, valid);
          ASSERT_TRUE(same_bits(want.m, got.m));
          ASSERT_TRUE(same_bits(want.l, got.l));
          ASSERT_TRUE(same_bits(want.o, got.o));
        }
      }
    }
  });
}

// What lies behind a row's last key, another token's or nobody's, must not reach it.
TEST(Attention, KeysAfterTheLastAreNotRead) {
  for_each_kernel([](const Kernels& k) {
    for (const int keys : {1, 2, 15, 16, 17, 32, 33}) {
      Band band(32, 85);
      const std::vector<float> q = band.random.vector(2 * 32);
      const std::vector<int> valid{keys, std::max(1, keys - 1)};
      for (const bool bf16 : {false, true}) {
        const Output want = attend(k.attend_band, band.view(bf16), q, valid);
        Band spoilt = band;
        for (int j = keys; j < kBandKeys; ++j) {
          for (int d = 0; d < 32; ++d) {
            spoilt.keys[key_index(false, 32, j, d)] = spoilt.values[value_index(false, 32, j, d)] =
                std::numeric_limits<float>::quiet_NaN();
            spoilt.keys16[key_index(true, 32, j, d)] =
                spoilt.values16[value_index(true, 32, j, d)] = 0x7fc0;
          }
        }
        const Output got = attend(k.attend_band, spoilt.view(bf16), q, valid);
        ASSERT_TRUE(same_bits(want.o, got.o)) << keys << " keys";
        ASSERT_TRUE(same_bits(want.l, got.l));
      }
    }
  });
}

TEST(Attention, ARowIsTheSameAloneAndAmongOthers) {
  for_each_kernel([](const Kernels& k) {
    Band band(64, 83);
    const std::vector<int> valid{3, 40, 41, 256, 1, 255, 7};
    const std::vector<float> q = band.random.vector(valid.size() * 64);
    const Output all = attend(k.attend_band, band.view(true), q, valid);
    for (std::size_t r = 0; r < valid.size(); ++r) {
      const Output one = attend(k.attend_band, band.view(true),
                                {q.begin() + static_cast<std::ptrdiff_t>(r) * 64,
                                 q.begin() + static_cast<std::ptrdiff_t>(r + 1) * 64},
                                {valid[r]});
      ASSERT_EQ(one.m[0], all.m[r]);
      ASSERT_EQ(one.l[0], all.l[r]);
      ASSERT_TRUE(same_bits(std::span(all.o).subspan(r * 64, 64), one.o));
    }
  });
}

TEST(Attention, MergeIsTheSameBitsAndStartsFromNothing) {
  for_each_kernel([](const Kernels& k) {
    Random random(87);
    for (const int dim : {16, 20, 128}) {
      const std::vector<float> first = random.vector(dim), second = random.vector(dim);
      std::vector<float> a(dim, 0.0f), b(dim, 0.0f);
      float ma = -std::numeric_limits<float>::infinity(), mb = ma, la = 0, lb = 0;
      cpu::scalar::merge_band(1.5f, 3.0f, first.data(), dim, &ma, &la, a.data());
      k.merge_band(1.5f, 3.0f, first.data(), dim, &mb, &lb, b.data());
      ASSERT_TRUE(same_bits(first, a)) << "merging into nothing must keep the band";
      cpu::scalar::merge_band(2.25f, 1.0f, second.data(), dim, &ma, &la, a.data());
      k.merge_band(2.25f, 1.0f, second.data(), dim, &mb, &lb, b.data());
      ASSERT_TRUE(same_bits(a, b));
      ASSERT_EQ(la, lb);
      ASSERT_EQ(ma, mb);
    }
  });
}

// Two bands against one softmax over all keys in float64. Scores carry dim·ε, weights twice that.
TEST(AttentionBound, BandsMergeToSoftmax) {
  const int dim = 64;
  Band bands[] = {Band(dim, 91), Band(dim, 93)};
  const std::vector<float> q = bands[0].random.vector(dim);
  std::vector<float> o(dim, 0.0f);
  float m = -std::numeric_limits<float>::infinity();
  float l = 0;
  std::vector<double> scores;
  for (const Band& band : bands) {
    const Output part = attend(cpu::scalar::attend_band, band.view(false), q, {kBandKeys});
    cpu::scalar::merge_band(part.m[0], part.l[0], part.o.data(), dim, &m, &l, o.data());
    for (int j = 0; j < kBandKeys; ++j) {
      double s = 0;
      for (int d = 0; d < dim; ++d) s += static_cast<double>(q[d]) * band.key(j, d);
      scores.push_back(s * 0.125);
    }
  }
  double total = 0;
  for (const double s : scores) total += std::exp(s);
  for (int d = 0; d < dim; ++d) {
    double want = 0;
    double sizes = 0;
    for (std::size_t j = 0; j < scores.size(); ++j) {
      const double term = std::exp(scores[j]) / total *
                          bands[j / kBandKeys].value(static_cast<int>(j % kBandKeys), d);
      want += term;
      sizes += std::fabs(term);
    }
    ASSERT_NEAR(o[d] / l, want, sizes * (2 * dim + 2 * kBandKeys) * 0x1p-24);
  }
}

}  // namespace
}  // namespace lacuna
