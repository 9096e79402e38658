// SPDX-License-Identifier: Apache-2.0
// Template source to tree. Everything that cannot be rendered is refused here, by name and line.
#pragma once

#include <string_view>

#include "text/jinja_ast.h"

namespace lacuna::jinja {

inline constexpr int kMaxNesting = 200;  // of expressions and of blocks
inline constexpr std::size_t kMaxSourceBytes = std::size_t{1} << 20;

// Throws Failure: kCorrupt for a syntax error, kUnsupported for what jinja2 has and we have not.
Block parse(std::string_view source);

}  // namespace lacuna::jinja
