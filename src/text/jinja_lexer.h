// SPDX-License-Identifier: Apache-2.0
// Template source to tokens, with jinja2's whitespace rules for trim_blocks and lstrip_blocks.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/jinja_value.h"

namespace lacuna::jinja {

struct Token {
  enum class Kind {
    kData,           // text between tags, whitespace control already applied
    kVariableBegin,  // {{
    kVariableEnd,
    kBlockBegin,  // {%
    kBlockEnd,
    kName,
    kString,  // text: escapes resolved
    kNumber,  // value: an int or a float
    kOperator,
    kEnd,
  };
  Kind kind = Kind::kEnd;
  int line = 0;
  std::string text;
  Value value;
};

// The last token is kEnd. Throws Failure with the line.
std::vector<Token> tokenize(std::string_view source);

}  // namespace lacuna::jinja
