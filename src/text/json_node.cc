// SPDX-License-Identifier: Apache-2.0
#include "text/json_node.h"

#include <algorithm>

#include "text/utf8.h"

namespace lacuna {
namespace {

namespace dom = simdjson::dom;

std::string_view type_name(dom::element value) {
  switch (value.type()) {
    case dom::element_type::ARRAY:
      return "an array";
    case dom::element_type::OBJECT:
      return "an object";
    case dom::element_type::STRING:
      return "a string";
    case dom::element_type::BOOL:
      return "a boolean";
    case dom::element_type::NULL_VALUE:
      return "null";
    default:
      return "a number";
  }
}

}  // namespace

std::string shown(std::string_view text) {
  constexpr std::size_t kMaxBytes = 60;
  std::string s = repair_utf8(text.substr(0, kMaxBytes));
  std::replace_if(s.begin(), s.end(), [](char c) { return c >= 0 && c < ' '; }, ' ');
  return fmt::format("\"{}{}\"", s, text.size() > kMaxBytes ? "…" : "");
}

Error JsonNode::error(ErrorCode code, std::string_view what) const {
  return {code, path_.empty() ? std::string(what) : fmt::format("{}: {}", path_, what)};
}

Error JsonNode::wanted(std::string_view what) const {
  return error(ErrorCode::kCorrupt, fmt::format("{}, want {}", type_name(value_), what));
}

Result<JsonNode> JsonNode::parse(std::string_view json, JsonParser& parser) {
  dom::element root;
  if (const auto failed = parser.parse(json.data(), json.size()).get(root)) {
    return Error{ErrorCode::kCorrupt,
                 fmt::format("not valid JSON: {}", simdjson::error_message(failed))};
  }
  const JsonNode node(root, "");
  if (!root.is_object()) return node.wanted("an object");
  return node;
}

std::optional<JsonNode> JsonNode::find(std::string_view key) const {
  dom::element member;
  if (value_.at_key(key).get(member) || member.is_null()) return std::nullopt;
  return child(member, key);
}

Result<JsonNode> JsonNode::at(std::string_view key) const {
  if (std::optional<JsonNode> member = find(key)) return *std::move(member);
  if (!value_.is_object()) return wanted("an object");
  return error(ErrorCode::kCorrupt, fmt::format("\"{}\" is missing", key));
}

Result<std::string_view> JsonNode::text() const {
  std::string_view text;
  if (value_.get(text)) return wanted("a string");
  return text;
}

Result<bool> JsonNode::boolean() const {
  bool flag = false;
  if (value_.get(flag)) return wanted("a boolean");
  return flag;
}

Result<int> JsonNode::integer(int min, int max) const {
  std::int64_t number = 0;
  if (value_.get(number) || number < min || number > max) {
    return wanted(fmt::format("a whole number from {} to {}", min, max));
  }
  return static_cast<int>(number);
}

Result<std::vector<JsonNode>> JsonNode::items() const {
  dom::array array;
  if (value_.get(array)) return wanted("an array");
  std::vector<JsonNode> nodes;
  for (dom::element item : array) {
    nodes.emplace_back(item, fmt::format("{}[{}]", path_, nodes.size()));
  }
  return nodes;
}

Result<void> JsonNode::only_keys(std::initializer_list<std::string_view> known) const {
  dom::object object;
  if (value_.get(object)) return wanted("an object");
  for (const dom::key_value_pair& member : object) {
    if (std::find(known.begin(), known.end(), member.key) == known.end()) {
      return error(ErrorCode::kUnsupported, fmt::format("unknown key {}", shown(member.key)));
    }
  }
  return {};
}

}  // namespace lacuna
