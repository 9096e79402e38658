// SPDX-License-Identifier: Apache-2.0
// The quantiser against MLX's own outputs, and what happens at the edges.
#include "checkpoint/quantize.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "base/mmap.h"
#include "checkpoint/safetensors.h"

namespace lacuna {
namespace {

// A file of recordings, made by tools/record_mlx_quantize.py.
class Recording {
 public:
  explicit Recording(const std::string& path) {
    auto file = MappedFile::open(path);
    EXPECT_TRUE(file.ok()) << file.error().what;
    if (!file.ok()) return;
    file_ = *std::move(file);
    auto parsed = parse_safetensors(file_.bytes(), path);
    EXPECT_TRUE(parsed.ok()) << parsed.error().what;
    if (!parsed.ok()) return;
    for (const TensorView& tensor : parsed->tensors) tensors_[tensor.name] = tensor;
  }
  const TensorView* find(const std::string& name) const {
    const auto it = tensors_.find(name);
    return it == tensors_.end() ? nullptr : &it->second;
  }
  const std::map<std::string, TensorView>& tensors() const { return tensors_; }

 private:
  MappedFile file_;
  std::map<std::string, TensorView> tensors_;
};

struct Quantized {
  std::vector<std::uint8_t> codes, scales, biases;
  bool finite = true;
};

Quantized quantize(const AffineFormat& format, Dtype dtype, const std::uint8_t* weights,
                   std::size_t rows, std::size_t in) {
  const std::size_t groups = in / static_cast<std::size_t>(format.group);
  const std::size_t row_codes = in * static_cast<std::size_t>(format.bits) / 8;
  const std::size_t pair_bytes = groups * dtype_bytes(dtype);
  Quantized out;
  out.codes.resize(rows * row_codes);
  out.scales.resize(rows * pair_bytes);
  out.biases.resize(rows * pair_bytes);
  std::vector<float> row(in), scales(groups), biases(groups);
  for (std::size_t r = 0; r < rows; ++r) {
    widen(dtype, weights + r * in * dtype_bytes(dtype), row);
    out.finite &=
        quantize_row(format, row, &out.codes[r * row_codes], scales.data(), biases.data());
    narrow(dtype, scales, &out.scales[r * pair_bytes]);
    narrow(dtype, biases, &out.biases[r * pair_bytes]);
  }
  return out;
}

void expect_bytes(const std::vector<std::uint8_t>& found, const TensorView* wanted,
                  const std::string& what) {
  ASSERT_NE(wanted, nullptr) << what;
  ASSERT_EQ(found.size(), wanted->bytes) << what;
  const auto at = std::mismatch(found.begin(), found.end(), wanted->data).first - found.begin();
  EXPECT_EQ(static_cast<std::size_t>(at), found.size())
      << what << ": first differs in row "
      << static_cast<std::int64_t>(at) * wanted->shape[0] / static_cast<std::int64_t>(found.size());
}

// Every case of a file; returns how many there were.
int check_recording(const std::string& path, MlxQuantizer quantizer) {
  const Recording inputs("tests/data/mlx_quantize.safetensors"), outputs(path);
  int cases = 0;
  for (const Dtype dtype : {Dtype::kBf16, Dtype::kF16, Dtype::kF32}) {
    const std::string name = dtype_name(dtype);
    const TensorView* input = inputs.find("input." + name);
    if (input == nullptr) continue;
    for (const int group : {32, 64, 128}) {
      for (const int bits : {2, 3, 4, 5, 6, 8}) {
        const std::string key =
            name + "." + std::to_string(bits) + "." + std::to_string(group) + ".";
        if (outputs.find(key + "weight") == nullptr) continue;
        const Quantized found = quantize({bits, group, quantizer}, dtype, input->data,
                                         static_cast<std::size_t>(input->shape[0]),
                                         static_cast<std::size_t>(input->shape[1]));
        EXPECT_TRUE(found.finite);
        expect_bytes(found.codes, outputs.find(key + "weight"), key + "weight");
        expect_bytes(found.scales, outputs.find(key + "scales"), key + "scales");
        expect_bytes(found.biases, outputs.find(key + "biases"), key + "biases");
        ++cases;
      }
    }
  }
  return cases;
}

TEST(QuantizeRecorded, CpuAsMlx) {
  EXPECT_EQ(check_recording("tests/data/mlx_quantize.safetensors", MlxQuantizer::kCpu), 30);
}

TEST(QuantizeRecorded, GpuAsMlx) {
  EXPECT_EQ(check_recording("tests/data/mlx_quantize_gpu.safetensors", MlxQuantizer::kGpu), 30);
}

// The rows are such that the two rules differ, so a mix-up shows above.
TEST(QuantizeRecorded, TheTwoDiffer) {
  const Recording cpu("tests/data/mlx_quantize.safetensors"),
      gpu("tests/data/mlx_quantize_gpu.safetensors");
  for (const auto& [name, tensor] : gpu.tensors()) {
    if (!name.ends_with(".weight")) continue;
    ASSERT_NE(cpu.find(name), nullptr) << name;
    EXPECT_NE(std::memcmp(cpu.find(name)->data, tensor.data, tensor.bytes), 0) << name;
  }
}

// Numbers worked out by hand from the formula: weights -8 … 7 in half steps, step 1.
TEST(Quantize, HalvesBetweenTwoCodes) {
  std::vector<float> row(32, -8.0f);
  row[1] = 7.0f;
  const float halves[] = {-7.5f, -6.5f, -5.5f, 6.5f};
  std::copy(std::begin(halves), std::end(halves), row.begin() + 2);
  std::uint8_t codes[16];
  float scale, bias;
  ASSERT_TRUE(quantize_row({4, 32, MlxQuantizer::kGpu}, row, codes, &scale, &bias));
  EXPECT_EQ(scale, 1.0f);
  EXPECT_EQ(bias, -8.0f);
  EXPECT_EQ(codes[0], 0xF0);  // low half first
  EXPECT_EQ(codes[1], 0x21);  // 0.5 and 1.5 away from 0
  EXPECT_EQ(codes[2], 0xF3);  // 2.5 and 14.5
  ASSERT_TRUE(quantize_row({4, 32, MlxQuantizer::kCpu}, row, codes, &scale, &bias));
  EXPECT_EQ(codes[1], 0x20);  // to the even one
  EXPECT_EQ(codes[2], 0xE2);
}

// The float before 0.5 is nearer to 0, though adding 0.5 to it gives 1.
TEST(Quantize, JustBelowAHalf) {
  const float lo = -26.86701f, w = -25.971443f;
  ASSERT_EQ((w - lo) / (lo / -15.0f), std::nextafter(0.5f, 0.0f));
  std::vector<float> row(32, lo);
  row[1] = 0.0f;
  row[2] = w;
  std::uint8_t codes[16];
  float scale, bias;
  for (const MlxQuantizer quantizer : {MlxQuantizer::kGpu, MlxQuantizer::kCpu}) {
    ASSERT_TRUE(quantize_row({4, 32, quantizer}, row, codes, &scale, &bias));
    EXPECT_EQ(scale, lo / -15.0f);
    EXPECT_EQ(codes[1] & 0x0F, 0);
  }
}

TEST(Quantize, AllZeroAndAllEqual) {
  std::uint8_t codes[32];
  float scale, bias;
  ASSERT_TRUE(quantize_row({}, std::vector<float>(64, 0.0f), codes, &scale, &bias));
  EXPECT_EQ(std::bit_cast<std::uint32_t>(scale), 0xB3D6BF95u);  // -1e-7
  EXPECT_EQ(bias, 0.0f);
  EXPECT_TRUE(std::all_of(codes, codes + 32, [](std::uint8_t c) { return c == 0; }));
  for (const float value : {0.37f, -0.37f}) {
    ASSERT_TRUE(quantize_row({}, std::vector<float>(64, value), codes, &scale, &bias));
    EXPECT_EQ(bias, value);
    EXPECT_TRUE(std::all_of(codes, codes + 32, [](std::uint8_t c) { return c == 0; }));
  }
}

TEST(Quantize, RefusesWhatHasNoScale) {
  const float inf = std::numeric_limits<float>::infinity(),
              most = std::numeric_limits<float>::max();
  std::uint8_t codes[128];
  float scale[4], bias[4];
  for (const float bad : {inf, -inf, std::numeric_limits<float>::quiet_NaN()}) {
    for (const std::size_t at : {0, 63, 64, 127}) {
      std::vector<float> row(128, 0.25f);
      row[at] = bad;
      EXPECT_FALSE(quantize_row({}, row, codes, scale, bias)) << bad << " at " << at;
      EXPECT_FALSE(all_finite(row));
    }
  }
  std::vector<float> wide(128, 0.0f);
  wide[3] = most;
  EXPECT_TRUE(quantize_row({}, wide, codes, scale, bias));
  wide[4] = -most;  // finite each, but not their distance
  EXPECT_FALSE(quantize_row({}, wide, codes, scale, bias));
  EXPECT_TRUE(all_finite(wide));
}

// Half a step for the rounding; one more at the far end of the range, since the scale is stretched
// or shrunk until 0 has a code; and 15 codes by 2^-9 of a step for the scale's rounding to bf16.
TEST(Quantize, DequantizedIsNear) {
  std::vector<float> row(128);
  for (std::size_t i = 0; i < row.size(); ++i)
    row[i] = bf16_to_f32(f32_to_bf16(0.1f * std::sin(0.37f * static_cast<float>(i * i))));
  std::uint8_t codes[64], pair[2];
  float scales[2], biases[2], scale;
  ASSERT_TRUE(quantize_row({}, row, codes, scales, biases));
  for (std::size_t i = 0; i < row.size(); ++i) {
    narrow(Dtype::kBf16, {&scales[i / 64], 1}, pair);
    widen(Dtype::kBf16, pair, {&scale, 1});
    const int code = (codes[i / 2] >> (i % 2 * 4)) & 15;
    const float back = static_cast<float>(code) * scale + biases[i / 64];
    EXPECT_LE(std::fabs(back - row[i]), std::fabs(scale) * (1.5f + 15.0f / 512)) << i;
  }
}

// Every F16 there is, there and back.
TEST(Floats, F16RoundTrip) {
  for (int bits = 0; bits < 1 << 16; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    float value;
    std::uint16_t again;
    widen(Dtype::kF16, reinterpret_cast<const std::uint8_t*>(&half), {&value, 1});
    narrow(Dtype::kF16, {&value, 1}, reinterpret_cast<std::uint8_t*>(&again));
    if (std::isnan(value)) {
      EXPECT_EQ(again & 0x7C00, 0x7C00);
      EXPECT_NE(again & 0x03FF, 0);
    } else {
      ASSERT_EQ(again, half);
    }
  }
}

TEST(Floats, F16RoundsToNearestEven) {
  const std::vector<std::pair<float, int>> cases = {
      {65519.9f, 0x7BFF},       {65520.0f, 0x7C00},        {1e30f, 0x7C00},
      {-1e30f, 0xFC00},         {0x1p-25f, 0x0000},  // half of the smallest: to the even 0
      {0x1.8p-24f, 0x0002},     {0x1.000002p-25f, 0x0001}, {0x1p-149f, 0x0000},
      {0x1.ff8p-15f, 0x03FF},  // the largest denormal
      {0x1.ffcp-15f, 0x0400},  // a tie between it and the smallest normal number
      {1.00048828125f, 0x3C00}, {1.00146484375f, 0x3C02}};
  for (const auto& [value, wanted] : cases) {
    std::uint16_t half;
    narrow(Dtype::kF16, {&value, 1}, reinterpret_cast<std::uint8_t*>(&half));
    EXPECT_EQ(half, wanted) << value;
  }
}

TEST(Floats, Fp8Values) {
  std::vector<float> values(256);
  fp8_values(1.0f, std::span<float, 256>(values));
  EXPECT_EQ(values[0x00], 0.0f);
  EXPECT_EQ(values[0x01], 0x1p-9f);  // the smallest
  EXPECT_EQ(values[0x07], 7 * 0x1p-9f);
  EXPECT_EQ(values[0x08], 0x1p-6f);
  EXPECT_EQ(values[0x38], 1.0f);
  EXPECT_EQ(values[0x39], 1.125f);
  EXPECT_EQ(values[0x7E], 448.0f);  // the largest
  EXPECT_TRUE(std::isnan(values[0x7F]) && std::isnan(values[0xFF]));
  for (int code = 0; code < 0x7F; ++code) EXPECT_EQ(values[0x80 + code], -values[code]);
  for (int code = 1; code < 0x7F; ++code) EXPECT_GT(values[code], values[code - 1]);
  fp8_values(0.3f, std::span<float, 256>(values));  // 0.3f * 1.125f = 0.33750001 between two bf16
  EXPECT_EQ(values[0x39], 0.337890625f);
}

}  // namespace
}  // namespace lacuna
