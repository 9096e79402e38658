// SPDX-License-Identifier: Apache-2.0
// Weight matrices in the two layouts that the CPU kernels read, each weight once.
//
// The values are the checkpoint's: integer codes with a scale and a bias per group, or plain
// floats. Nothing is quantised again; `pack.h` only moves bits.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lacuna {

// How one weight is stored. 2- and 3-bit codes ride in kQ4, 5- and 6-bit codes in kQ8; F16 becomes
// F32.
enum class PackKind : std::uint32_t { kQ4, kQ8, kBf16, kF32 };

inline bool is_quantized(PackKind kind) { return kind == PackKind::kQ4 || kind == PackKind::kQ8; }
inline int bits_of(PackKind kind) {
  constexpr int kBits[] = {4, 8, 16, 32};
  return kBits[static_cast<int>(kind)];
}

// Codes enter the sums as code + kCodeOffset: a 4-bit code becomes the float 16 + code by placing
// it in the mantissa of 16.0, without a conversion. The offset leaves again through the bias, which
// counts as bias − kCodeOffset · scale.
inline float code_offset(PackKind kind) { return kind == PackKind::kQ4 ? 16.0f : 0.0f; }

inline constexpr int kBlockRows = 64;  // outputs of a row block: four tiles of 16 lanes
inline constexpr int kColumnBlock = 128;  // outputs of a neuron-major column block
inline constexpr int kPlainGroup = 64;    // group of weights that have no scales

// Row blocks: outputs in lanes. Used by every projection but the ReLU² down projections.
//
//   block b holds outputs [64b, 64b + 64), padded with zero rows; a block is `groups` records in
//   order; a record is the codes of one group, then its scales:
//     codes   [group · bits / 32][4 tiles][16 lanes] dwords, each 32 / bits inputs of one output
//     scales  [4][16] dwords, scale in the low and bias in the high half (bf16); or, when `wide`,
//             [4][16] scales then [4][16] biases (float32). Plain weights have none.
//   In a dword, input k of the dword sits
//     kQ4    at bit 16·(1 − k%2) + 4·(k/2)   (even inputs in the high half)
//     kQ8    at bit 8·k
//     kBf16  at bit 16·(1 − k)               (the even input in the high half)
//   because the bf16 dot product takes the high half of a pair first: sums run over rising k.
struct RowBlocks {
  PackKind kind = PackKind::kQ4;
  bool wide = false;  // scales are float32
  int out = 0, in = 0;
  int group = 0, groups = 0;  // groups · group ≥ in, the rest is zero
  const std::uint8_t* data = nullptr;

  int blocks() const { return (out + kBlockRows - 1) / kBlockRows; }
  std::size_t code_bytes() const {  // of one record
    return static_cast<std::size_t>(group) * bits_of(kind) / 8 * kBlockRows;
  }
  std::size_t scale_bytes() const {
    return is_quantized(kind) ? std::size_t{kBlockRows} * (wide ? 8 : 4) : 0;
  }
  std::size_t block_bytes() const { return (code_bytes() + scale_bytes()) * groups; }
  std::size_t bytes() const { return block_bytes() * blocks(); }
};

// Neuron-major: one row per input (a neuron of an expert), outputs along it. A neuron that is 0 is
// a row that is not read.
//
//   rows    [in][width] codes, width = out rounded up to 128; of the 512 / bits outputs
//           that a 64-byte line holds, output 16·p + L is item p of the dword in lane L (bf16: item
//           0 in the low half)
//   scales  [groups][width] dwords as above; or, when `wide`, [groups][2][width] float32
struct NeuronMajor {
  PackKind kind = PackKind::kQ4;
  bool wide = false;
  int out = 0, in = 0;
  int group = 0, groups = 0;
  const std::uint8_t* rows = nullptr;
  const std::uint8_t* scales = nullptr;

  int width() const { return (out + kColumnBlock - 1) / kColumnBlock * kColumnBlock; }
  std::size_t row_bytes() const { return static_cast<std::size_t>(width()) * bits_of(kind) / 8; }
  std::size_t scale_row_bytes() const {  // of one group; 0 for plain weights
    return is_quantized(kind) ? static_cast<std::size_t>(width()) * (wide ? 8 : 4) : 0;
  }
  std::size_t bytes() const { return row_bytes() * in + scale_row_bytes() * groups; }
};

}  // namespace lacuna
