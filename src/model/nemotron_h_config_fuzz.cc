// SPDX-License-Identifier: Apache-2.0
// Any bytes as the small JSON files of a checkpoint.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "checkpoint/generation_config.h"
#include "checkpoint/json.h"
#include "checkpoint/linear_source.h"
#include "model/glm_dsa_config.h"
#include "model/nemotron_h_config.h"

namespace {

void check_line(const lacuna::Error& error) {
  LAC_CHECK(error.what.find('\n') == std::string::npos, "{}", error.what);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  auto json = lacuna::parse_json(text, "fuzz");
  if (!json) {
    check_line(json.error());
    return 0;
  }
  // Whatever was accepted can be written, and read again to the same text.
  const std::string written = json->dump();
  if (auto again = lacuna::parse_json(written, "again"); again) {
    LAC_CHECK(again->dump() == written, "{}", written);
  } else {
    LAC_CHECK(false, "{}: {}", written, again.error().what);
  }
  if (auto config = lacuna::parse_nemotron_h_config(*json); !config) {
    check_line(config.error());
  } else {
    LAC_CHECK(config->width > 0 && !config->layers.empty() && config->in_proj_rows() >= 0, "{}",
              written);
    LAC_CHECK(lacuna::main_parameters(*config) > 0, "{}", written);
  }
  if (auto config = lacuna::parse_glm_dsa_config(*json); !config) {
    check_line(config.error());
  } else {
    LAC_CHECK(config->layers.at(0).has_indexer && config->softmax_scale > 0, "{}", written);
    LAC_CHECK(lacuna::main_parameters(*config) > 0, "{}", written);
  }
  if (!json->is_object()) return 0;
  if (auto rules = lacuna::QuantizationRules::parse(*json); !rules) check_line(rules.error());
  if (auto generation = lacuna::parse_generation_config(*json); !generation)
    check_line(generation.error());
  return 0;
}
