// SPDX-License-Identifier: Apache-2.0
// What a conversion writes: every tensor, where its values come from, and how they are quantised.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/quantize.h"
#include "checkpoint/safetensors_writer.h"
#include "lacuna/result.h"
#include "model/convert_rules.h"

namespace lacuna {

// A matrix of the source: F32, F16, BF16, or F8_E4M3 with the scale of its tensor.
struct SourceMatrix {
  const TensorView* tensor = nullptr;  // of the checkpoint, which must live
  const std::uint8_t* data =
      nullptr;      // where the matrix begins: inside a tensor of stacked experts
  float scale = 1;  // of F8_E4M3
};

// What is written in one go: a module, or a tensor that is no module's weight.
struct ConvertPart {
  std::string name;                    // the module's path, or the tensor's name
  std::vector<OutputTensor> tensors;   // by name: biases, scales and weight, or the one
  std::vector<SourceMatrix> sources;   // one, or one for each expert
  std::int64_t rows = 0, in = 0;       // of each source
  std::optional<AffineFormat> format;  // none: the values stay as they are

  std::uint64_t bytes() const;
};

struct ConvertPlan {
  std::vector<ConvertPart> model, head;  // by name
  nlohmann::ordered_json quantization;   // what config.json says of it, as MLX writes it
  std::uint64_t parameters = 0;          // of the model, without the head
};

enum class HeadMode {
  kAuto,  // written when the source has one
  kOnly,  // nothing else is
  kOff,
};

// Every module is quantised in `format`, or as the first of `rules` says that matches it; one whose
// inputs are no multiple of the group stays as it is. Router, convolution, norms and other small
// tensors always do.
//
// Errors name the tensor or the rule: kUnsupported (another architecture; already quantised by MLX;
// NVFP4, FP8 in blocks and other codes), kCorrupt (missing tensors, wrong shapes, tensors without a
// place), kInvalidArgument (a rule that matches no module or does not fit one, no head to take).
Result<ConvertPlan> plan_conversion(const Checkpoint& source, const AffineFormat& format,
                                    const std::vector<ConvertRule>& rules, HeadMode head);

}  // namespace lacuna
