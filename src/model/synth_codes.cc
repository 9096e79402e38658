// SPDX-License-Identifier: Apache-2.0
#include "model/synth_codes.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <numbers>

#include "base/check.h"
#include "tensor/dtype.h"

namespace lacuna {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors is little-endian");

constexpr double kBell = 3.0;          // deviation of the codes' bell before it is cut to 0 … 15
constexpr int kFirst = 0, kLast = 15;  // codes that every group has
constexpr double kSpread = 0.25;       // scales differ by up to this share

using Codes = std::array<std::uint8_t, 256>;

// The share of pair j's scale in the mean one.
double spread_factor(int j, int pairs) { return 1 + kSpread * ((2 * j + 1.0) / pairs - 1); }

double mean_code(const Codes& codes) {
  double sum = 0;
  for (const std::uint8_t code : codes) sum += code;
  return sum / static_cast<double>(codes.size());
}

Codes bell(double center) {
  static const std::array<double, 256> kQuantiles = [] {
    std::array<double, 256> q;
    for (std::size_t i = 0; i < q.size(); ++i)
      q[i] = normal_quantile((static_cast<double>(i) + 0.5) / static_cast<double>(q.size()));
    return q;
  }();
  Codes out;
  for (std::size_t i = 0; i < out.size(); ++i) {
    const double code = std::round(center + kBell * kQuantiles[i]);
    out[i] = static_cast<std::uint8_t>(std::min(std::max(code, 0.0), 15.0));
  }
  return out;
}

// A bell, its middle moved until a group of it, two codes of which are replaced, has this mean.
Codes bell_with_mean(double mean) {
  const double wanted = (CodeRows::kGroup * mean - kFirst - kLast) / (CodeRows::kGroup - 2);
  double low = -20, high = 35;
  for (int i = 0; i < 40; ++i) {
    const double middle = (low + high) / 2;
    (mean_code(bell(middle)) < wanted ? low : high) = middle;
  }
  const Codes below = bell(low), above = bell(high);
  return wanted - mean_code(below) < mean_code(above) - wanted ? below : above;
}

void put_code(std::uint8_t* codes, unsigned at, int code) {
  std::uint8_t& byte = codes[at / 2];
  byte = static_cast<std::uint8_t>(at % 2 == 0 ? (byte & 0xF0) | code : (byte & 0x0F) | code << 4);
}

// Sum of the 64 codes of a group.
int sum_codes(const std::uint8_t* codes) {
  constexpr std::uint64_t kNibbles = 0x0F0F0F0F0F0F0F0Fu, kBytes = 0x00FF00FF00FF00FFu;
  std::uint64_t bytes = 0;  // 8 sums of 8 codes
  for (int i = 0; i < 4; ++i) {
    std::uint64_t word;
    std::memcpy(&word, codes + 8 * i, sizeof word);
    bytes += (word & kNibbles) + (word >> 4 & kNibbles);
  }
  const std::uint64_t pairs = (bytes & kBytes) + (bytes >> 8 & kBytes);  // 4 sums of 16
  return static_cast<int>(pairs * 0x0001000100010001u >> 48);
}

}  // namespace

double SynthRandom::uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }

double SynthRandom::normal() {
  const double radius = std::sqrt(-2 * std::log(1 - uniform()));
  return radius * std::cos(2 * std::numbers::pi * uniform());
}

double normal_quantile(double p) {
  double low = -40, high = 40;
  for (int i = 0; i < 100; ++i) {
    const double middle = (low + high) / 2;
    (std::erfc(-middle / std::numbers::sqrt2) / 2 < p ? low : high) = middle;
  }
  return low;
}

CodeRows::CodeRows(const WeightLaw& law) : zero_sum_(law.mean == 0) {
  LAC_CHECK(law.deviation > 0 && std::fabs(law.mean) <= kMaxRatio * law.deviation,
            "mean {} with deviation {}", law.mean, law.deviation);
  // The deviation of the codes depends a little on how far their bell is moved.
  const double ratio = law.mean / law.deviation;
  WeightLaw units{0, kBell};
  for (int i = 0; i < 5; ++i) units = make_codes(ratio * units.deviation);
  const double scale = law.deviation / units.deviation;
  drawn_ = {units.mean * scale, law.deviation};
  for (std::size_t z = 0; z < groups_.size(); ++z) {
    const auto zero = static_cast<float>(kZeroCodes[z]);
    for (int j = 0; j < kPairs; ++j) {
      Pair& pair = groups_[z].pairs[j];
      pair.bias = f32_to_bf16(static_cast<float>(-zero * scale * spread_factor(j, kPairs)));
      pair.scale = f32_to_bf16(bf16_to_f32(pair.bias) / -zero);
    }
  }
}

WeightLaw CodeRows::make_codes(double shift) {
  double square_factor = 0;  // the mean factor is 1
  for (int j = 0; j < kPairs; ++j) square_factor += std::pow(spread_factor(j, kPairs), 2) / kPairs;
  double mean = 0, square = 0;
  for (const std::uint8_t z : kZeroOf) {
    const int zero = kZeroCodes[z];
    for (const int sign : {1, -1}) {
      Codes& codes = groups_[z].codes[sign < 0];
      codes = bell_with_mean(zero + sign * shift);
      const auto add = [&](int code, double weight) {
        const double share = weight / (2 * kZeroOf.size());
        mean += sign * (code - zero) * share;
        square += (code - zero) * (code - zero) * square_factor * share;
      };
      for (const std::uint8_t code : codes) add(code, (1 - 2.0 / kGroup) / 256);
      add(kFirst, 1.0 / kGroup);
      add(kLast, 1.0 / kGroup);
    }
  }
  return {mean, std::sqrt(square - mean * mean)};
}

void CodeRows::write(std::uint64_t key, int in, std::uint8_t* codes, std::uint16_t* scales,
                     std::uint16_t* biases) const {
  SynthRandom random(key);
  float row_sum = (random.next() & 1) != 0 ? 1e-30f : -1e-30f;
  for (int g = 0; g < in / kGroup; ++g, codes += kGroup / 2) {
    const std::uint64_t choice = random.next();
    const std::uint8_t z = kZeroOf[choice & 15];
    const Pair pair = groups_[z].pairs[(choice >> 4) % kPairs];
    bool negative = (choice >> 10 & 1) != 0;
    const Codes& table = groups_[z].codes[negative];
    for (int i = 0; i < kGroup; i += 8) {
      const std::uint64_t bytes = random.next();
      std::uint32_t word = 0;
      for (int j = 0; j < 8; ++j)
        word |= static_cast<std::uint32_t>(table[bytes >> (8 * j) & 255]) << (4 * j);
      std::memcpy(codes + i / 2, &word, sizeof word);
    }
    const auto first = static_cast<unsigned>(choice >> 11 & 63);
    const auto second = first ^ static_cast<unsigned>(1 + (choice >> 17 & 31));
    put_code(codes, first, kFirst);
    put_code(codes, second, kLast);
    if (zero_sum_) {
      const auto sum =
          static_cast<float>(sum_codes(codes) - kGroup * kZeroCodes[z]) * bf16_to_f32(pair.scale);
      negative = (sum > 0) == (row_sum > 0);
      row_sum += negative ? -sum : sum;
    }
    const auto sign = static_cast<std::uint16_t>(negative ? 0x8000 : 0);
    scales[g] = pair.scale ^ sign;
    biases[g] = pair.bias ^ sign;
  }
}

}  // namespace lacuna
