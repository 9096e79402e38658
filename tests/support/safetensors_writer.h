// SPDX-License-Identifier: Apache-2.0
// Small safetensors files and folders for tests, right by default and easy to spoil.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tensor/dtype.h"

namespace lacuna::test {

struct TestTensor {
  Dtype dtype = Dtype::kF32;
  std::vector<std::int64_t> shape;
  std::string bytes;
};
using TestTensors = std::map<std::string, TestTensor>;

// A tensor with every element `value`; F32, F16 and BF16 hold it as a number (F16 only 0 and 1),
// the other dtypes as that integer in every byte.
inline TestTensor filled(Dtype dtype, std::vector<std::int64_t> shape, float value) {
  std::size_t elements = 1;
  for (const std::int64_t size : shape) elements *= static_cast<std::size_t>(size);
  const bool is_float = dtype == Dtype::kF32 || dtype == Dtype::kF16 || dtype == Dtype::kBf16;
  std::string element(dtype_bytes(dtype), is_float ? '\0' : static_cast<char>(value));
  const std::uint16_t half = dtype == Dtype::kF16 ? (value == 0 ? 0 : 0x3C00) : f32_to_bf16(value);
  if (dtype == Dtype::kF32) std::memcpy(element.data(), &value, 4);
  if (dtype == Dtype::kF16 || dtype == Dtype::kBf16) std::memcpy(element.data(), &half, 2);
  TestTensor out{dtype, std::move(shape), {}};
  for (std::size_t i = 0; i < elements; ++i) out.bytes += element;
  return out;
}

// A file of this header text and these data bytes, whatever they say.
inline std::string safetensors_raw(const std::string& header, const std::string& data) {
  std::string out;
  for (int i = 0; i < 8; ++i) out.push_back(static_cast<char>((header.size() >> (8 * i)) & 0xFF));
  return out + header + data;
}

inline std::string safetensors_bytes(const TestTensors& tensors) {
  nlohmann::ordered_json header = {{"__metadata__", {{"format", "mlx"}}}};
  std::string data;
  for (const auto& [name, tensor] : tensors) {
    header[name] = {{"dtype", dtype_name(tensor.dtype)},
                    {"shape", tensor.shape},
                    {"data_offsets", {data.size(), data.size() + tensor.bytes.size()}}};
    data += tensor.bytes;
  }
  return safetensors_raw(header.dump(), data);
}

// model.safetensors.index.json of tensors that are all where they are listed.
inline std::string index_text(const std::map<std::string, TestTensors>& shards) {
  nlohmann::ordered_json map = nlohmann::ordered_json::object();
  for (const auto& [file, tensors] : shards) {
    for (const auto& [name, tensor] : tensors) map[name] = file;
  }
  return nlohmann::ordered_json{{"weight_map", map}}.dump();
}

// A fresh folder, removed with what is in it when the object goes.
class TempFolder {
 public:
  TempFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "lacuna-test-XXXXXX").string();
    EXPECT_NE(::mkdtemp(pattern.data()), nullptr);
    path_ = pattern;
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  void write(const std::string& name, const std::string& content) const {
    std::ofstream(path_ / name, std::ios::binary) << content;
  }
  void write(const std::string& name, const TestTensors& tensors) const {
    write(name, safetensors_bytes(tensors));
  }
  void remove(const std::string& name) const { std::filesystem::remove(path_ / name); }

 private:
  std::filesystem::path path_;
};

}  // namespace lacuna::test
