// SPDX-License-Identifier: Apache-2.0
// Packing moves bits and keeps values: every weight, scale and bias of both layouts is the
// source's.
#include "checkpoint/pack.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

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

// A layout's bytes by its definition (packed_access.h), one weight after the other.
std::uint32_t source_code(const LinearSource& s, int row, int k) {
  const std::uint8_t* p = s.weight + static_cast<std::size_t>(row) * s.row_bytes();
  std::uint32_t code = 0;
  for (int b = 0; b < s.bits; ++b) {
    const int bit = k * s.bits + b;
    code |= static_cast<std::uint32_t>(p[bit / 8] >> bit % 8 & 1) << b;
  }
  return code;
}
void put_bits(std::uint8_t* at, std::uint32_t bits) {
  std::uint32_t v;
  std::memcpy(&v, at, 4);
  v |= bits;
  std::memcpy(at, &v, 4);
}
void put_pair(std::uint8_t* at, const LinearSource& s, int row, int group) {
  const std::size_t i = static_cast<std::size_t>(row) * (s.in / s.group) + group;
  std::memcpy(at, s.scales + 2 * i, 2);
  std::memcpy(at + 2, s.biases + 2 * i, 2);
}

// The same as 20 bits: the bias and the whole number that gives the scale.
void put_compact(std::uint8_t* block, const LinearSource& s, int row, int group, int vector,
                 int lane) {
  const std::size_t i = static_cast<std::size_t>(row) * (s.in / s.group) + group;
  std::uint16_t scale, bias;
  std::memcpy(&scale, s.scales + 2 * i, 2);
  std::memcpy(&bias, s.biases + 2 * i, 2);
  for (int q = 1; q < 16; ++q) {
    if (f32_to_bf16(bf16_to_f32(bias) / static_cast<float>(-q)) != scale) continue;
    put_bits(block + (vector % 4 * 16 + lane) * 4, std::uint32_t{bias} << (vector / 4 * 16));
    put_bits(block + (64 + lane) * 4, static_cast<std::uint32_t>(q) << (4 * vector));
    return;
  }
  ADD_FAILURE() << "no whole number for row " << row << " group " << group;
}

std::vector<std::uint8_t> row_blocks_by_definition(const LinearSource& s, bool compact) {
  const RowBlocks w = plan_row_blocks(s, compact);
  std::vector<std::uint8_t> bytes(w.bytes());
  const int per = 32 / bits_of(w.kind);
  for (int o = 0; o < s.out; ++o) {
    for (int k = 0; k < s.in; ++k)
      put_bits(bytes.data() + row_block_offset(w, o, k), source_code(s, o, k)
                                                             << row_block_bit(w.kind, k % per));
    for (int g = 0; g < w.groups; ++g) {
      std::uint8_t* at = bytes.data() + o / kBlockRows * w.block_bytes() + w.scales_at(g);
      if (w.form == ScaleForm::kCompact) {
        put_compact(at, s, o, g, g % 2 * 4 + o % kBlockRows / 16, o % 16);
      } else {
        put_pair(at + o % kBlockRows * 4, s, o, g);
      }
    }
  }
  return bytes;
}

std::vector<std::uint8_t> neuron_major_by_definition(const LinearSource& s, bool compact) {
  const NeuronMajor w = plan_neuron_major(s, compact);
  std::vector<std::uint8_t> bytes(w.bytes());
  std::uint8_t* scales = bytes.data() + w.row_bytes() * w.in;
  for (int o = 0; o < s.out; ++o) {
    for (int n = 0; n < s.in; ++n)
      put_bits(bytes.data() + n * w.row_bytes() + neuron_dword(w.kind, o) * 4,
               source_code(s, o, n) << neuron_bit(w.kind, o));
    for (int g = 0; g < w.groups; ++g) {
      std::uint8_t* at = scales + g * w.scale_row_bytes();
      if (w.form == ScaleForm::kCompact) {
        put_compact(at + o / kColumnBlock * kCompactBlock, s, o, g, o % kColumnBlock / 16, o % 16);
      } else {
        put_pair(at + o * 4, s, o, g);
      }
    }
  }
  return bytes;
}

// The way of 4-bit codes, and the plain loop, bit for bit; from sources at odd addresses, into
// memory that holds something else, units in any order.
TEST(Pack, EveryByteIsAsDefined) {
  for (const int bits : {4, 3, 8}) {
    for (const int group : {32, 64, 128}) {
      for (const auto& [out, groups] : {std::pair{1, 1}, {63, 3}, {64, 2}, {65, 5}, {200, 3}}) {
        const RandomMatrix m({out, groups * group, bits, group, Dtype::kBf16}, 9);
        SCOPED_TRACE(to_string(MatrixSpec{out, groups * group, bits, group, Dtype::kBf16}));
        LinearSource s = m.source;
        std::vector<std::uint8_t> odd(1 + static_cast<std::size_t>(out) * s.row_bytes());
        std::memcpy(odd.data() + 1, s.weight, odd.size() - 1);
        s.weight = odd.data() + 1;

        EXPECT_EQ(has_compact_scales(s), bits <= 4);
        for (const bool compact : {false, bits <= 4}) {
          const RowBlocks rows = plan_row_blocks(s, compact);
          std::vector<std::uint8_t> bytes(rows.bytes(), 0xa5);
          for (int b = rows.blocks() - 1; b >= 0; --b)
            pack_row_block(s, rows, b, bytes.data() + b * rows.block_bytes());
          EXPECT_TRUE(bytes == row_blocks_by_definition(s, compact)) << "row blocks";

          const NeuronMajor neurons = plan_neuron_major(s, compact);
          bytes.assign(neurons.bytes(), 0xa5);
          for (int c = neurons.width() - kColumnBlock; c >= 0; c -= kColumnBlock)
            pack_neuron_columns(s, neurons, c, bytes.data(),
                                bytes.data() + neurons.row_bytes() * neurons.in);
          EXPECT_TRUE(bytes == neuron_major_by_definition(s, compact)) << "neuron-major";
        }
      }
    }
  }
}

// No byte of what was there stays in layouts of other kinds either.
TEST(Pack, EveryByteOfAUnitIsWritten) {
  for (const MatrixSpec& spec : kSpecs) {
    SCOPED_TRACE(to_string(spec));
    const RandomMatrix m(spec, 5);
    const bool compact = has_compact_scales(m.source);
    const RowBlocks rows = plan_row_blocks(m.source, compact);
    const NeuronMajor neurons = plan_neuron_major(m.source, compact);
    std::vector<std::uint8_t> filled[2][2];
    for (const int fill : {0, 1}) {
      auto& [a, b] = filled[fill];
      a.assign(rows.bytes(), fill == 0 ? 0x00 : 0xff);
      for (int i = 0; i < rows.blocks(); ++i)
        pack_row_block(m.source, rows, i, a.data() + i * rows.block_bytes());
      b.assign(neurons.bytes(), fill == 0 ? 0x00 : 0xff);
      for (int c = 0; c < spec.out; c += kColumnBlock)
        pack_neuron_columns(m.source, neurons, c, b.data(),
                            b.data() + neurons.row_bytes() * neurons.in);
    }
    EXPECT_TRUE(filled[0][0] == filled[1][0]);
    EXPECT_TRUE(filled[0][1] == filled[1][1]);
  }
}

// Both forms give the checkpoint's own scale and bias, bit for bit; what a form cannot hold is told
// apart before.
TEST(Pack, CompactScalesAreTheCheckpointsOwn) {
  RandomMatrix m({130, 256, 4, 64, Dtype::kBf16}, 13);
  const PackedRows rows(m.source, true), plain_rows(m.source);
  const PackedNeurons neurons(m.source, true), plain_neurons(m.source);
  ASSERT_EQ(rows.w.form, ScaleForm::kCompact);
  ASSERT_EQ(neurons.w.form, ScaleForm::kCompact);
  EXPECT_LT(rows.w.bytes(), plain_rows.w.bytes());
  EXPECT_LT(neurons.w.bytes(), plain_neurons.w.bytes());
  for (int o = 0; o < 130; ++o) {
    for (int g = 0; g < 4; ++g) {
      const ScaleBias want = row_block_scale(plain_rows.w, o, g);
      for (const ScaleBias got : {row_block_scale(rows.w, o, g), neuron_scale(neurons.w, g, o)}) {
        ASSERT_EQ(std::bit_cast<std::uint32_t>(got.scale),
                  std::bit_cast<std::uint32_t>(want.scale));
        ASSERT_EQ(std::bit_cast<std::uint32_t>(got.bias), std::bit_cast<std::uint32_t>(want.bias));
      }
    }
  }
  // One scale that does not follow, a zero one, a tiny one: each keeps the whole matrix in pairs.
  auto* scales = const_cast<std::uint8_t*>(m.source.scales);
  const std::size_t last = m.source.scale_bytes() - 2;
  std::uint16_t right;
  std::memcpy(&right, scales + last, 2);
  for (const int wrong : {right + 1, 0, 0x0080}) {
    const auto bits = static_cast<std::uint16_t>(wrong);
    std::memcpy(scales + last, &bits, 2);
    EXPECT_FALSE(has_compact_scales(m.source)) << wrong;
  }
  std::memcpy(scales + last, &right, 2);
  EXPECT_TRUE(has_compact_scales(m.source));
  EXPECT_EQ(plan_row_blocks(RandomMatrix({8, 192, 4, 64, Dtype::kBf16}, 1).source, true).form,
            ScaleForm::kPairs)
      << "three groups";
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
