// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/pack.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "tensor/packed_access.h"

namespace lacuna {
namespace {

constexpr int kMostGroup = 128;  // of the group sizes a checkpoint may have

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

struct RawPair {
  std::uint16_t scale, bias;
};
RawPair raw_pair(const LinearSource& s, int row, int group) {
  const std::size_t i = static_cast<std::size_t>(row) * (s.in / s.group) + group;
  RawPair pair;
  std::memcpy(&pair.scale, s.scales + 2 * i, 2);
  std::memcpy(&pair.bias, s.biases + 2 * i, 2);
  return pair;
}

// The q of a pair, or 0 when there is none that gives the scale's bits.
int compact_q(RawPair pair) {
  const float scale = bf16_to_f32(pair.scale);
  const float bias = bf16_to_f32(pair.bias);
  if ((pair.scale & 0x7f80) < 0x0100) return 0;  // the product may be lost where denormals are
  const float q = std::nearbyint(-bias / scale);
  if (!(q >= 1.0f && q <= 15.0f)) return 0;
  const int whole = static_cast<int>(q);
  return f32_to_bf16(compact_scale(bias, whole)) == pair.scale ? whole : 0;
}

// Scale and bias of one group of `row` to lane `lane` of the `lanes` at `at`.
void put_scale(const LinearSource& s, int row, int group, ScaleForm form, std::uint8_t* at,
               std::size_t lane, std::size_t lanes) {
  if (form == ScaleForm::kWide) {
    const ScaleBias v = source_scale(s, row, group);
    std::memcpy(at + 4 * lane, &v.scale, 4);
    std::memcpy(at + 4 * (lanes + lane), &v.bias, 4);
    return;
  }
  const RawPair pair = raw_pair(s, row, group);
  std::memcpy(at + 4 * lane, &pair.scale, 2);
  std::memcpy(at + 4 * lane + 2, &pair.bias, 2);
}

// The same to a compact block (zero before): vector `vector`, lane `lane` of 16.
void put_compact(const LinearSource& s, int row, int group, std::uint8_t* block, int vector,
                 int lane) {
  const RawPair pair = raw_pair(s, row, group);
  std::memcpy(block + (vector % 4 * 16 + lane) * 4 + vector / 4 * 2, &pair.bias, 2);
  const int q = compact_q(pair);
  block[(64 + lane) * 4 + vector / 2] |= static_cast<std::uint8_t>(q << (vector % 2 * 4));
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
  std::uint8_t codes[kMostGroup];
  read_codes(s, row, begin, there, codes);
  std::copy(codes, codes + there, items);
}

PackKind kind_of(const LinearSource& s) {
  if (s.quantized) return s.bits <= 4 ? PackKind::kQ4 : PackKind::kQ8;
  return s.dtype == Dtype::kBf16 ? PackKind::kBf16 : PackKind::kF32;
}

template <class Layout>
Layout plan(const LinearSource& s, bool compact) {
  Layout w;
  w.kind = kind_of(s);
  if (s.quantized && s.dtype != Dtype::kBf16) {
    w.form = ScaleForm::kWide;
  } else if (compact && w.kind == PackKind::kQ4) {
    w.form = ScaleForm::kCompact;
  }
  w.out = s.out;
  w.in = s.in;
  w.group = s.quantized ? s.group : kPlainGroup;
  w.groups = (s.in + w.group - 1) / w.group;
  return w;
}

bool moves_nibbles(const LinearSource& s) { return s.quantized && s.bits == 4; }

// Codes of one group of up to 64 rows into a record, one by one.
void record_codes(const LinearSource& s, const RowBlocks& w, int first, int rows, int group,
                  std::uint8_t* out) {
  const int per = 32 / bits_of(w.kind);
  std::uint32_t items[kMostGroup];
  for (int r = 0; r < rows; ++r) {
    read_items(s, w.kind, first + r, group * w.group, w.group, items);
    for (int k = 0; k < w.group; k += per) {
      std::uint32_t v = 0;
      for (int i = 0; i < per; ++i) v |= items[k + i] << row_block_bit(w.kind, i);
      std::memcpy(out + (static_cast<std::size_t>(k / per) * kBlockRows + r) * 4, &v, 4);
    }
  }
}

// The low nibbles of four bytes, side by side in the low half.
std::uint32_t join_nibbles(std::uint32_t v) {
  v &= 0x0f0f0f0fu;
  v = (v | v >> 4) & 0x00ff00ffu;
  return (v | v >> 8) & 0xffffu;
}

// The same for 4-bit codes: the checkpoint's dword of eight inputs becomes the record's with the
// even inputs in its high half.
void record_nibbles(const LinearSource& s, const RowBlocks& w, int first, int rows, int group,
                    std::uint8_t* out) {
  const int dwords = w.group / 8;
  std::uint32_t v[kMostGroup / 8];
  for (int r = 0; r < rows; ++r) {
    const std::size_t row = static_cast<std::size_t>(first + r) * s.row_bytes();
    std::memcpy(v, s.weight + row + static_cast<std::size_t>(group) * dwords * 4, 4 * dwords);
    for (int k = 0; k < dwords; ++k) v[k] = join_nibbles(v[k]) << 16 | join_nibbles(v[k] >> 4);
    for (int k = 0; k < dwords; ++k)
      std::memcpy(out + (static_cast<std::size_t>(k) * kBlockRows + r) * 4, &v[k], 4);
  }
}

// Codes of one group of neurons into their rows, for outputs [column, column + outputs), one by
// one.
void neuron_codes(const LinearSource& s, const NeuronMajor& w, int column, int outputs, int group,
                  std::uint8_t* rows) {
  const int first = group * w.group;
  const int neurons = std::min(w.group, s.in - first);
  const auto row = [&](int n) {
    return rows + static_cast<std::size_t>(first + n) * w.row_bytes();
  };
  for (int n = 0; n < neurons; ++n) {
    std::memset(row(n) + neuron_dword(w.kind, column) * 4, 0, kColumnBlock * bits_of(w.kind) / 8);
  }
  std::uint32_t items[kMostGroup];
  for (int o = column; o < column + outputs; ++o) {
    read_items(s, w.kind, o, first, w.group, items);
    for (int n = 0; n < neurons; ++n) {
      std::uint8_t* p = row(n) + neuron_dword(w.kind, o) * 4;
      std::uint32_t v;
      std::memcpy(&v, p, 4);
      v |= items[n] << neuron_bit(w.kind, o);
      std::memcpy(p, &v, 4);
    }
  }
}

// Nibble i of word j becomes nibble j of word i, in each of 16 lanes: halves, then quarters, then
// single nibbles change places.
void transpose_nibbles(std::uint32_t (&words)[8][16]) {
  constexpr struct {
    int distance;
    std::uint32_t mask;
  } kSteps[] = {{4, 0x0000ffffu}, {2, 0x00ff00ffu}, {1, 0x0f0f0f0fu}};
  for (const auto& step : kSteps) {
    const int shift = 4 * step.distance;
    for (int i = 0; i < 8; ++i) {
      if ((i & step.distance) != 0) continue;
      std::uint32_t* low = words[i];
      std::uint32_t* high = words[i + step.distance];
      for (int lane = 0; lane < 16; ++lane) {
        const std::uint32_t swap = (low[lane] >> shift ^ high[lane]) & step.mask;
        high[lane] ^= swap;
        low[lane] ^= swap << shift;
      }
    }
  }
}

// The same for 4-bit codes. A row of the layout has output 16·p + L of the block in nibble p of
// lane L, so eight neurons of 128 outputs are 16 transpositions side by side.
void neuron_nibbles(const LinearSource& s, const NeuronMajor& w, int column, int outputs, int group,
                    std::uint8_t* rows) {
  const int eights = w.group / 8;
  alignas(64) std::uint32_t words[kMostGroup / 8][8][16];
  if (outputs < kColumnBlock) std::memset(words, 0, sizeof words);
  for (int o = 0; o < outputs; ++o) {
    const std::uint8_t* p = s.weight + static_cast<std::size_t>(column + o) * s.row_bytes() +
                            static_cast<std::size_t>(group) * eights * 4;
    for (int e = 0; e < eights; ++e) std::memcpy(&words[e][o / 16][o % 16], p + 4 * e, 4);
  }
  std::uint8_t* out = rows + static_cast<std::size_t>(group) * w.group * w.row_bytes() +
                      neuron_dword(w.kind, column) * 4;
  for (int e = 0; e < eights; ++e) {
    transpose_nibbles(words[e]);
    for (int n = 0; n < 8; ++n, out += w.row_bytes()) std::memcpy(out, words[e][n], 64);
  }
}

}  // namespace

bool has_compact_scales(const LinearSource& source) {
  if (kind_of(source) != PackKind::kQ4 || source.dtype != Dtype::kBf16) return false;
  const int groups = source.in / source.group;
  for (int row = 0; row < source.out; ++row) {
    for (int g = 0; g < groups; ++g) {
      if (compact_q(raw_pair(source, row, g)) == 0) return false;
    }
  }
  return true;
}

RowBlocks plan_row_blocks(const LinearSource& source, bool compact) {
  return plan<RowBlocks>(source, compact && source.quantized && source.in / source.group % 2 == 0);
}
NeuronMajor plan_neuron_major(const LinearSource& source, bool compact) {
  return plan<NeuronMajor>(source, compact);
}

void pack_row_block(const LinearSource& source, const RowBlocks& layout, int block,
                    std::uint8_t* out) {
  const int first = block * kBlockRows;
  const int rows = std::min(kBlockRows, source.out - first);
  const auto move_codes = moves_nibbles(source) ? record_nibbles : record_codes;
  if (rows < kBlockRows) std::memset(out, 0, layout.block_bytes());
  for (int g = 0; g < layout.groups; ++g) {
    move_codes(source, layout, first, rows, g, out + layout.codes_at(g));
    if (!source.quantized) continue;
    std::uint8_t* scales = out + layout.scales_at(g);
    if (layout.form == ScaleForm::kCompact) {
      if (g % 2 == 0) std::memset(scales, 0, kCompactBlock);
      for (int r = 0; r < rows; ++r)
        put_compact(source, first + r, g, scales, g % 2 * 4 + r / 16, r % 16);
    } else {
      for (int r = 0; r < rows; ++r)
        put_scale(source, first + r, g, layout.form, scales, r, kBlockRows);
    }
  }
}

void pack_neuron_columns(const LinearSource& source, const NeuronMajor& layout, int column,
                         std::uint8_t* rows, std::uint8_t* scales) {
  const int outputs = std::min(kColumnBlock, source.out - column);
  const auto move_codes = moves_nibbles(source) ? neuron_nibbles : neuron_codes;
  for (int g = 0; g < layout.groups; ++g) {
    move_codes(source, layout, column, outputs, g, rows);
    if (!source.quantized) continue;
    std::uint8_t* at = scales + static_cast<std::size_t>(g) * layout.scale_row_bytes();
    if (layout.form == ScaleForm::kCompact) {
      std::uint8_t* block = at + static_cast<std::size_t>(column / kColumnBlock) * kCompactBlock;
      std::memset(block, 0, kCompactBlock);
      for (int o = 0; o < outputs; ++o) put_compact(source, column + o, g, block, o / 16, o % 16);
      continue;
    }
    for (int part = 0; part < (layout.form == ScaleForm::kWide ? 2 : 1); ++part)
      std::memset(at + 4 * (part * layout.width() + column), 0, 4 * kColumnBlock);
    for (int o = column; o < column + outputs; ++o)
      put_scale(source, o, g, layout.form, at, o, layout.width());
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
