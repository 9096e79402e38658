// SPDX-License-Identifier: Apache-2.0
// Random matrices in a checkpoint's layout, and both packed forms of them, for op tests and
// benches.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "base/memory.h"
#include "checkpoint/linear_source.h"
#include "checkpoint/pack.h"
#include "tensor/packed.h"

namespace lacuna {

// splitmix64: the same numbers on every platform.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t bits() {
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15ull;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return z ^ z >> 31;
  }
  float uniform() { return static_cast<float>(bits() >> 40) * 0x1p-23f - 1.0f; }  // [−1, 1)
  int below(int n) { return static_cast<int>(bits() % static_cast<std::uint64_t>(n)); }
  std::vector<float> vector(std::size_t n) {
    std::vector<float> v(n);
    for (auto& x : v) x = uniform();
    return v;
  }

 private:
  std::uint64_t state_;
};

struct MatrixSpec {
  int out, in;
  int bits;  // 0: plain weights of `dtype`
  int group;
  Dtype dtype;
};

inline std::string to_string(const MatrixSpec& m) {
  return "[" + std::to_string(m.out) + "," + std::to_string(m.in) + "] bits " +
         std::to_string(m.bits) + " group " + std::to_string(m.group) + " " + dtype_name(m.dtype);
}

// Owns what a LinearSource points to.
class RandomMatrix {
 public:
  RandomMatrix(const MatrixSpec& m, std::uint64_t seed) {
    Random random(seed);
    source.name = "random";
    source.out = m.out;
    source.in = m.in;
    source.dtype = m.dtype;
    const std::size_t count = static_cast<std::size_t>(m.out) * m.in;
    if (m.bits == 0) {
      for (std::size_t i = 0; i < count; ++i) put(weight_, m.dtype, random.uniform());
      source.weight = weight_.data();
      return;
    }
    source.quantized = true;
    source.bits = m.bits;
    source.group = m.group;
    weight_.resize(count * m.bits / 8);
    for (auto& b : weight_) b = static_cast<std::uint8_t>(random.bits());
    const int levels = (1 << m.bits) - 1;
    for (std::size_t i = 0; i < count / m.group; ++i) {
      // As MLX has them: the bias is an extreme of the group, of either sign, and the scale the
      // bias divided by a whole number.
      const int q = levels / 2 + random.below(levels - levels / 2) + 1;
      const float scale = (0.1f + std::fabs(random.uniform())) * (random.below(2) ? 0.1f : -0.1f) /
                          static_cast<float>(levels);
      const float bias = scale * static_cast<float>(-q);
      put(biases_, m.dtype, bias);
      put(scales_, m.dtype,
          m.dtype == Dtype::kBf16 ? bf16_to_f32(f32_to_bf16(bias)) / static_cast<float>(-q)
                                  : scale);
    }
    source.weight = weight_.data();
    source.scales = scales_.data();
    source.biases = biases_.data();
  }

  LinearSource source;

 private:
  static void put(std::vector<std::uint8_t>& to, Dtype dtype, float v) {
    std::uint8_t bytes[4];
    std::size_t n = 2;
    if (dtype == Dtype::kF32) {
      n = 4;
      std::memcpy(bytes, &v, 4);
    } else {
      const std::uint16_t h = dtype == Dtype::kBf16 ? f32_to_bf16(v) : f16_bits(v);
      std::memcpy(bytes, &h, 2);
    }
    to.insert(to.end(), bytes, bytes + n);
  }
  // Toward zero, which is good enough for made-up weights; small ones become 0.
  static std::uint16_t f16_bits(float v) {
    const auto u = std::bit_cast<std::uint32_t>(v);
    const int exponent = static_cast<int>(u >> 23 & 255) - 127 + 15;
    const std::uint32_t sign = u >> 16 & 0x8000u;
    if (exponent <= 0) return static_cast<std::uint16_t>(sign);
    return static_cast<std::uint16_t>(sign | static_cast<std::uint32_t>(exponent) << 10 |
                                      (u >> 13 & 1023u));
  }

  std::vector<std::uint8_t> weight_, scales_, biases_;
};

// 64-byte aligned bytes, zeroed; many of them in huge pages, as the engine's are.
class AlignedBytes {
 public:
  explicit AlignedBytes(std::size_t n) {
    if (n > kHugePage / 2) pages_ = Pages::anonymous(n);
    if (!pages_) storage_.resize(n + 64);
  }
  std::uint8_t* data() {
    if (pages_) return pages_.data();
    const auto p = reinterpret_cast<std::uintptr_t>(storage_.data());
    return storage_.data() + (64 - p % 64) % 64;
  }

 private:
  Pages pages_;
  std::vector<std::uint8_t> storage_;
};

class PackedRows {
 public:
  explicit PackedRows(const LinearSource& source, bool compact = false)
      : w(plan_row_blocks(source, compact)), bytes_(w.bytes()) {
    for (int b = 0; b < w.blocks(); ++b)
      pack_row_block(source, w, b, bytes_.data() + b * w.block_bytes());
    w.data = bytes_.data();
  }
  RowBlocks w;

 private:
  AlignedBytes bytes_;
};

class PackedNeurons {
 public:
  explicit PackedNeurons(const LinearSource& source, bool compact = false)
      : w(plan_neuron_major(source, compact)), bytes_(w.bytes()) {
    std::uint8_t* scales = bytes_.data() + w.row_bytes() * w.in;
    for (int c = 0; c < w.out; c += kColumnBlock)
      pack_neuron_columns(source, w, c, bytes_.data(), scales);
    w.rows = bytes_.data();
    w.scales = is_quantized(w.kind) ? scales : nullptr;
  }
  std::uint8_t* row(int neuron) { return bytes_.data() + w.row_bytes() * neuron; }
  NeuronMajor w;

 private:
  AlignedBytes bytes_;
};

}  // namespace lacuna
