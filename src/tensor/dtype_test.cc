// SPDX-License-Identifier: Apache-2.0
#include "tensor/dtype.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <string>

namespace lacuna {
namespace {

TEST(Dtype, NamesAndBytesAreSafetensors) {
  EXPECT_STREQ(dtype_name(Dtype::kBool), "BOOL");
  EXPECT_STREQ(dtype_name(Dtype::kBf16), "BF16");
  EXPECT_STREQ(dtype_name(Dtype::kF8E4M3), "F8_E4M3");
  EXPECT_STREQ(dtype_name(Dtype::kF64), "F64");
  EXPECT_EQ(dtype_bytes(Dtype::kU8), 1u);
  EXPECT_EQ(dtype_bytes(Dtype::kF16), 2u);
  EXPECT_EQ(dtype_bytes(Dtype::kU32), 4u);
  EXPECT_EQ(dtype_bytes(Dtype::kI64), 8u);
}

TEST(F16, KnownValues) {
  EXPECT_EQ(f16_to_f32(0x3C00), 1.0f);
  EXPECT_EQ(f16_to_f32(0xC000), -2.0f);
  EXPECT_EQ(f16_to_f32(0x7BFF), 65504.0f);
  EXPECT_EQ(f16_to_f32(0x0001), std::ldexp(1.0f, -24));
  EXPECT_EQ(f16_to_f32(0x0400), std::ldexp(1.0f, -14));
  EXPECT_EQ(f16_to_f32(0x7C00), INFINITY);
  EXPECT_EQ(f16_to_f32(0xFC00), -INFINITY);
  EXPECT_TRUE(std::isnan(f16_to_f32(0x7C01)));
  EXPECT_TRUE(std::signbit(f16_to_f32(0x8000)));
}

// Neighbours differ by one unit of their exponent, which with one known value fixes every value.
TEST(F16, EveryStepIsItsExponents) {
  for (int h = 0; h < 0x7BFF; ++h) {
    const float step =
        f16_to_f32(static_cast<std::uint16_t>(h + 1)) - f16_to_f32(static_cast<std::uint16_t>(h));
    EXPECT_EQ(step, std::ldexp(1.0f, std::max(h >> 10, 1) - 25)) << h;
    EXPECT_EQ(f16_to_f32(static_cast<std::uint16_t>(h | 0x8000)),
              -f16_to_f32(static_cast<std::uint16_t>(h)));
  }
}

TEST(Bf16, EveryValueSurvivesTheRoundTrip) {
  for (int b = 0; b < 0x10000; ++b) {
    const auto bits = static_cast<std::uint16_t>(b);
    const float f = bf16_to_f32(bits);
    if (std::isnan(f)) {
      EXPECT_TRUE(std::isnan(bf16_to_f32(f32_to_bf16(f))));
    } else {
      EXPECT_EQ(f32_to_bf16(f), bits);
    }
  }
}

TEST(Bf16, RoundsToNearestTiesToEven) {
  const auto rounded = [](std::uint32_t bits) { return f32_to_bf16(std::bit_cast<float>(bits)); };
  EXPECT_EQ(rounded(0x3F800000), 0x3F80);
  EXPECT_EQ(rounded(0x3F807FFF), 0x3F80);
  EXPECT_EQ(rounded(0x3F808000), 0x3F80);  // a tie: to the even one below
  EXPECT_EQ(rounded(0x3F808001), 0x3F81);
  EXPECT_EQ(rounded(0x3F818000), 0x3F82);  // a tie: to the even one above
  EXPECT_EQ(rounded(0xBF818000), 0xBF82);
  EXPECT_EQ(rounded(0x7F7FFFFF), 0x7F80);  // past the largest: infinity
  EXPECT_EQ(rounded(0x7F800001) & 0x7F80, 0x7F80);
  EXPECT_NE(rounded(0x7F800001) & 0x007F, 0);  // a NaN whose high bits are 0 stays one
}

}  // namespace
}  // namespace lacuna
