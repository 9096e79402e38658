// SPDX-License-Identifier: Apache-2.0
#include "tensor/dtype.h"

#include <cmath>

namespace lacuna {
namespace {

struct DtypeRow {
  const char* name;
  std::size_t bytes;
};

constexpr DtypeRow kRows[] = {{"BOOL", 1},    {"U8", 1},  {"I8", 1},   {"U16", 2}, {"I16", 2},
                              {"U32", 4},     {"I32", 4}, {"U64", 8},  {"I64", 8}, {"F8_E4M3", 1},
                              {"F8_E5M2", 1}, {"F16", 2}, {"BF16", 2}, {"F32", 4}, {"F64", 8}};

}  // namespace

std::size_t dtype_bytes(Dtype dtype) { return kRows[static_cast<int>(dtype)].bytes; }
const char* dtype_name(Dtype dtype) { return kRows[static_cast<int>(dtype)].name; }

float f16_to_f32(std::uint16_t h) {
  const int exponent = (h >> 10) & 31;
  const int mantissa = h & 1023;
  float magnitude;
  if (exponent == 31) {
    magnitude = mantissa != 0 ? NAN : INFINITY;
  } else if (exponent == 0) {
    magnitude = std::ldexp(static_cast<float>(mantissa), -24);
  } else {
    magnitude = std::ldexp(static_cast<float>(1024 + mantissa), exponent - 25);
  }
  return (h & 0x8000) != 0 ? -magnitude : magnitude;
}

}  // namespace lacuna
