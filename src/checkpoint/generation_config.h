// SPDX-License-Identifier: Apache-2.0
// generation_config.json: how the makers of a checkpoint want text drawn from it.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <vector>

#include "lacuna/result.h"

namespace lacuna {

// The defaults here are what holds when the file or a field is not there.
struct GenerationConfig {
  std::vector<int>
      stop_tokens;  // eos_token_id; often more than config.json has: chat models end turns with it
  bool do_sample = true;     // false: greedy, whatever the temperature says
  float temperature = 1.0f;  // >= 0
  float top_p = 1.0f;        // (0, 1]
  int top_k = 0;             // >= 0; 0: all
};

// No such file gives the defaults. Errors: kCorrupt names the field, what it holds and what was
// wanted.
Result<GenerationConfig> read_generation_config(const std::filesystem::path& folder);
Result<GenerationConfig> parse_generation_config(const nlohmann::ordered_json& config);

}  // namespace lacuna
