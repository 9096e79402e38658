// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/quantize.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/check.h"

namespace lacuna {
namespace {

constexpr float kSmallestStep = 1e-7f;
constexpr int kLanes = 16;  // for the compiler's vectors; every group is a multiple
constexpr int kMaxGroup = 128;

struct Range {
  float lo, hi;
};

Range find_range(const float* w, int group) {
  std::array<float, kLanes> lo{}, hi{};
  std::copy_n(w, kLanes, lo.begin());
  hi = lo;
  for (int i = kLanes; i < group; i += kLanes) {
    for (int l = 0; l < kLanes; ++l) {
      lo[l] = w[i + l] < lo[l] ? w[i + l] : lo[l];
      hi[l] = w[i + l] > hi[l] ? w[i + l] : hi[l];
    }
  }
  return {*std::min_element(lo.begin(), lo.end()), *std::max_element(hi.begin(), hi.end())};
}

struct Pair {
  float scale, bias;
};

template <MlxQuantizer kQuantizer>
Pair choose_pair(const float* w, int group, float n) {
  Range range = find_range(w, group);
  if constexpr (kQuantizer == MlxQuantizer::kGpu) range.hi = std::max(range.hi, 0.0f);
  const bool low_side = std::fabs(range.lo) > std::fabs(range.hi);
  const float size = std::max((range.hi - range.lo) / n, kSmallestStep);
  const float step = low_side ? size : -size;
  const float edge = low_side ? range.lo : range.hi;
  const float ratio = edge / step;
  const float q = kQuantizer == MlxQuantizer::kGpu ? std::round(ratio) : std::nearbyint(ratio);
  return q != 0 ? Pair{edge / q, edge} : Pair{step, 0};
}

// Rounds 0 ≤ v ≤ 255 in operations that vectorise.
template <MlxQuantizer kQuantizer>
int round_code(float v) {
  if constexpr (kQuantizer == MlxQuantizer::kGpu) {
    // Not floor(v + 0.5): that sum rounds up for the float before 0.5.
    const int whole = static_cast<int>(v);
    return whole + (v - static_cast<float>(whole) >= 0.5f ? 1 : 0);
  } else {
    constexpr float kNoFraction = 8388608.0f;  // 2^23: floats from here on are whole
    return static_cast<int>((v + kNoFraction) - kNoFraction);
  }
}

// Eight codes, a byte each, as 8·bits bits: neighbours move together three times.
std::uint64_t pack_eight(std::uint64_t x, int bits) {
  x = (x & 0x00FF00FF00FF00FFu) | ((x & 0xFF00FF00FF00FF00u) >> (8 - bits));
  x = (x & 0x0000FFFF0000FFFFu) | ((x & 0xFFFF0000FFFF0000u) >> (16 - 2 * bits));
  return (x & 0x00000000FFFFFFFFu) | ((x & 0xFFFFFFFF00000000u) >> (32 - 4 * bits));
}

template <MlxQuantizer kQuantizer>
void write_codes(const float* w, int group, int bits, Pair pair, std::uint8_t* out) {
  const auto n = static_cast<float>((1 << bits) - 1);
  std::array<std::uint8_t, kMaxGroup> codes{};
  for (int i = 0; i < group; ++i) {
    float v = (w[i] - pair.bias) / pair.scale;
    v = v > 0.0f ? v : 0.0f;
    v = v < n ? v : n;
    codes[i] = static_cast<std::uint8_t>(round_code<kQuantizer>(v));
  }
  for (int i = 0; i < group; i += 8, out += bits) {
    std::uint64_t eight;
    std::memcpy(&eight, &codes[i], sizeof eight);
    eight = pack_eight(eight, bits);
    std::memcpy(out, &eight, static_cast<std::size_t>(bits));
  }
}

template <MlxQuantizer kQuantizer>
bool quantize(const AffineFormat& format, std::span<const float> row, std::uint8_t* codes,
              float* scales, float* biases) {
  const auto group = static_cast<std::size_t>(format.group);
  const auto n = static_cast<float>((1 << format.bits) - 1);
  if (!all_finite(row)) return false;
  bool finite = true;
  for (std::size_t g = 0; g < row.size() / group; ++g) {
    const float* w = row.data() + g * group;
    const Pair pair = choose_pair<kQuantizer>(w, format.group, n);
    finite = finite && std::isfinite(pair.scale);
    scales[g] = pair.scale;
    biases[g] = pair.bias;
    write_codes<kQuantizer>(w, format.group, format.bits, pair,
                            codes + g * group * static_cast<std::size_t>(format.bits) / 8);
  }
  return finite;
}

std::uint16_t f32_to_f16(float f) {
  const auto bits = std::bit_cast<std::uint32_t>(f);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000u);
  const std::uint32_t magnitude = bits & 0x7FFFFFFFu;
  constexpr std::uint32_t kSmallestNormal = 0x38800000u;  // 2^-14
  constexpr std::uint32_t kPastLargest = 0x477FF000u;     // 65520, half way to what would follow
  if (magnitude > 0x7F800000u) return sign | 0x7E00u;
  if (magnitude >= kPastLargest) return sign | 0x7C00u;
  if (magnitude < kSmallestNormal) {
    // In units of 2^-24, the smallest step; adding 2^23 to a float rounds it to a whole number.
    const float units = std::bit_cast<float>(magnitude) * 0x1p24f;
    return static_cast<std::uint16_t>(sign | static_cast<int>((units + 0x1p23f) - 0x1p23f));
  }
  const std::uint32_t rebased = magnitude - ((127u - 15u) << 23);
  return static_cast<std::uint16_t>(sign | ((rebased + 0xFFFu + ((rebased >> 13) & 1u)) >> 13));
}

const std::vector<float>& f16_table() {
  static const std::vector<float> table = [] {
    std::vector<float> values(1 << 16);
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = f16_to_f32(static_cast<std::uint16_t>(i));
    return values;
  }();
  return table;
}

float fp8_value(int code) {
  const int exponent = (code >> 3) & 15, mantissa = code & 7;
  if (exponent == 15 && mantissa == 7) return std::numeric_limits<float>::quiet_NaN();
  const float magnitude = exponent == 0
                              ? std::ldexp(static_cast<float>(mantissa), -9)
                              : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
  return (code & 0x80) != 0 ? -magnitude : magnitude;
}

}  // namespace

bool all_finite(std::span<const float> values) {
  std::uint32_t found = 0;
  for (const float value : values) {
    found |= (std::bit_cast<std::uint32_t>(value) & 0x7F800000u) == 0x7F800000u ? 1u : 0u;
  }
  return found == 0;
}

bool quantize_row(const AffineFormat& format, std::span<const float> row, std::uint8_t* codes,
                  float* scales, float* biases) {
  LAC_CHECK(format.bits >= 2 && format.bits <= 8 && format.group <= kMaxGroup &&
                format.group % kLanes == 0 && row.size() % format.group == 0,
            "{} weights, {} bits, group {}", row.size(), format.bits, format.group);
  return format.quantizer == MlxQuantizer::kGpu
             ? quantize<MlxQuantizer::kGpu>(format, row, codes, scales, biases)
             : quantize<MlxQuantizer::kCpu>(format, row, codes, scales, biases);
}

void widen(Dtype dtype, const std::uint8_t* from, std::span<float> to) {
  if (dtype == Dtype::kF32) {
    std::memcpy(to.data(), from, to.size_bytes());
    return;
  }
  LAC_CHECK(dtype == Dtype::kBf16 || dtype == Dtype::kF16, "{}", dtype_name(dtype));
  const float* table = dtype == Dtype::kF16 ? f16_table().data() : nullptr;
  for (std::size_t i = 0; i < to.size(); ++i) {
    std::uint16_t half;
    std::memcpy(&half, from + i * sizeof half, sizeof half);
    to[i] = table != nullptr ? table[half] : bf16_to_f32(half);
  }
}

void narrow(Dtype dtype, std::span<const float> from, std::uint8_t* to) {
  if (dtype == Dtype::kF32) {
    std::memcpy(to, from.data(), from.size_bytes());
    return;
  }
  LAC_CHECK(dtype == Dtype::kBf16 || dtype == Dtype::kF16, "{}", dtype_name(dtype));
  for (std::size_t i = 0; i < from.size(); ++i) {
    const std::uint16_t half = dtype == Dtype::kBf16 ? f32_to_bf16(from[i]) : f32_to_f16(from[i]);
    std::memcpy(to + i * sizeof half, &half, sizeof half);
  }
}

void fp8_values(float scale, std::span<float, 256> to) {
  for (int code = 0; code < 256; ++code)
    to[code] = bf16_to_f32(f32_to_bf16(fp8_value(code) * scale));
}

}  // namespace lacuna
