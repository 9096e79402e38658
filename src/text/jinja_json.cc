// SPDX-License-Identifier: Apache-2.0
#include "text/jinja_json.h"

#include <fmt/core.h>

#include <algorithm>

namespace lacuna::jinja {
namespace {

using Json = nlohmann::ordered_json;

Value string_value(const std::string& s, bool from_user, Budget& budget) {
  budget.allocate(s.size() * 2);
  return Value(Text(s, from_user));
}

// A role may be trusted only if no special token can be spelled inside it.
bool is_plain_word(const std::string& s) {
  return std::all_of(s.begin(), s.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
           c == '-';
  });
}

Value from_json(const Json& json, Budget& budget) {
  const Budget::Level level(budget);
  budget.allocate(sizeof(Value));
  switch (json.type()) {
    case Json::value_t::boolean:
      return Value(json.get<bool>());
    case Json::value_t::number_integer:
      return Value(Int{json.get<std::int64_t>()});
    case Json::value_t::number_unsigned:
      return Value(Int{json.get<std::uint64_t>()});
    case Json::value_t::number_float:
      return Value(json.get<double>());
    case Json::value_t::string:
      return string_value(json.get_ref<const std::string&>(), true, budget);
    case Json::value_t::array: {
      std::vector<Value> items;
      for (const Json& item : json) items.push_back(from_json(item, budget));
      return make_list(std::move(items), budget);
    }
    case Json::value_t::object: {
      auto dict = std::make_shared<Dict>();
      for (const auto& [key, value] : json.items()) {
        dict->set(string_value(key, true, budget), from_json(value, budget));
      }
      return Value(std::shared_ptr<const Dict>(std::move(dict)));
    }
    default:
      return Value();
  }
}

Value message_from_json(const Json& json, Budget& budget) {
  const Value message = from_json(json, budget);
  if (!json.is_object()) return message;
  const auto role = json.find("role");
  if (role == json.end() || !role->is_string() ||
      !is_plain_word(role->get_ref<const std::string&>()))
    return message;
  auto dict = std::make_shared<Dict>(message.as_dict());
  dict->set(Value::string("role"),
            string_value(role->get_ref<const std::string&>(), false, budget));
  return Value(std::shared_ptr<const Dict>(std::move(dict)));
}

}  // namespace

Value chat_variables(const Json& variables, Budget& budget) {
  if (!variables.is_object()) fail("the template's variables must be an object");
  auto out = std::make_shared<Dict>();
  for (const auto& [name, json] : variables.items()) {
    if (name == "messages" && json.is_array()) {
      std::vector<Value> messages;
      for (const Json& message : json) messages.push_back(message_from_json(message, budget));
      out->set(Value::string(name), make_list(std::move(messages), budget));
    } else if (name.ends_with("_token") && json.is_string()) {
      out->set(Value::string(name),
               string_value(json.get_ref<const std::string&>(), false, budget));
    } else {
      out->set(Value::string(name), from_json(json, budget));
    }
  }
  return Value(std::shared_ptr<const Dict>(std::move(out)));
}

}  // namespace lacuna::jinja
