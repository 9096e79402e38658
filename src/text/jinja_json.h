// SPDX-License-Identifier: Apache-2.0
// The variables of a chat request as template values, with the marks of what a user wrote.
#pragma once

#include <nlohmann/json.hpp>

#include "text/jinja_value.h"

namespace lacuna::jinja {

// A dict of the variables, marked as chat_template.h says. Fails for what is no object or nests too
// deep.
Value chat_variables(const nlohmann::ordered_json& variables, Budget& budget);

}  // namespace lacuna::jinja
