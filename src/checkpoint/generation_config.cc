// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/generation_config.h"

#include <fmt/core.h>

#include <cstdint>
#include <limits>
#include <string>
#include <system_error>

#include "base/mmap.h"
#include "checkpoint/json.h"

namespace lacuna {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kFile = "generation_config.json";

Error wrong(const char* field, const Json& value, const char* wanted) {
  return {ErrorCode::kCorrupt,
          fmt::format("{}: {}: {}, wanted {}", kFile, field, printable_json(value), wanted)};
}

// Null counts as absent, as everywhere in these files.
const Json* find(const Json& config, const char* field) {
  const auto it = config.find(field);
  return it == config.end() || it->is_null() ? nullptr : &*it;
}

bool is_count(const Json& value) {
  constexpr std::int64_t kMost = std::numeric_limits<int>::max();
  if (value.is_number_unsigned())
    return value.get<std::uint64_t>() <= static_cast<std::uint64_t>(kMost);
  return value.is_number_integer() && value.get<std::int64_t>() >= 0 &&
         value.get<std::int64_t>() <= kMost;
}

bool is_between(const Json& value, double least, double most) {
  return value.is_number() && value.get<double>() >= least && value.get<double>() <= most;
}

}  // namespace

Result<GenerationConfig> parse_generation_config(const Json& config) {
  if (!config.is_object())
    return Error{ErrorCode::kCorrupt, fmt::format("{}: wanted an object", kFile)};
  GenerationConfig out;
  if (const Json* eos = find(config, "eos_token_id")) {
    const Json list = eos->is_array() ? *eos : Json::array({*eos});
    for (const Json& id : list) {
      if (!is_count(id)) return wrong("eos_token_id", id, "a token id or a list of them");
      out.stop_tokens.push_back(id.get<int>());
    }
  }
  if (const Json* value = find(config, "do_sample")) {
    if (!value->is_boolean()) return wrong("do_sample", *value, "true or false");
    out.do_sample = value->get<bool>();
  }
  if (const Json* value = find(config, "temperature")) {
    if (!is_between(*value, 0.0, 100.0))
      return wrong("temperature", *value, "a number from 0 to 100");
    out.temperature = value->get<float>();
  }
  if (const Json* value = find(config, "top_p")) {
    if (!is_between(*value, 1e-6, 1.0))
      return wrong("top_p", *value, "a number above 0 and at most 1");
    out.top_p = value->get<float>();
  }
  if (const Json* value = find(config, "top_k")) {
    if (!is_count(*value)) return wrong("top_k", *value, "a whole number, 0 or more");
    out.top_k = value->get<int>();
  }
  return out;
}

Result<GenerationConfig> read_generation_config(const std::filesystem::path& folder) {
  std::error_code ignored;
  if (!std::filesystem::exists(folder / kFile, ignored)) return GenerationConfig{};
  LAC_TRY(const std::string text, read_text_file(folder / kFile));
  LAC_TRY(const Json config, parse_json(text, kFile));
  return parse_generation_config(config);
}

}  // namespace lacuna
