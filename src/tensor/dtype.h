// SPDX-License-Identifier: Apache-2.0
// Element types of checkpoint tensors, and conversions of the small floats.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

namespace lacuna {

// The safetensors names, without the ones no model file uses.
enum class Dtype {
  kBool,
  kU8,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kU64,
  kI64,
  kF8E4M3,
  kF8E5M2,
  kF16,
  kBf16,
  kF32,
  kF64
};

std::size_t dtype_bytes(Dtype dtype);
const char* dtype_name(Dtype dtype);  // "BF16"

inline float bf16_to_f32(std::uint16_t b) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(b) << 16);
}

// Round to nearest, ties to even. NaN stays NaN.
inline std::uint16_t f32_to_bf16(float f) {
  const auto u = std::bit_cast<std::uint32_t>(f);
  if ((u & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>((u >> 16) | 0x40u);
  return static_cast<std::uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

float f16_to_f32(std::uint16_t h);

}  // namespace lacuna
