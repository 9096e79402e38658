// SPDX-License-Identifier: Apache-2.0
// Fields of one JSON object of a config: each checked as it is read, the first complaint kept. A
// reader asks for all it needs and looks at error() once.
//
// Null counts as absent: writers use both. A field may have several spellings; two of them that
// disagree are a complaint, as readers elsewhere do not agree on which one wins.
#pragma once

#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "lacuna/result.h"

namespace lacuna {

class ConfigFields {
 public:
  using Json = nlohmann::ordered_json;
  using Names = std::initializer_list<const char*>;  // spellings of one field

  // `where` stands before each complaint: "config.json", "config.json: rope_parameters". The object
  // must outlive this.
  explicit ConfigFields(const Json& config, std::string where = "config.json")
      : config_(config), where_(std::move(where)) {}

  // Without a fallback a missing field is a complaint. A bad one reads as `min`, so that the reader
  // can go on.
  int integer(Names names, int min, int max, std::optional<int> fallback = {});
  // Above `above` and at most `max`.
  float number(Names names, double above, double max, std::optional<float> fallback = {});
  bool flag(const char* name, bool fallback);

  // A field whose other values would change the forward pass in ways that are not built; absent is
  // fine.
  void must_be(const char* name, const Json& wanted);
  // The same for one that has to be absent or null.
  void must_be_absent(const char* name);
  void require(bool condition, const char* name, const std::string& complaint);

  // The spelling that was found, or the first one and null.
  std::pair<const char*, const Json*> find(Names names);

  void wrong(const char* name, const Json& value, const std::string& wanted);
  void fail(ErrorCode code, const char* name, const std::string& complaint);
  void keep(std::optional<Error> error);  // of fields read elsewhere
  const std::optional<Error>& error() const { return error_; }

  // NaN when the value is no number; past the largest float it is an infinity.
  static float to_float(const Json& value);
  static bool in_range(const Json& value, int min, int max);

 private:
  void missing(const char* name) { fail(ErrorCode::kCorrupt, name, "missing"); }

  const Json& config_;
  std::string where_;
  std::optional<Error> error_;
};

}  // namespace lacuna
