// SPDX-License-Identifier: Apache-2.0
// Arguments of calls, and the global functions: jinja2's, and the two that Hugging Face adds.
#include <fmt/core.h>

#include <ctime>
#include <unordered_map>

#include "text/jinja_machine.h"
#include "text/jinja_operators.h"
#include "text/jinja_print.h"

namespace lacuna::jinja {

std::vector<std::optional<Value>> bind(const std::string& what, const Args& args,
                                       std::initializer_list<const char*> names,
                                       std::size_t required) {
  if (args.positional.size() > names.size()) {
    fail(fmt::format("{} takes at most {} arguments, {} were given", what, names.size(),
                     args.positional.size()));
  }
  std::vector<std::optional<Value>> out(args.positional.begin(), args.positional.end());
  out.resize(names.size());
  for (const auto& [name, value] : args.named) {
    std::size_t i = 0;
    while (i < names.size() && name != names.begin()[i]) ++i;
    if (i == names.size()) fail(fmt::format("{} has no argument {}", what, quoted(name)));
    if (out[i]) fail(fmt::format("{} got two values for argument {}", what, quoted(name)));
    out[i] = value;
  }
  for (std::size_t i = 0; i < required; ++i) {
    if (!out[i]) fail(fmt::format("{} wants an argument {}", what, quoted(names.begin()[i])));
  }
  return out;
}

namespace {

Value range(Machine& m, const Value&, const Args& args) {
  const auto a = bind("range", args, {"start", "stop", "step"}, 1);
  if (!args.named.empty()) fail("range() takes no keyword arguments");
  const Int start = a[1] ? to_int(*a[0], "range start") : 0;
  const Int stop = to_int(a[1] ? *a[1] : *a[0], "range stop");
  const Int step = a[2] ? to_int(*a[2], "range step") : 1;
  if (step == 0) fail("range() arg 3 must not be zero");
  const Int span = step > 0 ? stop - start : start - stop;
  const Int by = step > 0 ? step : -step;
  const Int count = span <= 0 ? 0 : (span + by - 1) / by;
  if (count > kMaxRange)
    fail(fmt::format("range too big: {} items, the most is {}", int_text(count), kMaxRange));
  std::vector<Value> items;
  for (Int i = 0; i < count; ++i) items.emplace_back(start + i * step);
  m.budget().allocate(items.size() * sizeof(Value));
  auto sequence = std::make_shared<Sequence>();
  sequence->form = Sequence::Form::kRange;
  sequence->items = std::move(items);
  sequence->shown = fmt::format("range({}, {}", int_text(start), int_text(stop));
  sequence->shown += step == 1 ? ")" : fmt::format(", {})", int_text(step));
  return Value(std::shared_ptr<const Sequence>(std::move(sequence)));
}

// What dict(…) takes: a dict or pairs, then named items.
void fill(Machine& m, Dict& dict, const Args& args, const char* what) {
  if (args.positional.size() > 1) fail(fmt::format("{} takes at most 1 positional argument", what));
  for (const Value& v : args.positional) {
    if (v.is_dict()) {
      for (const auto& [key, value] : v.as_dict().items()) dict.set(key, value);
      continue;
    }
    for (const Value& pair : elements(v, m.budget())) {
      const std::vector<Value> parts = elements(pair, m.budget());
      if (parts.size() != 2)
        fail(fmt::format("{}: an item has {} elements, 2 are wanted", what, parts.size()));
      dict.set(parts[0], parts[1]);
    }
  }
  for (const auto& [name, value] : args.named) dict.set(Value::string(name), value);
  m.budget().allocate(dict.items().size() * 4 * sizeof(Value));
}

Value dict(Machine& m, const Value&, const Args& args) {
  auto out = std::make_shared<Dict>();
  fill(m, *out, args, "dict");
  return Value(std::shared_ptr<const Dict>(std::move(out)));
}

Value make_namespace(Machine& m, const Value&, const Args& args) {
  Namespace* space = m.new_namespace();
  fill(m, space->attributes, args, "namespace");
  return Value(space);
}

Value raise_exception(Machine& m, const Value&, const Args& args) {
  const auto a = bind("raise_exception", args, {"message"}, 1);
  fail(m.text_of(*a[0]).bytes());
}

Value strftime_now(Machine& m, const Value&, const Args& args) {
  const auto a = bind("strftime_now", args, {"format"}, 1);
  if (!a[0]->is_string()) fail("strftime_now: the format must be a string");
  const std::string& format = a[0]->bytes();
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  Text out;
  for (std::size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%') {
      out.append(format.substr(i, 1));
      continue;
    }
    const char kind = ++i < format.size() ? format[i] : '\0';
    if (kind == '\0' ||
        std::string_view("aAwdbBmyYHIpMSZzjUWcxXGuVFTDReh%").find(kind) == std::string_view::npos) {
      fail_unsupported(
          fmt::format("strftime_now: %{} is not supported", kind == '\0' ? ' ' : kind));
    }
    const char one[] = {'%', kind, '\0'};
    char shown[128];
    const std::size_t n = std::strftime(shown, sizeof shown, one, &local);
    out.append(std::string_view(shown, n));
    m.budget().allocate(n);
  }
  return Value(std::move(out));
}

}  // namespace

Builtin find_function(const std::string& name) {
  static const std::unordered_map<std::string, Builtin> table = {
      {"dict", dict},   {"namespace", make_namespace},  {"raise_exception", raise_exception},
      {"range", range}, {"strftime_now", strftime_now},
  };
  const auto found = table.find(name);
  return found == table.end() ? nullptr : found->second;
}

}  // namespace lacuna::jinja
