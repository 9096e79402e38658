// SPDX-License-Identifier: Apache-2.0
// Random weight rows in MLX's 4-bit affine layout, with a wanted mean and deviation.
//
// No float weights are drawn and quantised, that would take minutes per gigabyte. Codes and (scale,
// bias) pairs are drawn such that they could be a quantiser's:
//
//     bias  = −k · s as bf16, the extreme of the group, which has code 0
//     scale = bf16(bias / −k), so 0 has code k; k is 8 to 11, mostly 8
//     both signs of s; codes 0 and 15 occur in every group, the others follow a bell around k
//
// Source: docs/kernels.md has the layout; the pair's rule is that of MLX's affine quantiser.
#pragma once

#include <array>
#include <cstdint>

namespace lacuna {

// splitmix64: the n-th number depends on the key and n alone.
class SynthRandom {
 public:
  explicit SynthRandom(std::uint64_t key) : state_(key) {}

  std::uint64_t next() {
    state_ += 0x9E3779B97F4A7C15u;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
  double uniform();  // [0, 1)
  double normal();   // mean 0, deviation 1

 private:
  std::uint64_t state_;
};

// x with probability `p` below it, for p in (0, 1): the normal distribution's quantile.
double normal_quantile(double p);

// Of the single weights of a matrix. Mean 0 means more: the signs of a row's groups are chosen such
// that the row's sum stays near 0, so that it does not answer to what all its inputs share.
struct WeightLaw {
  double mean = 0;
  double deviation = 1;
};

class CodeRows {
 public:
  static constexpr int kGroup = 64;  // inputs that share a scale
  // What |mean| / deviation may be at most: beyond it the bell would leave the codes.
  static constexpr double kMaxRatio = 0.7;

  explicit CodeRows(const WeightLaw& law);

  // One row of `in` weights, a multiple of kGroup: in / 2 bytes of codes, in / kGroup bf16 scales
  // and biases. The same key gives the same row.
  void write(std::uint64_t key, int in, std::uint8_t* codes, std::uint16_t* scales,
             std::uint16_t* biases) const;

  // What is drawn in fact, which differs a little from the law: tables have 256 entries.
  const WeightLaw& drawn() const { return drawn_; }

 private:
  static constexpr int kPairs = 64;
  static constexpr std::array<int, 4> kZeroCodes = {8, 9, 10, 11};
  // Which of kZeroCodes a group has, by four random bits.
  static constexpr std::array<std::uint8_t, 16> kZeroOf = {0, 0, 0, 0, 0, 0, 0, 0,
                                                           1, 1, 1, 1, 1, 2, 2, 3};

  using Codes = std::array<std::uint8_t, 256>;  // a random byte's code
  struct Pair {
    std::uint16_t scale = 0, bias = 0;  // of the positive sign
  };
  struct Groups {
    std::array<Codes, 2> codes;  // by sign: positive, negative scale
    std::array<Pair, kPairs> pairs;
  };
  WeightLaw make_codes(double shift);  // mean and deviation in units of the mean scale

  std::array<Groups, kZeroCodes.size()> groups_;
  bool zero_sum_ = false;
  WeightLaw drawn_;
};

}  // namespace lacuna
