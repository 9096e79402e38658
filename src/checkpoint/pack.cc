// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/pack.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "tensor/packed_access.h"

namespace lacuna {
namespace {

float plain_value(Dtype dtype, const std::uint8_t* p, std::size_t i) {
  if (dtype == Dtype::kF32) {
    float f;
    std::memcpy(&f, p + 4 * i, 4);
    return f;
  }
  std::uint16_t h;
  std::memcpy(&h, p + 2 * i, 2);
  return dtype == Dtype::kBf16 ? bf16_to_f32(h) : f16_to_f32(h);
}

// The codes of inputs [begin, begin + count) of one row, one a byte.
void read_codes(const LinearSource& s, int row, int begin, int count, std::uint8_t* codes) {
  const std::uint8_t* p = s.weight + static_cast<std::size_t>(row) * s.row_bytes();
  if (s.bits == 4) {
    for (int k = 0; k < count; ++k) {
      codes[k] = p[(begin + k) / 2] >> ((begin + k) % 2 * 4) & 15;
    }
    return;
  }
  const unsigned mask = (1u << s.bits) - 1;
  for (int k = 0; k < count; ++k) {
    const int bit = (begin + k) * s.bits;
    unsigned window = p[bit / 8];
    if (bit % 8 + s.bits > 8) window |= static_cast<unsigned>(p[bit / 8 + 1]) << 8;
    codes[k] = static_cast<std::uint8_t>(window >> (bit % 8) & mask);
  }
}

// What one item of a packed dword holds, as raw bits.
std::uint32_t plain_bits(const LinearSource& s, PackKind kind, int row, int k) {
  const std::size_t i = static_cast<std::size_t>(row) * s.in + k;
  if (kind == PackKind::kBf16) {
    std::uint16_t h;
    std::memcpy(&h, s.weight + 2 * i, 2);
    return h;
  }
  return std::bit_cast<std::uint32_t>(plain_value(s.dtype, s.weight, i));
}

ScaleBias source_scale(const LinearSource& s, int row, int group) {
  const std::size_t i = static_cast<std::size_t>(row) * (s.in / s.group) + group;
  return {plain_value(s.dtype, s.scales, i), plain_value(s.dtype, s.biases, i)};
}

void put_scale(ScaleBias v, bool wide, std::uint8_t* at, std::size_t lane, std::size_t lanes) {
  if (wide) {
    std::memcpy(at + 4 * lane, &v.scale, 4);
    std::memcpy(at + 4 * (lanes + lane), &v.bias, 4);
    return;
  }
  const std::uint32_t pair =
      static_cast<std::uint32_t>(f32_to_bf16(v.bias)) << 16 | f32_to_bf16(v.scale);
  std::memcpy(at + 4 * lane, &pair, 4);
}

// Raw bits of a row's items in [begin, begin + count), one a dword; inputs beyond the row are 0.
void read_items(const LinearSource& s, PackKind kind, int row, int begin, int count,
                std::uint32_t* items) {
  const int there = std::clamp(s.in - begin, 0, count);
  std::fill(items + there, items + count, 0u);
  if (!s.quantized) {
    for (int k = 0; k < there; ++k) items[k] = plain_bits(s, kind, row, begin + k);
    return;
  }
  std::vector<std::uint8_t> codes(there);
  read_codes(s, row, begin, there, codes.data());
  std::copy(codes.begin(), codes.end(), items);
}

PackKind kind_of(const LinearSource& s) {
  if (s.quantized) return s.bits <= 4 ? PackKind::kQ4 : PackKind::kQ8;
  return s.dtype == Dtype::kBf16 ? PackKind::kBf16 : PackKind::kF32;
}

template <class Layout>
Layout plan(const LinearSource& s) {
  Layout w;
  w.kind = kind_of(s);
  w.wide = s.quantized && s.dtype != Dtype::kBf16;
  w.out = s.out;
  w.in = s.in;
  w.group = s.quantized ? s.group : kPlainGroup;
  w.groups = (s.in + w.group - 1) / w.group;
  return w;
}

}  // namespace

RowBlocks plan_row_blocks(const LinearSource& source) { return plan<RowBlocks>(source); }
NeuronMajor plan_neuron_major(const LinearSource& source) { return plan<NeuronMajor>(source); }

void pack_row_block(const LinearSource& source, const RowBlocks& layout, int block,
                    std::uint8_t* out) {
  std::memset(out, 0, layout.block_bytes());
  const int per = 32 / bits_of(layout.kind);
  const std::size_t record = layout.code_bytes() + layout.scale_bytes();
  std::vector<std::uint32_t> items(layout.group);
  const int rows = std::min(kBlockRows, source.out - block * kBlockRows);
  for (int r = 0; r < rows; ++r) {
    const int row = block * kBlockRows + r;
    for (int g = 0; g < layout.groups; ++g) {
      std::uint8_t* at = out + g * record;
      read_items(source, layout.kind, row, g * layout.group, layout.group, items.data());
      for (int k = 0; k < layout.group; k += per) {
        std::uint32_t v = 0;
        for (int i = 0; i < per; ++i) v |= items[k + i] << row_block_bit(layout.kind, i);
        std::memcpy(at + (static_cast<std::size_t>(k / per) * kBlockRows + r) * 4, &v, 4);
      }
      if (source.quantized) {
        put_scale(source_scale(source, row, g), layout.wide, at + layout.code_bytes(), r,
                  kBlockRows);
      }
    }
  }
}

void pack_neuron_columns(const LinearSource& source, const NeuronMajor& layout, int column,
                         std::uint8_t* rows, std::uint8_t* scales) {
  const int outputs = std::min(kColumnBlock, source.out - column);
  std::vector<std::uint32_t> items(layout.group);
  for (int g = 0; g < layout.groups; ++g) {
    const int neurons = std::min(layout.group, source.in - g * layout.group);
    for (int d = 0; d < outputs; ++d) {
      read_items(source, layout.kind, column + d, g * layout.group, layout.group, items.data());
      const std::size_t at = neuron_dword(layout.kind, column + d) * 4;
      const int bit = neuron_bit(layout.kind, column + d);
      for (int n = 0; n < neurons; ++n) {
        std::uint8_t* p =
            rows + static_cast<std::size_t>(g * layout.group + n) * layout.row_bytes() + at;
        std::uint32_t v;
        std::memcpy(&v, p, 4);
        v |= items[n] << bit;
        std::memcpy(p, &v, 4);
      }
      if (source.quantized) {
        put_scale(source_scale(source, column + d, g), layout.wide,
                  scales + static_cast<std::size_t>(g) * layout.scale_row_bytes(), column + d,
                  layout.width());
      }
    }
  }
}

void dequantize_row(const LinearSource& source, int row, float* out) {
  if (!source.quantized) {
    const std::size_t first = static_cast<std::size_t>(row) * source.in;
    for (int k = 0; k < source.in; ++k)
      out[k] = plain_value(source.dtype, source.weight, first + k);
    return;
  }
  std::vector<std::uint8_t> codes(source.in);
  read_codes(source, row, 0, source.in, codes.data());
  for (int k = 0; k < source.in; ++k) {
    const ScaleBias s = source_scale(source, row, k / source.group);
    out[k] = std::fma(s.scale, static_cast<float>(codes[k]), s.bias);
  }
}

}  // namespace lacuna
