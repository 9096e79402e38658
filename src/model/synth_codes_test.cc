// SPDX-License-Identifier: Apache-2.0
#include "model/synth_codes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "tensor/dtype.h"

namespace lacuna {
namespace {

constexpr int kIn = 1024, kRows = 400;
constexpr int kGroups = kIn / CodeRows::kGroup;

struct Row {
  std::vector<std::uint8_t> codes = std::vector<std::uint8_t>(kIn / 2);
  std::vector<std::uint16_t> scales = std::vector<std::uint16_t>(kGroups);
  std::vector<std::uint16_t> biases = std::vector<std::uint16_t>(kGroups);

  int code(int i) const { return i % 2 == 0 ? codes[i / 2] & 15 : codes[i / 2] >> 4; }
  float weight(int i) const {
    const int g = i / CodeRows::kGroup;
    return bf16_to_f32(scales[g]) * static_cast<float>(code(i)) + bf16_to_f32(biases[g]);
  }
  double sum() const {
    double sum = 0;
    for (int i = 0; i < kIn; ++i) sum += weight(i);
    return sum;
  }
};

Row make_row(const CodeRows& rows, std::uint64_t key) {
  Row row;
  rows.write(key, kIn, row.codes.data(), row.scales.data(), row.biases.data());
  return row;
}

class Laws : public ::testing::TestWithParam<WeightLaw> {};

TEST_P(Laws, MeanAndDeviationAreThoseWanted) {
  const WeightLaw law = GetParam();
  const CodeRows rows(law);
  EXPECT_NEAR(rows.drawn().mean, law.mean, 0.005 * law.deviation);
  double sum = 0, squares = 0;
  for (int r = 0; r < kRows; ++r) {
    const Row row = make_row(rows, static_cast<std::uint64_t>(r) * 77);
    for (int i = 0; i < kIn; ++i) {
      sum += row.weight(i);
      squares += row.weight(i) * row.weight(i);
    }
  }
  const double count = kRows * kIn, mean = sum / count;
  EXPECT_NEAR(mean, law.mean, 0.01 * law.deviation);
  EXPECT_NEAR(std::sqrt(squares / count - mean * mean), law.deviation, 0.01 * law.deviation);
}

TEST_P(Laws, PairsAndCodesCouldBeAQuantisers) {
  const CodeRows rows(GetParam());
  int signs[2] = {0, 0};
  std::vector<int> zero_codes(16);
  for (int r = 0; r < kRows; ++r) {
    const Row row = make_row(rows, static_cast<std::uint64_t>(r));
    for (int g = 0; g < kGroups; ++g) {
      const float scale = bf16_to_f32(row.scales[g]), bias = bf16_to_f32(row.biases[g]);
      const float zero = std::round(-bias / scale);
      ASSERT_TRUE(zero >= 8 && zero <= 15) << zero;
      ASSERT_EQ(row.scales[g], f32_to_bf16(bias / -zero));
      ++zero_codes[static_cast<std::size_t>(zero)];
      ++signs[scale < 0];
      std::vector<int> seen(16);
      for (int i = 0; i < CodeRows::kGroup; ++i) ++seen[row.code(g * CodeRows::kGroup + i)];
      ASSERT_GT(seen[0], 0);
      ASSERT_GT(seen[15], 0);
      ASSERT_LT(*std::max_element(seen.begin(), seen.end()), 48);
    }
  }
  EXPECT_GT(zero_codes[8], zero_codes[9]);
  EXPECT_GT(zero_codes[9], zero_codes[10]);
  EXPECT_GT(zero_codes[11], 0);
  EXPECT_GT(std::min(signs[0], signs[1]), kRows * kGroups / 3);
}

INSTANTIATE_TEST_SUITE_P(Synth, Laws,
                         ::testing::Values(WeightLaw{0, 1}, WeightLaw{0, 0.002},
                                           WeightLaw{-0.0012, 0.019}, WeightLaw{0.5, 0.866},
                                           WeightLaw{-0.7, 1}));

TEST(CodeRows, MeanZeroMeansThatEveryRowSumsToNearlyZero) {
  const CodeRows free({-0.01, 1}), balanced({0, 1});
  double free_squares = 0, balanced_squares = 0;
  for (std::uint64_t key = 0; key < kRows; ++key) {
    free_squares += std::pow(make_row(free, key).sum(), 2) / kRows;
    balanced_squares += std::pow(make_row(balanced, key).sum(), 2) / kRows;
  }
  EXPECT_NEAR(free_squares / kIn, 0.85, 0.25);  // as independent weights would, but for extremes
  EXPECT_LT(balanced_squares / kIn, 0.07);
}

TEST(CodeRows, RowsDependOnTheirKeyAlone) {
  const CodeRows rows({0, 1});
  const Row first = make_row(rows, 1), again = make_row(rows, 1), other = make_row(rows, 2);
  EXPECT_EQ(first.codes, again.codes);
  EXPECT_EQ(first.scales, again.scales);
  EXPECT_EQ(first.biases, again.biases);
  int equal = 0;
  for (int i = 0; i < kIn; ++i) equal += first.code(i) == other.code(i);
  EXPECT_LT(equal, kIn / 5);
}

TEST(SynthRandom, DrawsWhatItSays) {
  SynthRandom random(3);
  double uniform = 0, normal = 0, squares = 0;
  for (int i = 0; i < 10000; ++i) {
    const double u = random.uniform(), n = random.normal();
    ASSERT_TRUE(u >= 0 && u < 1);
    uniform += u / 10000;
    normal += n / 10000;
    squares += n * n / 10000;
  }
  EXPECT_NEAR(uniform, 0.5, 0.02);
  EXPECT_NEAR(normal, 0, 0.05);
  EXPECT_NEAR(squares, 1, 0.06);
}

TEST(NormalQuantile, KnownValues) {
  EXPECT_NEAR(normal_quantile(0.5), 0, 1e-9);
  EXPECT_NEAR(normal_quantile(0.95), 1.6448536, 1e-6);
  EXPECT_NEAR(normal_quantile(0.001), -3.0902323, 1e-6);
}

}  // namespace
}  // namespace lacuna
