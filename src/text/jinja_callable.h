// SPDX-License-Identifier: Apache-2.0
// What can be called in a template: macros, methods, functions. Filters and tests have the same
// form.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja_value.h"

namespace lacuna::jinja {

class Machine;
struct MacroDef;
struct Scope;

struct Args {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

// `self` is the filtered or tested value, or the object of a method, or None for a function. A test
// returns a bool. Bad arguments are a Failure.
using Builtin = Value (*)(Machine& machine, const Value& self, const Args& args);

struct Callable {
  enum class Kind { kMacro, kBuiltin };
  Kind kind = Kind::kBuiltin;
  std::string name;
  Builtin builtin = nullptr;
  Value self;
  const MacroDef* macro = nullptr;  // with the scope that the macro was defined in
  Scope* scope = nullptr;
};

// Arguments by parameter, as Python matches them: missing ones are nullopt; too many, unknown and
// doubled ones fail and name `what`.
std::vector<std::optional<Value>> bind(const std::string& what, const Args& args,
                                       std::initializer_list<const char*> names,
                                       std::size_t required = 0);

// Name to implementation; null when there is none.
Builtin find_filter(const std::string& name);
Builtin find_test(const std::string& name);
Builtin find_function(const std::string& name);  // range, namespace, dict, raise_exception, …

// item.a.b for the path "a.b", as `map(attribute=…)` reads it; digits are list positions. What is
// missing on the way is `otherwise`, unless that is None.
Value get_path(Machine& machine, const Value& item, const Value& path,
               const Value& otherwise = Value());

// The attribute `name` that Python gives the type of `object`: a method, or nullopt when the type
// has no such attribute. Methods that we do not have, and those that would change the object (the
// sandbox hides them), are undefined values that fail when called.
std::optional<Value> find_method(const Value& object, const std::string& name);
std::optional<Value> loop_attribute(const Value& loop, const std::string& name);

}  // namespace lacuna::jinja
