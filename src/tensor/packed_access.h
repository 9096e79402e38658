// SPDX-License-Identifier: Apache-2.0
// One weight of a packed matrix by its coordinates: what the layout comments of packed.h mean, as
// code. For scalar definitions, tests and packing; vector kernels have their own ways.
#pragma once

#include <cstring>

#include "tensor/dtype.h"
#include "tensor/packed.h"

namespace lacuna {

struct ScaleBias {
  float scale, bias;
};

namespace packed_detail {

inline std::uint32_t dword(const std::uint8_t* p, std::size_t index) {
  std::uint32_t v;
  std::memcpy(&v, p + 4 * index, 4);
  return v;
}
inline float f32(const std::uint8_t* p, std::size_t index) {
  float v;
  std::memcpy(&v, p + 4 * index, 4);
  return v;
}
inline ScaleBias split(std::uint32_t pair) {
  return {bf16_to_f32(static_cast<std::uint16_t>(pair)),
          bf16_to_f32(static_cast<std::uint16_t>(pair >> 16))};
}
// The plain weight or integer code in item `i` of a dword, at bit `at`.
inline float item(PackKind kind, std::uint32_t v, int at) {
  switch (kind) {
    case PackKind::kQ4:
      return static_cast<float>((v >> at) & 15u);
    case PackKind::kQ8:
      return static_cast<float>((v >> at) & 255u);
    case PackKind::kBf16:
      return bf16_to_f32(static_cast<std::uint16_t>(v >> at));
    case PackKind::kF32:
      return std::bit_cast<float>(v);
  }
  return 0.0f;
}

inline ScaleBias compact(const std::uint8_t* block, int vector, int lane) {
  const std::uint32_t biases = dword(block, static_cast<std::size_t>(vector % 4) * 16 + lane);
  const std::uint32_t q = dword(block, std::size_t{64} + lane) >> (4 * vector) & 15u;
  const float bias = bf16_to_f32(static_cast<std::uint16_t>(biases >> (vector / 4 * 16)));
  return {compact_scale(bias, static_cast<int>(q)), bias};
}

}  // namespace packed_detail

// Bit position of input k (of the 32 / bits inputs) in a dword of row blocks.
inline int row_block_bit(PackKind kind, int k) {
  switch (kind) {
    case PackKind::kQ4:
      return 16 * (1 - k % 2) + 4 * (k / 2);
    case PackKind::kQ8:
      return 8 * k;
    case PackKind::kBf16:
      return 16 * (1 - k);
    case PackKind::kF32:
      return 0;
  }
  return 0;
}

// Byte offset of the dword of output `out` and input `k`, from RowBlocks::data.
inline std::size_t row_block_offset(const RowBlocks& w, int out, int k) {
  const int per = 32 / bits_of(w.kind);
  return static_cast<std::size_t>(out / kBlockRows) * w.block_bytes() + w.codes_at(k / w.group) +
         (static_cast<std::size_t>(k % w.group / per) * kBlockRows + out % kBlockRows) * 4;
}

// Code or plain weight of output `out`, input `k`.
inline float row_block_weight(const RowBlocks& w, int out, int k) {
  const int per = 32 / bits_of(w.kind);
  return packed_detail::item(w.kind, packed_detail::dword(w.data + row_block_offset(w, out, k), 0),
                             row_block_bit(w.kind, k % per));
}

inline ScaleBias row_block_scale(const RowBlocks& w, int out, int group) {
  const std::uint8_t* s =
      w.data + static_cast<std::size_t>(out / kBlockRows) * w.block_bytes() + w.scales_at(group);
  const int lane = out % kBlockRows;
  switch (w.form) {
    case ScaleForm::kPairs:
      return packed_detail::split(packed_detail::dword(s, lane));
    case ScaleForm::kWide:
      return {packed_detail::f32(s, lane), packed_detail::f32(s, kBlockRows + lane)};
    case ScaleForm::kCompact:
      return packed_detail::compact(s, group % 2 * 4 + lane / 16, lane % 16);
  }
  return {};
}

// Dword index within a row, and bit in it, of output `out` of a neuron-major row.
inline std::size_t neuron_dword(PackKind kind, int out) {
  const int line = 512 / bits_of(kind);
  return static_cast<std::size_t>(out / line) * 16 + out % 16;
}
inline int neuron_bit(PackKind kind, int out) {
  const int line = 512 / bits_of(kind);
  return out % line / 16 * bits_of(kind);
}

inline float neuron_weight(const NeuronMajor& w, int neuron, int out) {
  const std::uint8_t* row = w.rows + static_cast<std::size_t>(neuron) * w.row_bytes();
  return packed_detail::item(w.kind, packed_detail::dword(row, neuron_dword(w.kind, out)),
                             neuron_bit(w.kind, out));
}

inline ScaleBias neuron_scale(const NeuronMajor& w, int group, int out) {
  const std::uint8_t* s = w.scales + static_cast<std::size_t>(group) * w.scale_row_bytes();
  switch (w.form) {
    case ScaleForm::kPairs:
      return packed_detail::split(packed_detail::dword(s, out));
    case ScaleForm::kWide:
      return {packed_detail::f32(s, out), packed_detail::f32(s, w.width() + out)};
    case ScaleForm::kCompact:
      return packed_detail::compact(
          s + static_cast<std::size_t>(out / kColumnBlock) * kCompactBlock, out % kColumnBlock / 16,
          out % 16);
  }
  return {};
}

}  // namespace lacuna
