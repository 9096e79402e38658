// SPDX-License-Identifier: Apache-2.0
// Python's str operations that both filters and methods use.
#pragma once

#include "text/jinja_value.h"

namespace lacuna::jinja {

Text lower(const Text& s);
Text upper(const Text& s);
Text capitalize(const Text& s);   // str.capitalize
Text title_words(const Text& s);  // the `title` filter: a word ends at whitespace and - ( { [ <
std::optional<double> parse_float(std::string_view s);       // float(s)
std::optional<Int> parse_int(std::string_view s, int base);  // int(s, base)

// Pays for replace(s, old, with, -1) before it is done.
void pay_for_replace(Budget& budget, const Text& s, std::string_view old, const Text& with);

}  // namespace lacuna::jinja
