// SPDX-License-Identifier: Apache-2.0
#include "text/jinja_operators.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "text/jinja_print.h"

namespace lacuna::jinja {
namespace {

constexpr std::array<const char*, 15> kOpText = {
    "+", "-", "*", "/", "//", "%", "**", "==", "!=", "<", "<=", ">", ">=", "in", "not in"};

[[noreturn]] void refuse(Op op, const Value& a, const Value& b) {
  for (const Value* v : {&a, &b}) {
    if (v->is_undefined()) fail(v->as_undefined().message);
  }
  fail(fmt::format("unsupported operand types for {}: '{}' and '{}'",
                   kOpText[static_cast<std::size_t>(op)], type_name(a), type_name(b)));
}

[[noreturn]] void overflow() {
  fail_unsupported("an integer with more than 127 bits is not supported");
}

// Towards minus infinity, as Python divides.
Int floor_div(Int a, Int b) {
  if (b == -1) {
    Int out;
    if (__builtin_sub_overflow(Int{0}, a, &out)) overflow();
    return out;
  }
  const Int q = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q;
}

Int power(Int base, Int exponent) {
  Int out = 1;
  if (base == 0 || base == 1) return exponent == 0 ? 1 : base;
  if (base == -1) return exponent % 2 == 0 ? 1 : -1;
  for (Int i = 0; i < exponent; ++i) {
    if (__builtin_mul_overflow(out, base, &out)) overflow();
  }
  return out;
}

Value int_arithmetic(Op op, Int a, Int b) {
  Int out = 0;
  bool over = false;
  switch (op) {
    case Op::kAdd:
      over = __builtin_add_overflow(a, b, &out);
      break;
    case Op::kSub:
      over = __builtin_sub_overflow(a, b, &out);
      break;
    case Op::kMul:
      over = __builtin_mul_overflow(a, b, &out);
      break;
    case Op::kDiv:
      if (b == 0) fail("division by zero");
      return Value(static_cast<double>(a) / static_cast<double>(b));
    case Op::kFloorDiv:
      if (b == 0) fail("integer division by zero");
      return Value(floor_div(a, b));
    case Op::kMod:
      if (b == 0) fail("integer modulo by zero");
      if (b == -1) return Value::integer(0);
      return Value(a % b != 0 && (a < 0) != (b < 0) ? a % b + b : a % b);
    default:
      if (b >= 0) return Value(power(a, b));
      if (a == 0) fail("0.0 cannot be raised to a negative power");
      return Value(std::pow(static_cast<double>(a), static_cast<double>(b)));
  }
  if (over) overflow();
  return Value(out);
}

double float_mod(double a, double b) {
  double m = std::fmod(a, b);
  if (m != 0 && (m < 0) != (b < 0)) m += b;
  return m != 0 ? m : std::copysign(0.0, b);
}

double float_floor_div(double a, double b) {
  const double m = std::fmod(a, b);
  double q = (a - m) / b;
  if (m != 0 && (b < 0) != (m < 0)) q -= 1.0;
  if (q == 0) return std::copysign(0.0, a / b);
  const double floored = std::floor(q);
  return q - floored > 0.5 ? floored + 1.0 : floored;
}

Value float_arithmetic(Op op, double a, double b) {
  switch (op) {
    case Op::kAdd:
      return Value(a + b);
    case Op::kSub:
      return Value(a - b);
    case Op::kMul:
      return Value(a * b);
    case Op::kPow:
      if (a == 0 && b < 0) fail("0.0 cannot be raised to a negative power");
      if (a < 0 && std::isfinite(b) && b != std::trunc(b))
        fail_unsupported("a complex number is not supported");
      if (const double p = std::pow(a, b);
          std::isfinite(p) || !std::isfinite(a) || !std::isfinite(b))
        return Value(p);
      fail("numerical result out of range");
    default:
      break;
  }
  if (b == 0) fail("float division by zero");
  if (op == Op::kDiv) return Value(a / b);
  return Value(op == Op::kMod ? float_mod(a, b) : float_floor_div(a, b));
}

Value repeat(const Value& object, Int times, Budget& budget) {
  const std::size_t size =
      object.is_string() ? object.text().size() : object.as_sequence().items.size();
  if (times <= 0 || size == 0) times = 0;
  const std::size_t unit = object.is_string() ? size : size * sizeof(Value);
  if (times > static_cast<Int>(budget.limits().bytes / std::max<std::size_t>(unit, 1))) {
    fail("a repetition is too long");
  }
  const auto n = static_cast<std::size_t>(times);
  budget.allocate(n * unit);
  budget.step(n);
  if (object.is_string()) {
    Text out;
    for (std::size_t i = 0; i < n; ++i) out.append(object.text());
    return Value(std::move(out), object.as_string().markup);
  }
  std::vector<Value> items;
  items.reserve(n * size);
  for (std::size_t i = 0; i < n; ++i) {
    for (const Value& v : object.as_sequence().items) items.push_back(v);
  }
  return make_sequence(object.as_sequence().form, std::move(items), budget);
}

bool is_list_or_tuple(const Value& v) {
  return v.is_sequence() && (v.as_sequence().form == Sequence::Form::kList ||
                             v.as_sequence().form == Sequence::Form::kTuple);
}

Value add_strings(const String& a, const String& b, Budget& budget) {
  budget.allocate(a.text.size() + b.text.size());
  const bool markup = a.markup || b.markup;
  Text out = markup && !a.markup ? escape_html(a.text) : a.text;
  out.append(markup && !b.markup ? escape_html(b.text) : b.text);
  return Value(std::move(out), markup);
}

Value add_lists(const Sequence& a, const Sequence& b, Budget& budget) {
  std::vector<Value> items = a.items;
  items.insert(items.end(), b.items.begin(), b.items.end());
  return make_sequence(a.form, std::move(items), budget);
}

}  // namespace

Value binary(Op op, const Value& a, const Value& b, Budget& budget) {
  if (a.is_integral() && b.is_integral()) return int_arithmetic(op, a.as_int(), b.as_int());
  if (a.is_number() && b.is_number()) return float_arithmetic(op, a.as_double(), b.as_double());
  if (op == Op::kAdd && a.is_string() && b.is_string())
    return add_strings(a.as_string(), b.as_string(), budget);
  if (op == Op::kAdd && is_list_or_tuple(a) && is_list_or_tuple(b) &&
      a.as_sequence().form == b.as_sequence().form) {
    return add_lists(a.as_sequence(), b.as_sequence(), budget);
  }
  if (op == Op::kMul) {
    if ((a.is_string() || is_list_or_tuple(a)) && b.is_integral())
      return repeat(a, b.as_int(), budget);
    if ((b.is_string() || is_list_or_tuple(b)) && a.is_integral())
      return repeat(b, a.as_int(), budget);
  }
  if (op == Op::kMod && a.is_string()) {
    const bool tuple = b.is_sequence() && b.as_sequence().form == Sequence::Form::kTuple;
    if (tuple) return Value(percent_format(a.as_string(), b.as_sequence().items, false, budget));
    // Python takes what can be subscripted for a mapping, which need not be used up.
    const bool may_be_unused = b.is_undefined() || b.is_dict() ||
                               (b.is_sequence() && b.as_sequence().form < Sequence::Form::kKeys);
    return Value(percent_format(a.as_string(), {b}, may_be_unused, budget));
  }
  refuse(op, a, b);
}

bool compare(Op op, const Value& a, const Value& b, Budget& budget) {
  switch (op) {
    case Op::kEq:
      return equal(a, b, budget);
    case Op::kNe:
      return !equal(a, b, budget);
    case Op::kLt:
      return less(a, b, budget);
    case Op::kGt:
      return less(b, a, budget);
    case Op::kIn:
      return contains(b, a, budget);
    case Op::kNotIn:
      return !contains(b, a, budget);
    default:
      break;
  }
  if (a.is_number() && b.is_number() && (a.is_float() || b.is_float())) {  // NaN is not >= anything
    return op == Op::kLe ? a.as_double() <= b.as_double() : a.as_double() >= b.as_double();
  }
  return op == Op::kLe ? !less(b, a, budget) : !less(a, b, budget);
}

Value negative(const Value& v) {
  if (v.is_float()) return Value(-v.as_double());
  if (v.is_undefined()) fail(v.as_undefined().message);
  if (!v.is_integral()) fail(fmt::format("bad operand type for unary -: '{}'", type_name(v)));
  return int_arithmetic(Op::kSub, 0, v.as_int());
}

namespace {

Int clamp_index(const Value& v, Int size, Int low, Int high, Int missing) {
  if (v.is_none()) return missing;
  if (v.is_undefined()) fail(v.as_undefined().message);
  if (!v.is_integral())
    fail(fmt::format("slice indices must be integers or None, not {}", type_name(v)));
  const Int i = v.as_int() < 0 ? v.as_int() + size : v.as_int();
  return std::clamp(i, low, high);
}

// The indices that object[start:stop:step] takes from `size` elements.
std::vector<std::size_t> slice_indices(Int size, const Value& start, const Value& stop,
                                       const Value& step) {
  const Int limit = Int{1} << 100;
  const Int by = clamp_index(step, 0, -limit, limit, 1);
  if (by == 0) fail("slice step cannot be zero");
  const Int low = by > 0 ? 0 : -1;
  const Int high = by > 0 ? size : size - 1;
  Int i = clamp_index(start, size, low, high, by > 0 ? low : high);
  const Int end = clamp_index(stop, size, low, high, by > 0 ? high : low);
  std::vector<std::size_t> out;
  for (; by > 0 ? i < end : i > end; i += by) out.push_back(static_cast<std::size_t>(i));
  return out;
}

}  // namespace

Value slice(const Value& object, const Value& start, const Value& stop, const Value& step,
            Budget& budget) {
  if (object.is_undefined()) fail(object.as_undefined().message);
  if (object.is_string()) {
    const std::vector<std::size_t> at = char_offsets(object.bytes());
    budget.allocate(object.bytes().size() * 3);
    Text out;
    for (const std::size_t i : slice_indices(static_cast<Int>(at.size()) - 1, start, stop, step)) {
      out.append(object.text(), at[i], at[i + 1]);
    }
    return Value(std::move(out), object.as_string().markup);
  }
  using Form = Sequence::Form;
  if (!object.is_sequence() || object.as_sequence().form >= Form::kKeys) {
    fail(fmt::format("'{}' object cannot be sliced", type_name(object)));
  }
  const Sequence& s = object.as_sequence();
  if (s.form == Form::kRange) fail_unsupported("slicing a range is not supported");
  std::vector<Value> items;
  for (const std::size_t i : slice_indices(static_cast<Int>(s.items.size()), start, stop, step)) {
    items.push_back(s.items[i]);
  }
  return make_sequence(s.form, std::move(items), budget);
}

std::optional<Value> element_at(const Value& object, Int index) {
  if (object.is_sequence() && object.as_sequence().form < Sequence::Form::kKeys) {
    const auto& items = object.as_sequence().items;
    const Int i = index < 0 ? index + static_cast<Int>(items.size()) : index;
    if (i < 0 || i >= static_cast<Int>(items.size())) return std::nullopt;
    return items[static_cast<std::size_t>(i)];
  }
  if (object.is_string()) {
    const std::vector<std::size_t> at = char_offsets(object.bytes());
    const Int size = static_cast<Int>(at.size()) - 1;
    const Int i = index < 0 ? index + size : index;
    if (i < 0 || i >= size) return std::nullopt;
    const auto k = static_cast<std::size_t>(i);
    return Value(object.text().slice(at[k], at[k + 1]), object.as_string().markup);
  }
  return std::nullopt;
}

Text escape_html(const Text& s) {
  Text out;
  for (std::size_t i = 0; i < s.size(); ++i) {
    const bool user = s.from_user(i);
    switch (s.bytes()[i]) {
      case '&':
        out.append("&amp;", user);
        break;
      case '<':
        out.append("&lt;", user);
        break;
      case '>':
        out.append("&gt;", user);
        break;
      case '\'':
        out.append("&#39;", user);
        break;
      case '"':
        out.append("&#34;", user);
        break;
      default:
        out.append(s, i, i + 1);
    }
  }
  return out;
}

Text percent_format(const String& pattern, const std::vector<Value>& args, bool may_be_unused,
                    Budget& budget) {
  if (pattern.markup) fail_unsupported("formatting a string that is marked safe is not supported");
  const Text& format = pattern.text;
  Text out;
  std::size_t used = 0;
  for (std::size_t i = 0; i < format.size(); ++i) {
    if (format.bytes()[i] != '%') {
      out.append(format, i, i + 1);
      continue;
    }
    if (++i == format.size()) fail("incomplete format");
    const char kind = format.bytes()[i];
    if (kind == '%') {
      out.append(format, i, i + 1);
      continue;
    }
    if (kind != 's' && kind != 'r' && kind != 'd') {
      fail_unsupported(fmt::format("format %{} is not supported", quoted(std::string(1, kind))));
    }
    if (used == args.size()) fail("not enough arguments for format string");
    const Value& v = args[used++];
    if (kind == 'd' && !v.is_number())
      fail(fmt::format("%d format: a number is required, not {}", type_name(v)));
    if (kind == 'd' && v.is_float()) fail_unsupported("%d of a float is not supported");
    out.append(kind == 's'   ? to_text(v, budget)
               : kind == 'r' ? repr(v, budget)
                             : Text(int_text(v.as_int())));
  }
  if (used != args.size() && !may_be_unused)
    fail("not all arguments converted during string formatting");
  budget.allocate(out.size());
  return out;
}

long long to_int(const Value& v, const char* what) {
  if (v.is_undefined()) fail(v.as_undefined().message);
  if (!v.is_integral()) fail(fmt::format("{} must be an integer, not {}", what, type_name(v)));
  constexpr Int kMax = std::numeric_limits<long long>::max();
  if (v.as_int() > kMax || v.as_int() < -kMax) fail(fmt::format("{} is too large", what));
  return static_cast<long long>(v.as_int());
}

std::size_t to_size(const Value& v, const char* what) {
  return static_cast<std::size_t>(std::max(to_int(v, what), 0LL));
}

}  // namespace lacuna::jinja
