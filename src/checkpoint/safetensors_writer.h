// SPDX-License-Identifier: Apache-2.0
// Safetensors files to be written: their headers and names. The bytes are the caller's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tensor/dtype.h"

namespace lacuna {

struct OutputTensor {
  std::string name;
  Dtype dtype = Dtype::kBf16;
  std::vector<std::int64_t> shape;

  std::uint64_t elements() const;
  std::uint64_t bytes() const;
};

// The header of a file whose tensors lie one after the other as they are added.
class SafetensorsHeader {
 public:
  // `metadata`: an object of strings.
  explicit SafetensorsHeader(const nlohmann::ordered_json& metadata);

  void add(const OutputTensor& tensor);
  // What the file begins with: the length, and JSON padded so that the tensors begin at a multiple
  // of 8.
  std::string bytes() const;

 private:
  nlohmann::ordered_json json_;
  std::uint64_t end_ = 0;
};

// "model.safetensors", or "model-00002-of-00004.safetensors" for index 1 of several.
std::string shard_name(std::size_t index, std::size_t count);

}  // namespace lacuna
