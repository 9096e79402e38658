// SPDX-License-Identifier: Apache-2.0
// Packing moves bits and keeps values: every weight, scale and bias of both layouts is the
// source's.
#include "checkpoint/pack.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tensor/packed_access.h"
#include "tests/support/random_weights.h"

namespace lacuna {
namespace {

const MatrixSpec kSpecs[] = {{100, 192, 4, 64, Dtype::kBf16}, {64, 128, 2, 32, Dtype::kBf16},
                             {65, 256, 3, 128, Dtype::kBf16}, {130, 128, 5, 64, Dtype::kF16},
                             {8, 192, 6, 64, Dtype::kBf16},   {70, 128, 8, 32, Dtype::kF32},
                             {67, 100, 0, 0, Dtype::kBf16},   {3, 7, 0, 0, Dtype::kF32},
                             {129, 70, 0, 0, Dtype::kF16}};

float value(float code, ScaleBias s, bool quantized) {
  return quantized ? std::fma(s.scale, code, s.bias) : code;
}

TEST(Pack, RowBlocksHoldTheSourcesValues) {
  for (const MatrixSpec& spec : kSpecs) {
    SCOPED_TRACE(to_string(spec));
    const RandomMatrix m(spec, 5);
    const PackedRows packed(m.source);
    std::vector<float> want(spec.in);
    for (int o = 0; o < spec.out; ++o) {
      dequantize_row(m.source, o, want.data());
      for (int k = 0; k < spec.in; ++k) {
        const bool q = is_quantized(packed.w.kind);
        const ScaleBias s = q ? row_block_scale(packed.w, o, k / packed.w.group) : ScaleBias{};
        ASSERT_EQ(value(row_block_weight(packed.w, o, k), s, q), want[k])
            << "output " << o << " input " << k;
      }
      for (int k = spec.in; k < packed.w.groups * packed.w.group; ++k)
        ASSERT_EQ(row_block_weight(packed.w, o, k), 0.0f);
    }
  }
}

TEST(Pack, NeuronMajorHoldsTheSourcesValues) {
  for (const MatrixSpec& spec : kSpecs) {
    SCOPED_TRACE(to_string(spec));
    const RandomMatrix m(spec, 5);
    const PackedNeurons packed(m.source);
    std::vector<float> want(spec.in);
    for (int o = 0; o < spec.out; ++o) {
      dequantize_row(m.source, o, want.data());
      for (int n = 0; n < spec.in; ++n) {
        const bool q = is_quantized(packed.w.kind);
        const ScaleBias s = q ? neuron_scale(packed.w, n / packed.w.group, o) : ScaleBias{};
        ASSERT_EQ(value(neuron_weight(packed.w, n, o), s, q), want[n])
            << "output " << o << " neuron " << n;
      }
    }
    for (int o = spec.out; o < packed.w.width(); ++o)
      ASSERT_EQ(neuron_weight(packed.w, 0, o), 0.0f) << "padding";
  }
}

// Words and values of the specification's quantiser example: 3, 5, 6 and 8 bits cross byte borders.
TEST(Pack, DequantizesMlxBitStrings) {
  struct Example {
    int bits;
    std::vector<std::uint32_t> words;
    std::uint16_t scale, bias;
    int q0;
  };
  const Example examples[] = {
      {3, {0x15ff320a, 0x80aff990, 0x84057fcc}, 0xbbbb, 0x3cbb, -4},
      {5, {0xf2f2804b, 0x500976f7, 0x2abdfe9e, 0xbfd40a01, 0x81802557}, 0xbaa6, 0x3cbb, -18},
      {6,
       {0xde280156, 0x456befec, 0xfb378a00, 0xc0115afb, 0xaefecdf2, 0x80b00452},
       0xba26,
       0x3cbb,
       -36},
      {8,
       {0x2900145a, 0xf1fece7a, 0x001258b0, 0xfed07c2a, 0x1156aef1, 0xd27f2c01, 0x53acefff,
        0x812e0110},
       0xb923,
       0x3cbb,
       -147}};
  for (const Example& e : examples) {
    LinearSource s;
    s.out = 1, s.in = 32, s.quantized = true, s.bits = e.bits, s.group = 32, s.dtype = Dtype::kBf16;
    s.weight = reinterpret_cast<const std::uint8_t*>(e.words.data());
    s.scales = reinterpret_cast<const std::uint8_t*>(&e.scale);
    s.biases = reinterpret_cast<const std::uint8_t*>(&e.bias);
    float w[32];
    dequantize_row(s, 0, w);
    const float step = std::fabs(bf16_to_f32(e.scale));
    for (int j = 0; j < 32; ++j) {
      const float original =
          bf16_to_f32(f32_to_bf16(static_cast<float>(0.02 * std::sin(0.3 + 0.7 * j) + 0.003)));
      // Half a step of rounding, plus what rounding the scale to 8 bits moves a far code.
      ASSERT_NEAR(w[j], original, step * (0.5f + static_cast<float>(1 << e.bits) * 0x1p-8f))
          << e.bits << " bits, weight " << j;
    }
  }
}

}  // namespace
}  // namespace lacuna
