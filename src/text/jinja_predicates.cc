// SPDX-License-Identifier: Apache-2.0
// The tests of jinja2 (`x is …`) that chat templates use. A name that is missing here is refused
// when the template is parsed.
#include <fmt/core.h>

#include <unordered_map>

#include "text/jinja_machine.h"
#include "text/jinja_operators.h"

namespace lacuna::jinja {
namespace {

template <bool (*kTest)(const Value&)>
Value is(Machine&, const Value& v, const Args& args) {
  bind("a test", args, {});
  return Value(kTest(v));
}

bool defined(const Value& v) { return !v.is_undefined(); }
bool undefined(const Value& v) { return v.is_undefined(); }
bool none(const Value& v) { return v.is_none(); }
bool boolean(const Value& v) { return v.is_bool(); }
bool true_value(const Value& v) { return v.is_bool() && v.as_bool(); }
bool false_value(const Value& v) { return v.is_bool() && !v.as_bool(); }
bool integer(const Value& v) { return v.is_int(); }
bool floating(const Value& v) { return v.is_float(); }
bool number(const Value& v) { return v.is_number(); }
bool string(const Value& v) { return v.is_string(); }
bool mapping(const Value& v) { return v.is_dict(); }
bool escaped(const Value& v) { return v.is_string() && v.as_string().markup; }
bool callable(const Value& v) { return v.is_callable() || v.is_loop() || v.is_undefined(); }

// len() and indexing: dict views have no indexing, generators have neither.
bool sequence(const Value& v) {
  return v.is_string() || v.is_dict() || v.is_undefined() ||
         (v.is_sequence() && v.as_sequence().form < Sequence::Form::kKeys);
}

bool iterable(const Value& v) {
  return v.is_string() || v.is_dict() || v.is_undefined() || v.is_sequence() || v.is_iterator() ||
         v.is_loop();
}

template <Op kOp>
Value compares(Machine& m, const Value& v, const Args& args) {
  const auto a = bind("a comparison test", args, {"other"}, 1);
  return Value(compare(kOp, v, *a[0], m.budget()));
}

template <bool kEven>
Value parity(Machine& m, const Value& v, const Args& args) {
  bind(kEven ? "even" : "odd", args, {});
  const Value rest = binary(Op::kMod, v, Value::integer(2), m.budget());
  return Value(equal(rest, Value::integer(kEven ? 0 : 1), m.budget()));
}

Value divisible_by(Machine& m, const Value& v, const Args& args) {
  const auto a = bind("divisibleby", args, {"num"}, 1);
  return Value(equal(binary(Op::kMod, v, *a[0], m.budget()), Value::integer(0), m.budget()));
}

Value same_as(Machine&, const Value& v, const Args& args) {
  const auto a = bind("sameas", args, {"other"}, 1);
  const auto single = [](const Value& x) { return x.is_none() || x.is_bool(); };
  if (!single(v) && !single(*a[0]))
    fail_unsupported("sameas for other values than none, true and false is not supported");
  if (v.is_none() || a[0]->is_none()) return Value(v.is_none() && a[0]->is_none());
  return Value(v.is_bool() && a[0]->is_bool() && v.as_bool() == a[0]->as_bool());
}

template <bool kUpper>
Value cased(Machine& m, const Value& v, const Args& args) {
  bind(kUpper ? "upper" : "lower", args, {});
  bool any = false;
  const Text text = m.text_of(v);
  for (const char c : text.bytes()) {
    if (static_cast<unsigned char>(c) >= 0x80)
      fail_unsupported("the tests lower and upper know ASCII only");
    const bool up = c >= 'A' && c <= 'Z';
    const bool low = c >= 'a' && c <= 'z';
    if (kUpper ? low : up) return Value(false);
    any = any || up || low;
  }
  return Value(any);
}

Value is_filter(Machine&, const Value& v, const Args& args) {
  bind("filter", args, {});
  return Value(v.is_string() && find_filter(v.bytes()) != nullptr);
}

Value is_test(Machine&, const Value& v, const Args& args) {
  bind("test", args, {});
  return Value(v.is_string() && find_test(v.bytes()) != nullptr);
}

const std::unordered_map<std::string, Builtin>& predicates() {
  static const std::unordered_map<std::string, Builtin> table = {
      {"boolean", is<boolean>},
      {"callable", is<callable>},
      {"defined", is<defined>},
      {"divisibleby", divisible_by},
      {"eq", compares<Op::kEq>},
      {"equalto", compares<Op::kEq>},
      {"==", compares<Op::kEq>},
      {"escaped", is<escaped>},
      {"even", parity<true>},
      {"false", is<false_value>},
      {"filter", is_filter},
      {"float", is<floating>},
      {"ge", compares<Op::kGe>},
      {">=", compares<Op::kGe>},
      {"greaterthan", compares<Op::kGt>},
      {"gt", compares<Op::kGt>},
      {">", compares<Op::kGt>},
      {"in", compares<Op::kIn>},
      {"integer", is<integer>},
      {"iterable", is<iterable>},
      {"le", compares<Op::kLe>},
      {"<=", compares<Op::kLe>},
      {"lessthan", compares<Op::kLt>},
      {"lower", cased<false>},
      {"lt", compares<Op::kLt>},
      {"<", compares<Op::kLt>},
      {"mapping", is<mapping>},
      {"ne", compares<Op::kNe>},
      {"!=", compares<Op::kNe>},
      {"none", is<none>},
      {"number", is<number>},
      {"odd", parity<false>},
      {"sameas", same_as},
      {"sequence", is<sequence>},
      {"string", is<string>},
      {"test", is_test},
      {"true", is<true_value>},
      {"undefined", is<undefined>},
      {"upper", cased<true>},
  };
  return table;
}

}  // namespace

Builtin find_test(const std::string& name) {
  const auto found = predicates().find(name);
  return found == predicates().end() ? nullptr : found->second;
}

}  // namespace lacuna::jinja
