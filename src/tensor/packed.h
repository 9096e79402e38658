// SPDX-License-Identifier: Apache-2.0
// Weight matrices in the two layouts that the CPU kernels read, each weight once.
//
// The values are the checkpoint's: integer codes with a scale and a bias per group, or plain
// floats. Nothing is quantised again; `pack.h` only moves bits.
#pragma once

#include <bit>
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

// How a group's scale and bias are stored for 16 lanes.
//   kPairs    a dword a lane: scale in the low, bias in the high half (bf16)
//   kWide     float32 scales, then float32 biases
//   kCompact  the bias as bf16 and four bits q from which the scale follows (see compact_scale):
//             20 bits for 32. Only for matrices where that gives every scale's own bits.
enum class ScaleForm : std::uint32_t { kPairs, kWide, kCompact };

// MLX's quantiser takes one extreme weight of a group as its bias and the bias divided by a whole
// number, −q, as its scale. So the bf16 scale is this product, rounded (ties away from zero).
inline constexpr float kCompactFactor[16] = {
    0.0f,      -1.0f,     -1.0f / 2,  -1.0f / 3,  -1.0f / 4,  -1.0f / 5,  -1.0f / 6,  -1.0f / 7,
    -1.0f / 8, -1.0f / 9, -1.0f / 10, -1.0f / 11, -1.0f / 12, -1.0f / 13, -1.0f / 14, -1.0f / 15};
inline float compact_scale(float bias, int q) {
  const auto bits = std::bit_cast<std::uint32_t>(bias * kCompactFactor[q]);
  return std::bit_cast<float>((bits + 0x8000u) & 0xffff0000u);
}
// Compact scales come in blocks for 8 vectors of 16 lanes: four lines whose dwords hold the bias of
// vector v in the low and of vector v + 4 in the high half (v = 0…3), then one line whose dwords
// hold q of vector v in nibble v.
inline constexpr std::size_t kCompactBlock = 320;

inline constexpr int kBlockRows = 64;     // outputs of a row block: four tiles of 16 lanes
inline constexpr int kColumnBlock = 128;  // outputs of a neuron-major column block
inline constexpr int kPlainGroup = 64;    // group of weights that have no scales

// Row blocks: outputs in lanes. Used by every projection but the ReLU² down projections.
//
//   block b holds outputs [64b, 64b + 64), padded with zero rows; a block is records in order, each
//   the codes of one group, then its scales; with compact scales, the codes of an even group, the
//   scales of it and the next as one compact block (vector 4·(g%2) + tile), the codes of the next:
//   a walk over the groups then meets every cache line in order, which is what the hardware's
//   prefetcher follows. `groups` is even then.
//     codes   [group · bits / 32][4 tiles][16 lanes] dwords, each 32 / bits inputs of one output
//     scales  [4][16] dwords; or, when wide, [4][16] scales then [4][16] biases (float32). Plain
//             weights have none.
//   In a dword, input k of the dword sits
//     kQ4    at bit 16·(1 − k%2) + 4·(k/2)   (even inputs in the high half)
//     kQ8    at bit 8·k
//     kBf16  at bit 16·(1 − k)               (the even input in the high half)
//   because the bf16 dot product takes the high half of a pair first: sums run over rising k.
struct RowBlocks {
  PackKind kind = PackKind::kQ4;
  ScaleForm form = ScaleForm::kPairs;
  int out = 0, in = 0;
  int group = 0, groups = 0;  // groups · group ≥ in, the rest is zero
  const std::uint8_t* data = nullptr;

  int blocks() const { return (out + kBlockRows - 1) / kBlockRows; }
  std::size_t code_bytes() const {  // of one group of a block
    return static_cast<std::size_t>(group) * bits_of(kind) / 8 * kBlockRows;
  }
  int record_groups() const { return form == ScaleForm::kCompact ? 2 : 1; }
  std::size_t scale_bytes() const {  // of a record
    if (!is_quantized(kind)) return 0;
    if (form == ScaleForm::kCompact) return kCompactBlock;
    return std::size_t{kBlockRows} * (form == ScaleForm::kWide ? 8 : 4);
  }
  std::size_t record_bytes() const { return code_bytes() * record_groups() + scale_bytes(); }
  // In a block: the codes of group g, and the scales of the record it is in.
  std::size_t codes_at(int g) const {
    return record_bytes() * (g / record_groups()) +
           (code_bytes() + scale_bytes()) * (g % record_groups());
  }
  std::size_t scales_at(int g) const {
    return record_bytes() * (g / record_groups()) + code_bytes();
  }
  std::size_t block_bytes() const { return record_bytes() * (groups / record_groups()); }
  std::size_t bytes() const { return block_bytes() * blocks(); }
};

// Neuron-major: one row per input (a neuron of an expert), outputs along it. A neuron that is 0 is
// a row that is not read.
//
//   rows    [in][width] codes, width = out rounded up to 128; of the 512 / bits outputs
//           that a 64-byte line holds, output 16·p + L is item p of the dword in lane L (bf16: item
//           0 in the low half)
//   scales  [groups][width] dwords; or, when wide, [groups][2][width] float32; or, when compact,
//           [groups][width / 128] compact blocks (vector v: outputs [16v, 16v + 16) of the 128)
struct NeuronMajor {
  PackKind kind = PackKind::kQ4;
  ScaleForm form = ScaleForm::kPairs;
  int out = 0, in = 0;
  int group = 0, groups = 0;
  const std::uint8_t* rows = nullptr;
  const std::uint8_t* scales = nullptr;

  int width() const { return (out + kColumnBlock - 1) / kColumnBlock * kColumnBlock; }
  std::size_t row_bytes() const { return static_cast<std::size_t>(width()) * bits_of(kind) / 8; }
  std::size_t scale_row_bytes() const {  // of one group; 0 for plain weights
    if (!is_quantized(kind)) return 0;
    const auto columns = static_cast<std::size_t>(width());
    if (form == ScaleForm::kCompact) return columns / kColumnBlock * kCompactBlock;
    return columns * (form == ScaleForm::kWide ? 8 : 4);
  }
  std::size_t bytes() const { return row_bytes() * in + scale_row_bytes() * groups; }
};

}  // namespace lacuna
