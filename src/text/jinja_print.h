// SPDX-License-Identifier: Apache-2.0
// Values as text: Python's str() and repr(), and json.dumps as Hugging Face's tojson calls it.
#pragma once

#include <string>

#include "text/jinja_value.h"

namespace lacuna::jinja {

Text to_text(const Value& v, Budget& budget);  // str(v)
Text repr(const Value& v, Budget& budget);     // repr(v)
std::string int_text(Int i);
std::string float_text(double d);           // repr(float): the shortest digits that read back equal
std::string quoted(std::string_view text);  // repr(str), for messages

struct JsonStyle {
  bool ensure_ascii = false;
  std::optional<std::string> indent;  // the text of one level; nullopt: everything on one line
  Text item_separator = Text(", ");
  Text key_separator = Text(": ");
  bool sort_keys = false;
};
Text to_json(const Value& v, const JsonStyle& style, Budget& budget);

}  // namespace lacuna::jinja
