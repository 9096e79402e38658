// SPDX-License-Identifier: Apache-2.0
// Python's operators on values. What Python refuses is a Failure that names the types.
#pragma once

#include "text/jinja_ast.h"
#include "text/jinja_value.h"

namespace lacuna::jinja {

Value binary(Op op, const Value& a, const Value& b, Budget& budget);  // + - * / // % **
bool compare(Op op, const Value& a, const Value& b, Budget& budget);
Value negative(const Value& v);
// object[start:stop:step]; None stands for a part that is left out.
Value slice(const Value& object, const Value& start, const Value& stop, const Value& step,
            Budget& budget);
// The element at a Python index, negative ones from the end; nullopt when there is none.
std::optional<Value> element_at(const Value& object, Int index);

Text escape_html(const Text& s);
// Python's `format % args`, for %s, %r, %d and %%.
Text percent_format(const String& pattern, const std::vector<Value>& args, bool may_be_unused,
                    Budget& budget);
std::size_t to_size(const Value& v, const char* what);  // a non-negative int that fits
long long to_int(const Value& v, const char* what);     // an int in the range of long long

}  // namespace lacuna::jinja
