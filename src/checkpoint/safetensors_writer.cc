// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/safetensors_writer.h"

#include <fmt/core.h>

#include <cstring>

namespace lacuna {

std::uint64_t OutputTensor::elements() const {
  std::uint64_t product = 1;
  for (const std::int64_t size : shape) product *= static_cast<std::uint64_t>(size);
  return product;
}

std::uint64_t OutputTensor::bytes() const { return elements() * dtype_bytes(dtype); }

SafetensorsHeader::SafetensorsHeader(const nlohmann::ordered_json& metadata)
    : json_{{"__metadata__", metadata}} {}

void SafetensorsHeader::add(const OutputTensor& tensor) {
  json_[tensor.name] = {{"dtype", dtype_name(tensor.dtype)},
                        {"shape", tensor.shape},
                        {"data_offsets", {end_, end_ + tensor.bytes()}}};
  end_ += tensor.bytes();
}

std::string SafetensorsHeader::bytes() const {
  std::string text = json_.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const std::uint64_t length = text.size();
  std::string out(sizeof length, '\0');
  std::memcpy(out.data(), &length, sizeof length);
  return out + text;
}

std::string shard_name(std::size_t index, std::size_t count) {
  if (count == 1) return "model.safetensors";
  return fmt::format("model-{:05}-of-{:05}.safetensors", index + 1, count);
}

}  // namespace lacuna
