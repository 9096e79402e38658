// SPDX-License-Identifier: Apache-2.0
// The filters of jinja2 that chat templates use, and Hugging Face's tojson. A name that is missing
// here is refused when the template is parsed.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <unordered_map>
#include <unordered_set>

#include "text/jinja_machine.h"
#include "text/jinja_operators.h"
#include "text/jinja_print.h"
#include "text/jinja_sort.h"
#include "text/jinja_strings.h"

namespace lacuna::jinja {
namespace {

using Arguments = std::vector<std::optional<Value>>;

const Value& or_value(const std::optional<Value>& v, const Value& otherwise) {
  return v ? *v : otherwise;
}
bool flag(const std::optional<Value>& v, bool otherwise = false) {
  return v ? truth(*v) : otherwise;
}

// soft_str: a string as it is, anything else as str() of it.
String as_string(Machine& m, const Value& v) {
  return v.is_string() ? v.as_string() : String{m.text_of(v), false};
}

Value filter_default(Machine&, const Value& v, const Args& args) {
  const Arguments a = bind("default", args, {"default_value", "boolean"});
  if (v.is_undefined() || (flag(a[1]) && !truth(v))) return or_value(a[0], Value::string(""));
  return v;
}

Value filter_length(Machine& m, const Value& v, const Args& args) {
  bind("length", args, {});
  if (v.is_undefined()) return Value::integer(0);
  if (v.is_string()) {
    m.budget().step(v.bytes().size() / 16);
    return Value::integer(static_cast<long long>(count_chars(v.bytes())));
  }
  if (v.is_sequence()) return Value::integer(static_cast<long long>(v.as_sequence().items.size()));
  if (v.is_dict()) return Value::integer(static_cast<long long>(v.as_dict().items().size()));
  if (v.is_loop()) return Value::integer(v.as_loop().length());
  fail(fmt::format("object of type '{}' has no len()", type_name(v)));
}

Value filter_string(Machine& m, const Value& v, const Args& args) {
  bind("string", args, {});
  return v.is_string() ? v : Value(m.text_of(v));
}

Value filter_safe(Machine& m, const Value& v, const Args& args) {
  bind("safe", args, {});
  return Value(m.text_of(v), true);
}

Value filter_escape(Machine& m, const Value& v, const Args& args) {
  bind("escape", args, {});
  if (v.is_string() && v.as_string().markup) return v;
  Text escaped = escape_html(m.text_of(v));
  m.budget().allocate(escaped.size());
  return Value(std::move(escaped), true);
}

// `title` joins its words to a new string, so it is not safe any more.
template <Text (*kChange)(const Text&), bool kKeepsMarkup = true>
Value filter_text(Machine& m, const Value& v, const Args& args) {
  bind("a text filter", args, {});
  const String s = as_string(m, v);
  m.budget().allocate(s.text.size() * 2);
  m.budget().step(s.text.size());
  return Value(kChange(s.text), s.markup && kKeepsMarkup);
}

Value filter_trim(Machine& m, const Value& v, const Args& args) {
  const Arguments a = bind("trim", args, {"chars"});
  const String s = as_string(m, v);
  m.budget().allocate(s.text.size());
  if (!a[0] || a[0]->is_none()) return Value(strip(s.text, nullptr, true, true), s.markup);
  if (!a[0]->is_string())
    fail(fmt::format("trim: chars must be a string or None, not {}", type_name(*a[0])));
  m.budget().step(s.text.size() * a[0]->bytes().size() / 16);
  return Value(strip(s.text, &a[0]->bytes(), true, true), s.markup);
}

Value filter_replace(Machine& m, const Value& v, const Args& args) {
  const Arguments a = bind("replace", args, {"old", "new", "count"}, 2);
  const long long count = a[2] && !a[2]->is_none() ? to_int(*a[2], "count") : -1;
  const Text s = m.text_of(v);
  const Text old = m.text_of(*a[0]);
  const Text with = m.text_of(*a[1]);
  pay_for_replace(m.budget(), s, old.bytes(), with);
  return Value(replace(s, old.bytes(), with, count));
}

Value filter_join(Machine& m, const Value& v, const Args& args) {
  const Arguments a = bind("join", args, {"d", "attribute"});
  const Text separator = a[0] ? m.text_of(*a[0]) : Text();
  Text out;
  bool first = true;
  for (const Value& item : elements(v, m.budget())) {
    if (!first) out.append(separator);
    first = false;
    out.append(m.text_of(a[1] ? get_path(m, item, *a[1]) : item));
    m.budget().allocate(separator.size());
  }
  return Value(std::move(out));
}

Value filter_indent(Machine& m, const Value& v, const Args& args) {
  const Arguments a = bind("indent", args, {"width", "first", "blank"});
  if (!v.is_string()) fail(fmt::format("indent: a string is needed, not {}", type_name(v)));
  Text indention;
  if (a[0] && a[0]->is_string()) {
    indention = a[0]->text();
  } else {
    const std::size_t width = a[0] ? to_size(*a[0], "width") : 4;
    m.budget().allocate(width);
    indention = Text(std::string(width, ' '));
  }
  Text with_end = v.text();
  with_end.append("\n");
  const std::vector<Text> lines = split_lines(with_end, false);
  const bool blank = flag(a[2]);
  Text out;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out.append("\n");
    if (i == 0 ? flag(a[1]) : blank || !lines[i].empty()) out.append(indention);
    out.append(lines[i]);
    m.budget().allocate(indention.size() + lines[i].size() + sizeof(Text));
  }
  return Value(std::move(out), v.as_string().markup);
}

Value filter_tojson(Machine& m, const Value& v, const Args& args) {
  const Arguments a = bind("tojson", args, {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ensure_ascii = flag(a[0]);
  style.sort_keys = flag(a[3]);
  if (a[1] && !a[1]->is_none()) {
    if (!a[1]->is_string()) {
      const std::size_t width = to_size(*a[1], "indent");
      m.budget().allocate(width);
      style.indent = std::string(width, ' ');
    } else {
      style.indent = a[1]->bytes();
    }
    style.item_separator = Text(",");
  }
  if (a[2] && !a[2]->is_none()) {
    const std::vector<Value> pair = elements(*a[2], m.budget());
    if (pair.size() != 2 || !pair[0].is_string() || !pair[1].is_string())
      fail("tojson: separators must be two strings");
    style.item_separator = pair[0].text();
    style.key_separator = pair[1].text();
  }
  return Value(to_json(v, style, m.budget()));
}

// ---- sequences

Value filter_list(Machine& m, const Value& v, const Args& args) {
  bind("list", args, {});
  return make_list(elements(v, m.budget()), m.budget());
}

Value filter_first(Machine& m, const Value& v, const Args& args) {
  bind("first", args, {});
  if (v.is_iterator()) {
    Iterator& it = v.as_iterator();
    if (it.next < it.items.size()) return it.items[it.next++];
  } else if (std::vector<Value> items = elements(v, m.budget()); !items.empty()) {
    return items.front();
  }
  return Value::undefined("No first item, sequence was empty.");
}

Value filter_last(Machine& m, const Value& v, const Args& args) {
  bind("last", args, {});
  if (v.is_iterator()) fail("'generator' object is not reversible");
  const std::vector<Value> items = elements(v, m.budget());
  return items.empty() ? Value::undefined("No last item, sequence was empty.") : items.back();
}

Value filter_reverse(Machine& m, const Value& v, const Args& args) {
  bind("reverse", args, {});
  if (v.is_string()) return slice(v, Value(), Value(), Value::integer(-1), m.budget());
  const bool is_generator = v.is_iterator();
  std::vector<Value> items = elements(v, m.budget());
  std::reverse(items.begin(), items.end());
  return is_generator ? make_list(std::move(items), m.budget())
                      : make_iterator(std::move(items), m.budget());
}

Value filter_items(Machine& m, const Value& v, const Args& args) {
  bind("items", args, {});
  std::vector<Value> pairs;
  if (!v.is_undefined()) {
    if (!v.is_dict()) fail("Can only get item pairs from a mapping.");
    for (const auto& [key, value] : v.as_dict().items())
      pairs.push_back(make_tuple({key, value}, m.budget()));
  }
  return make_iterator(std::move(pairs), m.budget());
}

Value ignore_case(Machine& m, const Value& v, bool case_sensitive) {
  if (case_sensitive || !v.is_string()) return v;
  m.budget().allocate(v.bytes().size());
  return Value(lower(v.text()));
}

// Sorts by keys, keeping the order of equal ones, also when reversed.
std::vector<Value> sorted(Machine& m, std::vector<std::pair<Value, Value>> keyed, bool reverse) {
  merge_sort(keyed, [&](const auto& a, const auto& b) {
    return reverse ? less(b.first, a.first, m.budget()) : less(a.first, b.first, m.budget());
  });
  std::vector<Value> out;
  for (auto& item : keyed) out.push_back(std::move(item.second));
  return out;
}

Value filter_sort(Machine& m, const Value& v, const Args& args) {
  const Arguments a = bind("sort", args, {"reverse", "case_sensitive", "attribute"});
  std::vector<Value> paths;
  if (a[2] && a[2]->is_string()) {
    for (Text& part : split(a[2]->text(), ",", -1)) paths.emplace_back(std::move(part));
  } else if (a[2] && !a[2]->is_none()) {
    paths.push_back(*a[2]);
  }
  std::vector<std::pair<Value, Value>> keyed;
  for (const Value& item : elements(v, m.budget())) {
    std::vector<Value> keys;
    for (const Value& path : paths)
      keys.push_back(ignore_case(m, get_path(m, item, path), flag(a[1])));
    if (paths.empty()) keys.push_back(ignore_case(m, item, flag(a[1])));
    keyed.emplace_back(make_list(std::move(keys), m.budget()), item);
  }
  return make_list(sorted(m, std::move(keyed), flag(a[0])), m.budget());
}

Value filter_dictsort(Machine& m, const Value& v, const Args& args) {
  const Arguments a = bind("dictsort", args, {"case_sensitive", "by", "reverse"});
  if (v.is_undefined()) fail(v.as_undefined().message);
  if (!v.is_dict()) fail(fmt::format("dictsort: a dict is needed, not {}", type_name(v)));
  const std::string by = a[1] ? m.text_of(*a[1]).bytes() : "key";
  if (by != "key" && by != "value") fail("You can only sort by either \"key\" or \"value\"");
  std::vector<std::pair<Value, Value>> keyed;
  for (const auto& [key, value] : v.as_dict().items()) {
    keyed.emplace_back(ignore_case(m, by == "key" ? key : value, flag(a[0])),
                       make_tuple({key, value}, m.budget()));
  }
  return make_list(sorted(m, std::move(keyed), flag(a[2])), m.budget());
}

Value filter_unique(Machine& m, const Value& v, const Args& args) {
  const Arguments a = bind("unique", args, {"case_sensitive", "attribute"});
  std::unordered_set<std::string> seen;
  std::vector<Value> out;
  for (const Value& item : elements(v, m.budget())) {
    const Value key = ignore_case(m, a[1] ? get_path(m, item, *a[1]) : item, flag(a[0]));
    std::optional<std::string> hash = hash_key(key);
    if (!hash) fail(fmt::format("unhashable type: '{}'", type_name(key)));
    m.budget().allocate(hash->size());
    if (seen.insert(*std::move(hash)).second) out.push_back(item);
  }
  return make_iterator(std::move(out), m.budget());
}

template <bool kMax>
Value filter_extreme(Machine& m, const Value& v, const Args& args) {
  const Arguments a = bind(kMax ? "max" : "min", args, {"case_sensitive", "attribute"});
  const std::vector<Value> items = elements(v, m.budget());
  if (items.empty()) return Value::undefined("No aggregated item, sequence was empty.");
  std::optional<Value> best, best_key;
  for (const Value& item : items) {
    const Value key = ignore_case(m, a[1] ? get_path(m, item, *a[1]) : item, flag(a[0]));
    if (best && !(kMax ? less(*best_key, key, m.budget()) : less(key, *best_key, m.budget())))
      continue;
    best = item;
    best_key = key;
  }
  return *best;
}

Value filter_sum(Machine& m, const Value& v, const Args& args) {
  const Arguments a = bind("sum", args, {"attribute", "start"});
  Value total = or_value(a[1], Value::integer(0));
  if (total.is_string()) fail("sum() can't sum strings");
  for (const Value& item : elements(v, m.budget())) {
    const bool by_path = a[0] && !a[0]->is_none();
    total = binary(Op::kAdd, total, by_path ? get_path(m, item, *a[0]) : item, m.budget());
  }
  return total;
}

Value filter_batch(Machine& m, const Value& v, const Args& args) {
  const Arguments a = bind("batch", args, {"linecount", "fill_with"}, 1);
  const long long count = to_int(*a[0], "linecount");
  std::vector<Value> out, row;
  for (const Value& item : elements(v, m.budget())) {
    if (static_cast<long long>(row.size()) == count)
      out.push_back(make_list(std::exchange(row, {}), m.budget()));
    row.push_back(item);
  }
  if (!row.empty()) {
    if (a[1] && !a[1]->is_none() && count > static_cast<long long>(row.size())) {
      m.budget().allocate(static_cast<std::uint64_t>(count) * sizeof(Value));
      row.resize(static_cast<std::size_t>(count), *a[1]);
    }
    out.push_back(make_list(std::move(row), m.budget()));
  }
  return make_iterator(std::move(out), m.budget());
}

Value filter_attr(Machine& m, const Value& v, const Args& args) {
  const Arguments a = bind("attr", args, {"name"}, 1);
  if (v.is_undefined()) fail(v.as_undefined().message);
  if (!a[0]->is_string()) fail("attr: the name must be a string");
  const std::string& name = a[0]->bytes();
  if (v.is_dict() && !find_method(v, name)) {
    return Value::undefined(fmt::format("'dict object' has no attribute {}", quoted(name)));
  }
  return m.get_attribute(v, name);
}

// The arguments after the first `skip` positional ones.
Args rest_of(const Args& args, std::size_t skip) {
  Args out = args;
  out.positional.erase(out.positional.begin(),
                       out.positional.begin() + static_cast<std::ptrdiff_t>(skip));
  return out;
}

Value filter_map(Machine& m, const Value& v, const Args& args) {
  std::vector<Value> out;
  if (!truth(v)) return make_iterator({}, m.budget());
  if (args.positional.empty()) {
    const Arguments a = bind("map", args, {"attribute", "default"});
    if (!a[0]) fail("map requires a filter argument");
    for (const Value& item : elements(v, m.budget()))
      out.push_back(get_path(m, item, *a[0], or_value(a[1], Value())));
    return make_iterator(std::move(out), m.budget());
  }
  const std::string name = m.text_of(args.positional[0]).bytes();
  const Builtin filter = find_filter(name);
  if (filter == nullptr) fail_unsupported(fmt::format("filter {} is not supported", quoted(name)));
  const Args rest = rest_of(args, 1);
  for (const Value& item : elements(v, m.budget())) {
    m.budget().step();
    out.push_back(filter(m, item, rest));
  }
  return make_iterator(std::move(out), m.budget());
}

template <bool kKeep, bool kByAttribute>
Value filter_select(Machine& m, const Value& v, const Args& args) {
  std::vector<Value> out;
  if (!truth(v)) return make_iterator({}, m.budget());
  constexpr std::size_t kTestAt = kByAttribute ? 1 : 0;
  if (args.positional.size() < kTestAt) fail("Missing parameter for attribute name");
  Builtin test = nullptr;
  Args rest;
  if (args.positional.size() > kTestAt) {
    const std::string name = m.text_of(args.positional[kTestAt]).bytes();
    test = find_test(name);
    if (test == nullptr) fail_unsupported(fmt::format("test {} is not supported", quoted(name)));
    rest = rest_of(args, kTestAt + 1);
  }
  for (const Value& item : elements(v, m.budget())) {
    m.budget().step();
    const Value tested = kByAttribute ? get_path(m, item, args.positional[0]) : item;
    if (truth(test == nullptr ? tested : test(m, tested, rest)) == kKeep) out.push_back(item);
  }
  return make_iterator(std::move(out), m.budget());
}

// ---- numbers

Int trunc_to_int(double d) {
  if (!std::isfinite(d)) fail("cannot convert float infinity or NaN to integer");
  if (std::abs(d) >= 1e38) fail_unsupported("an integer with more than 127 bits is not supported");
  return static_cast<Int>(d);
}

Value filter_int(Machine&, const Value& v, const Args& args) {
  const Arguments a = bind("int", args, {"default", "base"});
  if (v.is_undefined()) fail(v.as_undefined().message);
  if (v.is_integral()) return Value(v.as_int());
  if (v.is_float())
    return std::isnan(v.as_double()) ? or_value(a[0], Value::integer(0))
                                     : Value(trunc_to_int(v.as_double()));
  if (v.is_string()) {
    const long long base = a[1] ? to_int(*a[1], "base") : 10;
    if (base < 2 || base > 36) fail_unsupported(fmt::format("int: base {} is not supported", base));
    if (const std::optional<Int> i = parse_int(v.bytes(), static_cast<int>(base))) return Value(*i);
    if (const std::optional<double> d = parse_float(v.bytes()); d && std::isfinite(*d))
      return Value(trunc_to_int(*d));
  }
  return or_value(a[0], Value::integer(0));
}

Value filter_float(Machine&, const Value& v, const Args& args) {
  const Arguments a = bind("float", args, {"default"});
  if (v.is_undefined()) fail(v.as_undefined().message);
  if (v.is_number()) return Value(v.as_double());
  if (v.is_string()) {
    if (const std::optional<double> d = parse_float(v.bytes())) return Value(*d);
  }
  return or_value(a[0], Value(0.0));
}

Value filter_abs(Machine&, const Value& v, const Args& args) {
  bind("abs", args, {});
  if (v.is_float()) return Value(std::abs(v.as_double()));
  if (v.is_integral()) return v.as_int() < 0 ? negative(v) : Value(v.as_int());
  if (v.is_undefined()) fail(v.as_undefined().message);
  fail(fmt::format("bad operand type for abs(): '{}'", type_name(v)));
}

Value filter_round(Machine&, const Value& v, const Args& args) {
  const Arguments a = bind("round", args, {"precision", "method"});
  const std::string method = a[1] && a[1]->is_string() ? a[1]->bytes() : a[1] ? "" : "common";
  if (method != "common" && method != "ceil" && method != "floor")
    fail("method must be common, ceil or floor");
  const long long precision = a[0] ? to_int(*a[0], "precision") : 0;
  if (v.is_undefined()) fail(v.as_undefined().message);
  if (!v.is_number()) fail(fmt::format("round: a number is needed, not {}", type_name(v)));
  if (precision < 0 || precision > 300)
    fail_unsupported("round: a precision outside 0 to 300 is not supported");
  if (method == "common") {
    if (v.is_integral()) return Value(v.as_int());
    if (!std::isfinite(v.as_double())) return v;
    // Decimal digits as printf rounds them are exact: half-way cases are decided on the true value.
    char digits[700];
    std::snprintf(digits, sizeof digits, "%.*f", static_cast<int>(precision), v.as_double());
    return Value(std::strtod(digits, nullptr));
  }
  const double scale = std::pow(10.0, static_cast<double>(precision));
  const double scaled = v.as_double() * scale;
  const double whole = method == "ceil" ? std::ceil(scaled) : std::floor(scaled);
  if (!std::isfinite(whole)) fail("cannot convert float infinity or NaN to integer");
  return Value(whole / scale + 0.0);
}

Value filter_format(Machine& m, const Value& v, const Args& args) {
  if (!args.named.empty()) fail_unsupported("format with named arguments is not supported");
  return Value(percent_format(as_string(m, v), args.positional, false, m.budget()));
}

const std::unordered_map<std::string, Builtin>& filters() {
  static const std::unordered_map<std::string, Builtin> table = {
      {"abs", filter_abs},
      {"attr", filter_attr},
      {"batch", filter_batch},
      {"capitalize", filter_text<capitalize>},
      {"count", filter_length},
      {"d", filter_default},
      {"default", filter_default},
      {"dictsort", filter_dictsort},
      {"e", filter_escape},
      {"escape", filter_escape},
      {"first", filter_first},
      {"float", filter_float},
      {"format", filter_format},
      {"indent", filter_indent},
      {"int", filter_int},
      {"items", filter_items},
      {"join", filter_join},
      {"last", filter_last},
      {"length", filter_length},
      {"list", filter_list},
      {"lower", filter_text<lower>},
      {"map", filter_map},
      {"max", filter_extreme<true>},
      {"min", filter_extreme<false>},
      {"reject", filter_select<false, false>},
      {"rejectattr", filter_select<false, true>},
      {"replace", filter_replace},
      {"reverse", filter_reverse},
      {"round", filter_round},
      {"safe", filter_safe},
      {"select", filter_select<true, false>},
      {"selectattr", filter_select<true, true>},
      {"sort", filter_sort},
      {"string", filter_string},
      {"sum", filter_sum},
      {"title", filter_text<title_words, false>},
      {"tojson", filter_tojson},
      {"trim", filter_trim},
      {"unique", filter_unique},
      {"upper", filter_text<upper>},
  };
  return table;
}

}  // namespace

Value get_path(Machine& m, const Value& item, const Value& path, const Value& otherwise) {
  const auto step = [&](const Value& object, const Value& key) {
    Value found = m.get_item(object, key);
    return found.is_undefined() && !otherwise.is_none() ? otherwise : found;
  };
  if (path.is_none()) return item;
  if (!path.is_string()) return step(item, path);
  Value out = item;
  for (const Text& part : split(path.text(), ".", -1)) {
    const bool digits =
        !part.empty() && part.bytes().find_first_not_of("0123456789") == std::string::npos;
    const std::optional<Int> index = digits ? parse_int(part.bytes(), 10) : std::nullopt;
    out = step(out, index ? Value(*index) : Value(part));
  }
  return out;
}

Builtin find_filter(const std::string& name) {
  const auto found = filters().find(name);
  return found == filters().end() ? nullptr : found->second;
}

}  // namespace lacuna::jinja
