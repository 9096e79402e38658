// SPDX-License-Identifier: Apache-2.0
// Methods of Python's str, dict, list and tuple, and the attributes of `loop`.
#include <fmt/core.h>

#include <algorithm>
#include <span>
#include <unordered_map>

#include "text/jinja_machine.h"
#include "text/jinja_operators.h"
#include "text/jinja_print.h"
#include "text/jinja_strings.h"

namespace lacuna::jinja {
namespace {

using Arguments = std::vector<std::optional<Value>>;

Value same_kind(const Value& like, Text text) {
  return Value(std::move(text), like.as_string().markup);
}

const Text& text_argument(const std::optional<Value>& v, const char* what) {
  if (v->is_undefined()) fail(v->as_undefined().message);
  if (!v->is_string()) fail(fmt::format("{} must be str, not {}", what, type_name(*v)));
  return v->text();
}

bool given(const std::optional<Value>& v) { return v && !v->is_none(); }

// ---- str

template <bool kLeft, bool kRight>
Value str_strip(Machine& m, const Value& s, const Args& args) {
  const Arguments a = bind("strip", args, {"chars"});
  m.budget().allocate(s.text().size());
  if (!given(a[0])) return same_kind(s, strip(s.text(), nullptr, kLeft, kRight));
  const std::string& chars = text_argument(a[0], "strip: chars").bytes();
  m.budget().step(s.text().size() * chars.size() / 16);
  return same_kind(s, strip(s.text(), &chars, kLeft, kRight));
}

template <bool kFromRight>
Value str_split(Machine& m, const Value& s, const Args& args) {
  const Arguments a = bind("split", args, {"sep", "maxsplit"});
  const long long limit = a[1] ? to_int(*a[1], "maxsplit") : -1;
  m.budget().allocate(s.text().size() * 2);
  std::vector<Text> parts;
  if (given(a[0])) {
    const std::string& separator = text_argument(a[0], "split: sep").bytes();
    if (separator.empty()) fail("empty separator");
    pay_for_replace(m.budget(), s.text(), separator,
                    Text(std::string(sizeof(Value) + 2 * sizeof(Text), ' ')));
    parts = kFromRight ? rsplit(s.text(), separator, limit) : split(s.text(), separator, limit);
  } else {
    m.budget().allocate(s.text().size() * sizeof(Text));
    parts = kFromRight ? rsplit_space(s.text(), limit) : split_space(s.text(), limit);
  }
  std::vector<Value> out;
  for (Text& part : parts) out.push_back(same_kind(s, std::move(part)));
  return make_list(std::move(out), m.budget());
}

Value str_splitlines(Machine& m, const Value& s, const Args& args) {
  const Arguments a = bind("splitlines", args, {"keepends"});
  m.budget().allocate(s.text().size() * sizeof(Text));
  std::vector<Value> out;
  for (Text& line : split_lines(s.text(), a[0] && truth(*a[0])))
    out.push_back(same_kind(s, std::move(line)));
  return make_list(std::move(out), m.budget());
}

template <bool kLast>
Value str_partition(Machine& m, const Value& s, const Args& args) {
  const Arguments a = bind("partition", args, {"sep"}, 1);
  const std::string& separator = text_argument(a[0], "partition: sep").bytes();
  if (separator.empty()) fail("empty separator");
  m.budget().allocate(s.text().size());
  const std::string& b = s.bytes();
  const std::size_t found = kLast ? b.rfind(separator) : b.find(separator);
  std::vector<Value> parts(3, same_kind(s, Text()));
  if (found == std::string::npos) {
    parts[kLast ? 2 : 0] = s;
  } else {
    parts[0] = same_kind(s, s.text().slice(0, found));
    parts[1] = same_kind(s, s.text().slice(found, found + separator.size()));
    parts[2] = same_kind(s, s.text().slice(found + separator.size(), b.size()));
  }
  return make_tuple(std::move(parts), m.budget());
}

template <bool kStart>
Value str_affix(Machine& m, const Value& s, const Args& args) {
  const Arguments a = bind(kStart ? "startswith" : "endswith", args, {"prefix", "start", "end"}, 1);
  if (a[1] || a[2]) fail_unsupported("startswith and endswith with positions are not supported");
  const auto matches = [&](const Value& affix) {
    const std::string& text = text_argument(affix, "startswith and endswith: the argument").bytes();
    return kStart ? s.bytes().starts_with(text) : s.bytes().ends_with(text);
  };
  if (a[0]->is_sequence() && a[0]->as_sequence().form == Sequence::Form::kTuple) {
    m.budget().step(a[0]->as_sequence().items.size());
    const auto& all = a[0]->as_sequence().items;
    return Value(std::any_of(all.begin(), all.end(), matches));
  }
  return Value(matches(*a[0]));
}

template <bool kStart>
Value str_remove_affix(Machine& m, const Value& s, const Args& args) {
  const Arguments a = bind(kStart ? "removeprefix" : "removesuffix", args, {"affix"}, 1);
  const std::string& affix = text_argument(a[0], "the affix").bytes();
  m.budget().allocate(s.text().size());
  const std::size_t size = s.text().size();
  if (kStart ? !s.bytes().starts_with(affix) : !s.bytes().ends_with(affix)) return s;
  return same_kind(
      s, kStart ? s.text().slice(affix.size(), size) : s.text().slice(0, size - affix.size()));
}

template <Text (*kChange)(const Text&)>
Value str_change(Machine& m, const Value& s, const Args& args) {
  bind("a str method", args, {});
  m.budget().allocate(s.text().size() * 2);
  m.budget().step(s.text().size());
  return same_kind(s, kChange(s.text()));
}

// str.title: unlike the filter, a word is a run of letters.
Text title_letters(const Text& s) {
  Text out;
  bool in_word = false;
  for (std::size_t i = 0; i < s.size(); ++i) {
    const char c = s.bytes()[i];
    if (static_cast<unsigned char>(c) >= 0x80)
      fail_unsupported("str.title of other text than ASCII is not supported");
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    const char changed = !letter ? c : static_cast<char>(in_word ? c | 0x20 : c & ~0x20);
    out.append(std::string_view(&changed, 1), s.from_user(i));
    in_word = letter;
  }
  return out;
}

Value str_replace(Machine& m, const Value& s, const Args& args) {
  const Arguments a = bind("replace", args, {"old", "new", "count"}, 2);
  const std::string& old = text_argument(a[0], "replace: old").bytes();
  Text with = text_argument(a[1], "replace: new");
  if (s.as_string().markup && !a[1]->as_string().markup) with = escape_html(with);
  const long long count = a[2] ? to_int(*a[2], "count") : -1;
  pay_for_replace(m.budget(), s.text(), old, with);
  return same_kind(s, replace(s.text(), old, with, count));
}

Value str_join(Machine& m, const Value& s, const Args& args) {
  const Arguments a = bind("join", args, {"iterable"}, 1);
  Text out;
  bool first = true;
  for (const Value& item : elements(*a[0], m.budget())) {
    if (!first) out.append(s.text());
    first = false;
    const Text& text = text_argument(item, "join: an item");
    out.append(s.as_string().markup && !item.as_string().markup ? escape_html(text) : text);
    m.budget().allocate(s.text().size() + text.size());
  }
  return same_kind(s, std::move(out));
}

// The byte range that start and end (in characters, Python's way) cut out.
std::pair<std::size_t, std::size_t> byte_range(const Value& s, const std::optional<Value>& start,
                                               const std::optional<Value>& end) {
  const std::vector<std::size_t> at = char_offsets(s.bytes());
  const auto size = static_cast<long long>(at.size()) - 1;
  const auto clamp = [&](const std::optional<Value>& v, long long otherwise) {
    long long i = given(v) ? to_int(*v, "a position") : otherwise;
    if (i < 0) i = std::max(i + size, 0LL);
    return i;
  };
  const long long from = clamp(start, 0);
  const long long to = std::min(clamp(end, size), size);
  if (from > to) return {1, 0};  // nothing, not even the empty text, is in there
  return {at[static_cast<std::size_t>(from)], at[static_cast<std::size_t>(to)]};
}

template <bool kLast, bool kMustFind>
Value str_find(Machine& m, const Value& s, const Args& args) {
  const Arguments a = bind("find", args, {"sub", "start", "end"}, 1);
  const std::string& sub = text_argument(a[0], "find: sub").bytes();
  m.budget().allocate(s.text().size() * sizeof(std::size_t));
  const auto [begin, end] = byte_range(s, a[1], a[2]);
  if (begin <= end) {
    const std::string_view part = std::string_view(s.bytes()).substr(begin, end - begin);
    const std::size_t found = kLast ? part.rfind(sub) : part.find(sub);
    if (found != std::string_view::npos) {
      return Value::integer(static_cast<long long>(
          count_chars(std::string_view(s.bytes()).substr(0, begin + found))));
    }
  }
  if (kMustFind) fail("substring not found");
  return Value::integer(-1);
}

Value str_count(Machine& m, const Value& s, const Args& args) {
  const Arguments a = bind("count", args, {"sub", "start", "end"}, 1);
  const std::string& sub = text_argument(a[0], "count: sub").bytes();
  m.budget().allocate(s.text().size() * sizeof(std::size_t));
  const auto [begin, end] = byte_range(s, a[1], a[2]);
  if (begin > end) return Value::integer(0);
  const std::string_view part = std::string_view(s.bytes()).substr(begin, end - begin);
  if (sub.empty()) return Value::integer(static_cast<long long>(count_chars(part)) + 1);
  long long n = 0;
  for (std::size_t at = part.find(sub); at != std::string_view::npos;
       at = part.find(sub, at + sub.size()))
    ++n;
  return Value::integer(n);
}

// str.format with {} {0} {name} and doubled braces; conversions and format specs are refused.
Value str_format(Machine& m, const Value& s, const Args& args) {
  const std::string& b = s.bytes();
  Text out;
  std::size_t next_position = 0;
  for (std::size_t i = 0; i < b.size(); ++i) {
    if (b[i] != '{' && b[i] != '}') {
      out.append(s.text(), i, i + 1);
      continue;
    }
    if (i + 1 < b.size() && b[i + 1] == b[i]) {
      out.append(s.text(), i, i + 1);
      ++i;
      continue;
    }
    const std::size_t close = b[i] == '{' ? b.find('}', i) : std::string::npos;
    if (close == std::string::npos) fail("single brace in format string");
    const std::string field = b.substr(i + 1, close - i - 1);
    if (field.find_first_of(".[!:{") != std::string::npos) {
      fail_unsupported(fmt::format("format field {} is not supported", quoted(field)));
    }
    const std::optional<Int> position =
        field.empty() ? std::optional<Int>(next_position++) : parse_int(field, 10);
    const auto named = std::find_if(args.named.begin(), args.named.end(),
                                    [&](const auto& n) { return n.first == field; });
    if (position && *position >= 0 && *position < static_cast<Int>(args.positional.size())) {
      out.append(m.text_of(args.positional[static_cast<std::size_t>(*position)]));
    } else if (!position && named != args.named.end()) {
      out.append(m.text_of(named->second));
    } else {
      fail(fmt::format("format: no argument for field {}", quoted(field)));
    }
    i = close;
  }
  m.budget().allocate(out.size());
  return same_kind(s, std::move(out));
}

// ---- dict, list, tuple

Value dict_get(Machine&, const Value& d, const Args& args) {
  const Arguments a = bind("get", args, {"key", "default"}, 1);
  if (!args.named.empty()) fail("dict.get() takes no keyword arguments");
  if (!hash_key(*a[0])) fail(fmt::format("unhashable type: '{}'", type_name(*a[0])));
  const Value* found = d.as_dict().find(*a[0]);
  return found != nullptr ? *found : a[1].value_or(Value());
}

template <Sequence::Form kForm>
Value dict_view(Machine& m, const Value& d, const Args& args) {
  bind("a dict view", args, {});
  std::vector<Value> out;
  for (const auto& [key, value] : d.as_dict().items()) {
    using Form = Sequence::Form;
    out.push_back(kForm == Form::kKeys     ? key
                  : kForm == Form::kValues ? value
                                           : make_tuple({key, value}, m.budget()));
  }
  return make_sequence(kForm, std::move(out), m.budget());
}

Value copy_of(Machine&, const Value& v, const Args& args) {
  bind("copy", args, {});
  return v;  // values do not change, so a copy is the value
}

Value list_count(Machine& m, const Value& list, const Args& args) {
  const Arguments a = bind("count", args, {"value"}, 1);
  long long n = 0;
  for (const Value& v : list.as_sequence().items) n += equal(v, *a[0], m.budget());
  return Value::integer(n);
}

Value list_index(Machine& m, const Value& list, const Args& args) {
  const Arguments a = bind("index", args, {"value"}, 1);
  const auto& items = list.as_sequence().items;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (equal(items[i], *a[0], m.budget())) return Value::integer(static_cast<long long>(i));
  }
  fail("the value is not in the list");
}

// ---- loop

Value loop_cycle(Machine&, const Value& loop, const Args& args) {
  if (args.positional.empty()) fail("no items for cycling given");
  if (!args.named.empty()) fail("loop.cycle() takes no keyword arguments");
  return args.positional[static_cast<std::size_t>(loop.as_loop().index0) % args.positional.size()];
}

Value loop_changed(Machine& m, const Value& self, const Args& args) {
  Loop& loop = self.as_loop();
  if (!args.named.empty()) fail("loop.changed() takes no keyword arguments");
  if (loop.finished) fail("loop.changed() after the loop's end");
  bool same = loop.last_changed && loop.last_changed->size() == args.positional.size();
  for (std::size_t i = 0; same && i < args.positional.size(); ++i) {
    same = equal((*loop.last_changed)[i], args.positional[i], m.budget());
  }
  if (!same) loop.last_changed = args.positional;
  return Value(!same);
}

using Methods = std::unordered_map<std::string, Builtin>;

const Methods kStrMethods = {
    {"capitalize", str_change<capitalize>},
    {"count", str_count},
    {"endswith", str_affix<false>},
    {"find", str_find<false, false>},
    {"format", str_format},
    {"index", str_find<false, true>},
    {"join", str_join},
    {"lower", str_change<lower>},
    {"lstrip", str_strip<true, false>},
    {"partition", str_partition<false>},
    {"removeprefix", str_remove_affix<true>},
    {"removesuffix", str_remove_affix<false>},
    {"replace", str_replace},
    {"rfind", str_find<true, false>},
    {"rindex", str_find<true, true>},
    {"rpartition", str_partition<true>},
    {"rsplit", str_split<true>},
    {"rstrip", str_strip<false, true>},
    {"split", str_split<false>},
    {"splitlines", str_splitlines},
    {"startswith", str_affix<true>},
    {"strip", str_strip<true, true>},
    {"title", str_change<title_letters>},
    {"upper", str_change<upper>},
};
const Methods kDictMethods = {
    {"copy", copy_of},
    {"get", dict_get},
    {"items", dict_view<Sequence::Form::kItems>},
    {"keys", dict_view<Sequence::Form::kKeys>},
    {"values", dict_view<Sequence::Form::kValues>},
};
const Methods kListMethods = {{"copy", copy_of}, {"count", list_count}, {"index", list_index}};
const Methods kTupleMethods = {{"count", list_count}, {"index", list_index}};

// Names that Python has on the type too: those that change it, and those that we have not.
constexpr const char* kChangeDict[] = {"clear", "pop", "popitem", "setdefault", "update"};
constexpr const char* kChangeList[] = {"append", "clear", "pop",    "reverse",
                                       "insert", "sort",  "extend", "remove"};
constexpr const char* kMissingDict[] = {"fromkeys"};
constexpr const char* kMissingStr[] = {
    "casefold",  "center",      "encode",    "expandtabs", "format_map",   "isalnum",
    "isalpha",   "isascii",     "isdecimal", "isdigit",    "isidentifier", "islower",
    "isnumeric", "isprintable", "isspace",   "istitle",    "isupper",      "ljust",
    "maketrans", "rjust",       "swapcase",  "translate",  "zfill"};
constexpr const char* kMissingNumber[] = {
    "as_integer_ratio", "bit_count", "bit_length", "conjugate", "denominator",
    "from_bytes",       "fromhex",   "hex",        "imag",      "is_integer",
    "numerator",        "real",      "to_bytes"};

struct TypeMethods {
  const Methods* methods;
  std::span<const char* const> changing, missing;
};

TypeMethods methods_of(const Value& v) {
  static const Methods kNothing;
  if (v.is_string()) return {&kStrMethods, {}, kMissingStr};
  if (v.is_dict()) return {&kDictMethods, kChangeDict, kMissingDict};
  if (v.is_number()) return {&kNothing, {}, kMissingNumber};
  if (v.is_sequence() && v.as_sequence().form == Sequence::Form::kList)
    return {&kListMethods, kChangeList, {}};
  if (v.is_sequence() && v.as_sequence().form == Sequence::Form::kTuple)
    return {&kTupleMethods, {}, {}};
  return {&kNothing, {}, {}};
}

bool is_listed(std::span<const char* const> names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

Value bound(const std::string& name, Builtin method, const Value& self) {
  return Value(
      std::make_shared<const Callable>(Callable{.name = name, .builtin = method, .self = self}));
}

}  // namespace

std::optional<Value> find_method(const Value& object, const std::string& name) {
  if (object.is_loop()) return loop_attribute(object, name);
  const TypeMethods type = methods_of(object);
  if (const auto found = type.methods->find(name); found != type.methods->end()) {
    return bound(name, found->second, object);
  }
  if (is_listed(type.changing, name)) {
    return Value::undefined(fmt::format("access to attribute {} of '{}' object is unsafe.",
                                        quoted(name), type_name(object)),
                            true);
  }
  if (is_listed(type.missing, name)) {
    return Value::undefined(fmt::format("{}.{} is not supported", type_name(object), name));
  }
  return std::nullopt;
}

std::optional<Value> loop_attribute(const Value& self, const std::string& name) {
  Loop& loop = self.as_loop();
  const long long i = loop.index0;
  if (name == "index") return Value::integer(i + 1);
  if (name == "index0") return Value::integer(i);
  if (name == "first") return Value(i == 0);
  if (name == "last") return Value(!loop.peek());
  if (name == "length") return Value::integer(loop.length());
  if (name == "revindex") return Value::integer(loop.length() - i);
  if (name == "revindex0") return Value::integer(loop.length() - i - 1);
  if (name == "depth") return Value::integer(1);
  if (name == "depth0") return Value::integer(0);
  if (name == "previtem")
    return i == 0 ? Value::undefined("there is no previous item") : loop.before;
  if (name == "nextitem") return loop.peek().value_or(Value::undefined("there is no next item"));
  if (name == "cycle") return bound(name, loop_cycle, self);
  if (name == "changed") return bound(name, loop_changed, self);
  return std::nullopt;
}

}  // namespace lacuna::jinja
