// SPDX-License-Identifier: Apache-2.0
// One render with limits of the caller's choice: what ChatTemplate uses, and tests and the fuzzer
// with smaller ones.
#pragma once

#include <nlohmann/json.hpp>

#include <string_view>

#include "lacuna/result.h"
#include "text/jinja_ast.h"

namespace lacuna::jinja {

// Errors are "NAME line N: message".
Result<Block> parse_template(std::string_view source, std::string_view name);
Result<Text> render_template(const Block& root, const nlohmann::ordered_json& variables,
                             std::string_view name, const Limits& limits = {});

}  // namespace lacuna::jinja
