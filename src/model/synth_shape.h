// SPDX-License-Identifier: Apache-2.0
// Which model `lacuna synth` writes: a release's shape or another config's, cut to size.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "lacuna/result.h"
#include "model/nemotron_h_config.h"

namespace lacuna {

struct ShapeOptions {
  std::string shape = "lightning";  // lightning, nano, super, ultra, or the path of a config.json
  int layers = 0;                   // the first of them; 0: all
  std::string pattern;              // other layers, letters M * E -; empty: the shape's
  int experts = 0;                  // routed experts a layer has; 0: the shape's
  bool mtp = false;                 // with the drafting head
};

// The shape, checked as any config is; without `mtp` it declares no head. Errors: kInvalidArgument
// names the flag; those of a config file are parse_nemotron_h_config's.
Result<NemotronHConfig> choose_shape(const ShapeOptions& options);

// config.json of that shape quantised to 4 bits in groups of 64. `tokens` is the config of the
// model whose tokenizer is used: begin, end and padding tokens come from there.
nlohmann::ordered_json shape_json(const NemotronHConfig& config,
                                  const nlohmann::ordered_json& tokens);

}  // namespace lacuna
