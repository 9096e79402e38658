// SPDX-License-Identifier: Apache-2.0
#include "model/binder.h"

#include <fmt/core.h>

#include <cmath>
#include <cstring>

namespace lacuna {
namespace {

float read_float(const TensorView& tensor, std::size_t i) {
  const std::uint8_t* at = tensor.data + i * dtype_bytes(tensor.dtype);
  if (tensor.dtype == Dtype::kF32) {
    float value;
    std::memcpy(&value, at, sizeof value);
    return value;
  }
  std::uint16_t half;
  std::memcpy(&half, at, sizeof half);
  return tensor.dtype == Dtype::kBf16 ? bf16_to_f32(half) : f16_to_f32(half);
}

}  // namespace

LinearSource Binder::linear(const std::string& module, int out, int in, int expert, int experts) {
  if (!is_there(module + ".weight")) return {};
  for (const char* part : {".weight", ".scales", ".biases"}) use(module + part);
  auto found = find_linear(checkpoint_, rules_, module, out, in, expert, experts);
  if (!found) {
    keep(std::move(found).error());
    return {};
  }
  if (scale_check_ == ScaleCheck::kAll) keep(check_finite_scales(*found));
  parameters_ += static_cast<std::uint64_t>(out) * static_cast<std::uint64_t>(in);
  return *std::move(found);
}

std::vector<float> Binder::floats(const std::string& name,
                                  const std::vector<std::vector<std::int64_t>>& shapes) {
  if (!is_there(name)) return {};
  use(name);
  const TensorView& tensor = *checkpoint_.find(name);
  bool fits = false;
  std::string wanted;
  for (const auto& shape : shapes) {
    fits = fits || tensor.shape == shape;
    wanted += fmt::format("{}{}", wanted.empty() ? "" : " or ", shape_text(shape));
  }
  if (!fits) {
    keep(corrupt(name, fmt::format("shape {}, wanted {}", shape_text(tensor.shape), wanted)));
    return {};
  }
  if (tensor.dtype != Dtype::kF32 && tensor.dtype != Dtype::kF16 && tensor.dtype != Dtype::kBf16) {
    keep(corrupt(name, fmt::format("dtype {}, wanted F32, F16 or BF16", dtype_name(tensor.dtype))));
    return {};
  }
  std::vector<float> values(static_cast<std::size_t>(tensor.elements()));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = read_float(tensor, i);
    if (!std::isfinite(values[i])) {
      keep(corrupt(name, fmt::format("value {} is {}, wanted a finite one", i, values[i])));
      break;
    }
  }
  parameters_ += values.size();
  return values;
}

Error Binder::corrupt(const std::string& name, const std::string& what) {
  return {ErrorCode::kCorrupt, fmt::format("{}: {}", name, what)};
}

Result<void> Binder::finish() const {
  const auto [surplus, surplus_count] = find_surplus();
  if (!missing_.empty()) {
    std::string what = missing_.size() == 1
                           ? "missing"
                           : fmt::format("missing, and {} more are", missing_.size() - 1);
    if (surplus_count > 0)
      what += fmt::format("; the checkpoint has {}, which has no place", surplus);
    return corrupt(first_missing_, what);
  }
  if (error_) return *error_;
  if (surplus_count > 0) {
    return corrupt(surplus,
                   surplus_count == 1
                       ? "has no place in the model that config.json describes"
                       : fmt::format("this and {} other tensors have no place in the model that "
                                     "config.json describes",
                                     surplus_count - 1));
  }
  return {};
}

bool Binder::is_there(const std::string& name) {
  if (has(name)) return true;
  if (missing_.empty()) first_missing_ = name;
  missing_.insert(name);
  return false;
}

void Binder::use(const std::string& name) {
  const TensorView* tensor = checkpoint_.find(name);
  if (tensor != nullptr && used_.insert(name).second) bytes_ += tensor->bytes;
}

// The first tensor nobody asked for, and how many there are.
std::pair<std::string, std::size_t> Binder::find_surplus() const {
  std::pair<std::string, std::size_t> found{"", 0};
  for (const auto& [name, tensor] : checkpoint_.tensors()) {
    if (!belongs_(name) || used_.contains(name)) continue;
    if (found.second++ == 0) found.first = name;
  }
  return found;
}

}  // namespace lacuna
