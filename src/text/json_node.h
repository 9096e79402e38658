// SPDX-License-Identifier: Apache-2.0
// A place in a JSON document that knows its own path, so that every error can name it.
//
// On top of simdjson, which reads a 17 MB tokenizer.json in some hundredths of a second.
#pragma once

#include <fmt/core.h>
#include <simdjson.h>

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lacuna/result.h"

namespace lacuna {

// The document a node lies in; it must outlive its nodes.
using JsonParser = simdjson::dom::parser;

class JsonNode {
 public:
  JsonNode(simdjson::dom::element value, std::string path)
      : value_(value), path_(std::move(path)) {}

  // Whole documents: kCorrupt when `json` is not one JSON object.
  static Result<JsonNode> parse(std::string_view json, JsonParser& parser);

  simdjson::dom::element value() const { return value_; }
  const std::string& path() const { return path_; }
  Error error(ErrorCode code, std::string_view what) const;

  // A member; nullopt when it is missing or null, or when this is no object.
  std::optional<JsonNode> find(std::string_view key) const;
  Result<JsonNode> at(std::string_view key) const;  // kCorrupt when it is missing or null

  Result<std::string_view> text() const;  // kCorrupt when the node is no string, and so on
  Result<bool> boolean() const;
  Result<int> integer(int min, int max) const;
  Result<std::vector<JsonNode>> items() const;

  // kUnsupported with the first key that is not among these; kCorrupt when this is no object.
  Result<void> only_keys(std::initializer_list<std::string_view> known) const;

 private:
  JsonNode child(simdjson::dom::element value, std::string_view key) const {
    return {value, path_.empty() ? std::string(key) : fmt::format("{}.{}", path_, key)};
  }
  Error wanted(std::string_view what) const;

  simdjson::dom::element value_;
  std::string path_;
};

// Text of a file as an error shows it: short, in quotes and on one line.
std::string shown(std::string_view text);

}  // namespace lacuna
