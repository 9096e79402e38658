// SPDX-License-Identifier: Apache-2.0
#include "model/config_fields.h"

#include <fmt/core.h>

#include <cmath>
#include <cstdint>
#include <limits>

#include "checkpoint/json.h"

namespace lacuna {

int ConfigFields::integer(Names names, int min, int max, std::optional<int> fallback) {
  const auto [name, value] = find(names);
  if (value == nullptr) {
    if (!fallback) missing(name);
    return fallback.value_or(min);
  }
  if (!in_range(*value, min, max)) {
    wrong(name, *value, fmt::format("a whole number from {} to {}", min, max));
    return min;
  }
  return value->get<int>();
}

float ConfigFields::number(Names names, double above, double max, std::optional<float> fallback) {
  const auto [name, value] = find(names);
  if (value == nullptr) {
    if (!fallback) missing(name);
    return fallback.value_or(0.0f);
  }
  const float number = to_float(*value);
  if (!(number > above && number <= max)) {
    wrong(name, *value, fmt::format("a number above {} and at most {}", above, max));
  }
  return number;
}

bool ConfigFields::flag(const char* name, bool fallback) {
  const Json* value = find({name}).second;
  if (value == nullptr) return fallback;
  if (value->is_boolean()) return value->get<bool>();
  wrong(name, *value, "true or false");
  return fallback;
}

void ConfigFields::must_be(const char* name, const Json& wanted) {
  const Json* value = find({name}).second;
  if (value == nullptr || *value == wanted) return;
  fail(ErrorCode::kUnsupported, name,
       fmt::format("{} is not supported, only {} is", printable_json(*value),
                   printable_json(wanted)));
}

void ConfigFields::must_be_absent(const char* name) {
  const Json* value = find({name}).second;
  if (value == nullptr) return;
  fail(ErrorCode::kUnsupported, name,
       fmt::format("{} is not supported, only null is", printable_json(*value)));
}

void ConfigFields::require(bool condition, const char* name, const std::string& complaint) {
  if (!condition) fail(ErrorCode::kCorrupt, name, complaint);
}

std::pair<const char*, const ConfigFields::Json*> ConfigFields::find(Names names) {
  std::pair<const char*, const Json*> found{*names.begin(), nullptr};
  for (const char* name : names) {
    const auto it = config_.find(name);
    if (it == config_.end() || it->is_null()) continue;
    if (found.second == nullptr) {
      found = {name, &*it};
    } else if (*it != *found.second) {
      wrong(name, *it, fmt::format("{}, as {} says", printable_json(*found.second), found.first));
    }
  }
  return found;
}

void ConfigFields::wrong(const char* name, const Json& value, const std::string& wanted) {
  fail(ErrorCode::kCorrupt, name, fmt::format("{}, wanted {}", printable_json(value), wanted));
}

void ConfigFields::fail(ErrorCode code, const char* name, const std::string& complaint) {
  keep(Error{code, fmt::format("{}: {}: {}", where_, name, complaint)});
}

void ConfigFields::keep(std::optional<Error> error) {
  if (!error_) error_ = std::move(error);
}

float ConfigFields::to_float(const Json& value) {
  if (!value.is_number()) return std::numeric_limits<float>::quiet_NaN();
  const auto number = value.get<double>();
  constexpr double kMost = std::numeric_limits<float>::max();
  if (std::fabs(number) <= kMost || std::isnan(number)) return static_cast<float>(number);
  return std::copysign(std::numeric_limits<float>::infinity(), number > 0 ? 1.0f : -1.0f);
}

bool ConfigFields::in_range(const Json& value, int min, int max) {
  if (!value.is_number_integer()) return false;
  if (value.is_number_unsigned()) {
    const auto u = value.get<std::uint64_t>();
    return u <= static_cast<std::uint64_t>(max) && static_cast<int>(u) >= min;
  }
  return value.get<std::int64_t>() >= min && value.get<std::int64_t>() <= max;
}

}  // namespace lacuna
