// SPDX-License-Identifier: Apache-2.0
// A weight matrix as the checkpoint stores it, before packing: plain floats or MLX affine codes.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "checkpoint/checkpoint.h"
#include "lacuna/result.h"
#include "tensor/dtype.h"

namespace lacuna {

// [out, in] row-major, views into the mapped file. A quantised weight is code · scale + bias, one
// pair per `group` inputs; code i of a row sits at bits [i·bits, (i+1)·bits) of the row read as a
// little-endian bit string (MLX, all of 2, 3, 4, 5, 6, 8 bits). The views are not aligned: a file
// promises nothing, so read through memcpy.
struct LinearSource {
  std::string name;  // of the module, without ".weight"
  int out = 0, in = 0;
  bool quantized = false;
  int bits = 0, group = 0;     // when quantised
  Dtype dtype = Dtype::kBf16;  // of the plain weights, or of scales and biases: F32, F16, BF16
  const std::uint8_t* weight =
      nullptr;  // codes, out rows of in·bits/8 bytes; or out·in plain values
  const std::uint8_t* scales = nullptr;  // [out, in/group]
  const std::uint8_t* biases = nullptr;  // [out, in/group]

  std::size_t row_bytes() const;    // of `weight`
  std::size_t scale_bytes() const;  // of `scales`, and of `biases`; 0 when plain
  std::uint64_t bytes() const;      // all three tensors
};

// Reads what the config says of quantisation (MLX's "quantization" object with per-module
// overrides).
class QuantizationRules {
 public:
  // Takes config.json's "quantization", else its "quantization_config"; neither: nothing is
  // quantised. Errors: kUnsupported names a mode, bits or group size outside the list; kCorrupt a
  // bad field.
  static Result<QuantizationRules> parse(const nlohmann::ordered_json& config);

  struct Rule {
    int bits = 4, group = 64;
    std::string mode = "affine";
    bool quantized = true;  // false: the config says that this module was left alone
  };
  // Rule of a module path; the defaults of the config when it has no override. A path matches with
  // and without the model's prefix ("backbone.", "model.", "language_model."), and an override of
  // stacked experts (switch_mlp.fc1) covers each separate one (experts.7.up_proj).
  Rule rule(const std::string& module) const;
  // kCorrupt naming the first override that matches no module of the checkpoint. Overrides of mtp.*
  // may match nothing when the checkpoint has no such tensor: conversions drop the head.
  Result<void> check_all_used(const Checkpoint& checkpoint) const;

  bool any() const { return any_; }  // the config says something of quantisation
  const Rule& default_rule() const { return default_; }
  const std::map<std::string, Rule>& overrides() const {
    return overrides_;
  }  // as the config names them

 private:
  Rule default_;
  bool any_ = false;
  std::map<std::string, Rule> overrides_;
  std::map<std::string, Rule> by_path_;  // the same by common path
};

// Finds `module`.weight (and .scales, .biases) and checks shape [out, in] and dtypes. `expert` ≥ 0
// takes that slice of a stacked tensor [experts, out, in]; `experts` is then its first dimension.
// The module is quantised when its .scales tensor exists. Errors name the tensor, the shape found
// and the shape wanted; kCorrupt, a missing tensor too, and kUnsupported for FP8 and other codes
// that are not MLX affine.
Result<LinearSource> find_linear(const Checkpoint& checkpoint, const QuantizationRules& rules,
                                 const std::string& module, int out, int in, int expert = -1,
                                 int experts = 0);

// Reads all scales and biases: kCorrupt names the tensor that holds a NaN or an infinity. A plain
// matrix passes unread.
Result<void> check_finite_scales(const LinearSource& linear);

}  // namespace lacuna
