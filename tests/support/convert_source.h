// SPDX-License-Identifier: Apache-2.0
// An original release of a few kilobytes, with its drafting head, for tests of converting.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "tests/support/tiny_nemotron.h"

namespace lacuna::test {

// Weights out of a tensor's name, between -1/16 and 1/16: weight() of tools/record_mlx_quantize.py.
inline TestTensor generated(const std::string& name, const std::vector<std::int64_t>& shape,
                            Dtype dtype = Dtype::kBf16) {
  TestTensor out = filled(dtype, shape, 0);
  std::uint64_t seed = 0xCBF29CE484222325u;
  for (const char c : name) seed = (seed ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
  for (std::size_t i = 0; i < out.bytes.size() / dtype_bytes(dtype); ++i) {
    std::uint64_t x = seed + i * 0x9E3779B97F4A7C15u;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    const float value = static_cast<float>(static_cast<std::int16_t>(x >> 48)) * 0x1p-19f;
    const std::uint16_t half = f32_to_bf16(value);
    if (dtype == Dtype::kF32) std::memcpy(&out.bytes[i * 4], &value, 4);
    if (dtype == Dtype::kBf16) std::memcpy(&out.bytes[i * 2], &half, 2);
  }
  return out;
}

// Fills all tensors that way.
inline void generate_weights(TestTensors& tensors) {
  for (auto& [name, tensor] : tensors) tensor = generated(name, tensor.shape, tensor.dtype);
}

// The source's parts, to be spoiled before it is written.
class ConvertSource : public ::testing::Test {
 protected:
  ConvertSource() {
    config_["num_nextn_predict_layers"] = 1;
    add_tiny_head(tensors_);
    generate_weights(tensors_);
  }

  const TempFolder folder_;
  nlohmann::ordered_json config_ = tiny_config();
  TestTensors tensors_ = tiny_tensors(false);
};

}  // namespace lacuna::test
