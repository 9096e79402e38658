// SPDX-License-Identifier: Apache-2.0
// MLX's affine quantiser, bit for bit.
//
// Formula  Of a group of weights, in float32, with n = 2^bits − 1:
//
//              step = max((hi − lo) / n, 1e-7)    negative unless |lo| > |hi|
//              edge = the one of lo, hi that is larger in size, hi when equal
//              q    = round(edge / step)
//              q ≠ 0: scale = edge / q, bias = edge      q = 0: scale = step, bias = 0
//              code = round((w − bias) / scale), cut to 0…n
//
//          Codes come from the unrounded scale; scale and bias are then rounded to the dtype of the
//          weights.
// Layout   Code i of a row sits at bits [i·bits, (i+1)·bits) of the row read as a little-endian bit
//          string, as LinearSource says.
// Source   docs/convert.md; both variants are held to recordings of MLX.
#pragma once

#include <cstdint>
#include <span>

#include "tensor/dtype.h"

namespace lacuna {

// MLX has two quantisers that differ in two points.
enum class MlxQuantizer {
  kGpu,  // Metal and CUDA: round takes halves away from 0; hi is at least 0. What releases are made
         // with
  kCpu,  // halves go to the even number; hi is the largest weight, also of a group below 0
};

struct AffineFormat {
  int bits = 4;    // 2, 3, 4, 5, 6, 8
  int group = 64;  // 32, 64, 128
  MlxQuantizer quantizer = MlxQuantizer::kGpu;

  bool operator==(const AffineFormat&) const = default;
};

// Quantises row.size() weights, a multiple of the group: codes are row.size()·bits/8 bytes, scales
// and biases one float32 a group, not yet rounded.
// False: the row holds a NaN, an infinity, or a group so wide that its scale is infinite; what was
// written is then good for nothing.
bool quantize_row(const AffineFormat& format, std::span<const float> row, std::uint8_t* codes,
                  float* scales, float* biases);

// Values of F32, F16 or BF16 as float32, and back, rounding to nearest with ties to even. Bytes
// need no alignment.
void widen(Dtype dtype, const std::uint8_t* from, std::span<float> to);
void narrow(Dtype dtype, std::span<const float> from, std::uint8_t* to);

bool all_finite(std::span<const float> values);

// The values of the 256 codes of F8_E4M3 (no infinities; 0x7F and 0xFF are NaN), times `scale` in
// float32, rounded to bf16.
void fp8_values(float scale, std::span<float, 256> to);

}  // namespace lacuna
