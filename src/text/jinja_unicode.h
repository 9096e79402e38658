// SPDX-License-Identifier: Apache-2.0
// What Python's str knows about characters: whitespace, printability and case.
#pragma once

#include <string>

namespace lacuna::jinja {

bool is_space(char32_t c);      // str.isspace
bool is_printable(char32_t c);  // str.isprintable: repr() shows it as it is

enum class Case { kLower, kUpper, kTitle };
// The character in the given case, one to three characters, appended as UTF-8. Context is not
// looked at: a final capital sigma is the caller's to refuse.
void append_case(std::string& out, char32_t c, Case to);

}  // namespace lacuna::jinja
