// SPDX-License-Identifier: Apache-2.0
#include "text/jinja_print.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "text/jinja_callable.h"
#include "text/jinja_loop.h"
#include "text/jinja_sort.h"
#include "text/jinja_unicode.h"

namespace lacuna::jinja {

std::string int_text(Int i) {
  // 10^18 at a time: the formatter stops at 64 bits.
  constexpr Int kChunk = 1'000'000'000'000'000'000;
  if (i > -kChunk && i < kChunk) return fmt::format("{}", static_cast<long long>(i));
  const auto low = static_cast<long long>(i % kChunk);
  return int_text(i / kChunk) + fmt::format("{:018}", low < 0 ? -low : low);
}

std::string float_text(double d) {
  if (std::isnan(d)) return "nan";
  if (std::isinf(d)) return d < 0 ? "-inf" : "inf";
  char buffer[40];
  const auto end =
      std::to_chars(buffer, buffer + sizeof buffer, d, std::chars_format::scientific).ptr;
  const std::string_view s(buffer, static_cast<std::size_t>(end - buffer));
  const std::size_t e = s.find('e');
  int exponent = 0;
  std::from_chars(s.data() + e + (s[e + 1] == '+' ? 2 : 1), end, exponent);
  std::string digits;
  for (const char c : s.substr(0, e)) {
    if (c >= '0' && c <= '9') digits += c;
  }
  const std::string sign = s[0] == '-' ? "-" : "";
  const int n = static_cast<int>(digits.size());
  if (exponent < -4 || exponent >= 16) {
    if (n > 1) digits.insert(1, ".");
    return sign + digits + fmt::format("e{}{:02}", exponent < 0 ? '-' : '+', std::abs(exponent));
  }
  if (exponent < 0)
    return sign + "0." + std::string(static_cast<std::size_t>(-exponent - 1), '0') + digits;
  if (n <= exponent + 1)
    return sign + digits + std::string(static_cast<std::size_t>(exponent + 1 - n), '0') + ".0";
  return sign + digits.insert(static_cast<std::size_t>(exponent) + 1, ".");
}

namespace {

void append_escaped(Text& out, char32_t c, bool user) {
  if (c < 0x100) return out.append(fmt::format("\\x{:02x}", static_cast<unsigned>(c)), user);
  if (c < 0x10000) return out.append(fmt::format("\\u{:04x}", static_cast<unsigned>(c)), user);
  out.append(fmt::format("\\U{:08x}", static_cast<unsigned>(c)), user);
}

Text repr_string(const Text& s) {
  const std::string& b = s.bytes();
  const bool double_quotes = b.find('\'') != std::string::npos && b.find('"') == std::string::npos;
  const char quote = double_quotes ? '"' : '\'';
  Text out(std::string(1, quote));
  for (std::size_t i = 0; i < b.size();) {
    const std::size_t next = next_char(b, i);
    const char32_t c = code_point(b, i);
    const bool user = s.from_user(i);
    if (c == static_cast<char32_t>(quote) || c == '\\') {
      out.append("\\", user);
      out.append(s, i, next);
    } else if (c == '\n') {
      out.append("\\n", user);
    } else if (c == '\r') {
      out.append("\\r", user);
    } else if (c == '\t') {
      out.append("\\t", user);
    } else if (is_printable(c)) {
      out.append(s, i, next);
    } else {
      append_escaped(out, c, user);
    }
    i = next;
  }
  out.append(std::string(1, quote));
  return out;
}

void append_repr(Text& out, const Value& v, Budget& budget);

void append_pairs(Text& out, const Dict& dict, Budget& budget) {
  out.append("{");
  bool first = true;
  for (const auto& [key, value] : dict.items()) {
    if (!first) out.append(", ");
    first = false;
    append_repr(out, key, budget);
    out.append(": ");
    append_repr(out, value, budget);
  }
  out.append("}");
}

void append_items(Text& out, const Sequence& s, Budget& budget) {
  using Form = Sequence::Form;
  if (s.form == Form::kRange) return out.append(s.shown);
  const bool tuple = s.form == Form::kTuple;
  if (s.form == Form::kKeys) out.append("dict_keys(");
  if (s.form == Form::kValues) out.append("dict_values(");
  if (s.form == Form::kItems) out.append("dict_items(");
  out.append(tuple ? "(" : "[");
  for (std::size_t i = 0; i < s.items.size(); ++i) {
    if (i > 0) out.append(", ");
    append_repr(out, s.items[i], budget);
  }
  if (tuple && s.items.size() == 1) out.append(",");
  out.append(tuple ? ")" : "]");
  if (!tuple && s.form != Form::kList) out.append(")");
}

void append_repr(Text& out, const Value& v, Budget& budget) {
  const Budget::Level level(budget);
  const std::size_t before = out.size();
  if (v.is_none()) {
    out.append("None");
  } else if (v.is_undefined()) {
    out.append("Undefined");
  } else if (v.is_bool()) {
    out.append(v.as_bool() ? "True" : "False");
  } else if (v.is_int()) {
    out.append(int_text(v.as_int()));
  } else if (v.is_float()) {
    out.append(float_text(v.as_double()));
  } else if (v.is_string()) {
    if (v.as_string().markup) out.append("Markup(");
    out.append(repr_string(v.text()));
    if (v.as_string().markup) out.append(")");
  } else if (v.is_sequence()) {
    append_items(out, v.as_sequence(), budget);
  } else if (v.is_dict()) {
    append_pairs(out, v.as_dict(), budget);
  } else if (v.is_namespace()) {
    out.append("<Namespace ");
    append_pairs(out, v.as_namespace().attributes, budget);
    out.append(">");
  } else if (v.is_loop()) {
    Loop& loop = v.as_loop();
    out.append(fmt::format("<LoopContext {}/{}>", loop.index0 + 1, loop.length()));
  } else if (v.is_callable() && v.as_callable().kind == Callable::Kind::kMacro) {
    out.append(fmt::format("<Macro {}>", quoted(v.as_callable().name)));
  } else {
    // Python shows a memory address here, so no template can mean it.
    fail(fmt::format("a {} cannot be printed", type_name(v)));
  }
  // Containers have paid for what is inside them.
  const bool leaf = !v.is_sequence() && !v.is_dict() && !v.is_namespace();
  budget.step();
  budget.allocate(leaf ? out.size() - before : 8);
}

}  // namespace

Text repr(const Value& v, Budget& budget) {
  Text out;
  append_repr(out, v, budget);
  return out;
}

Text to_text(const Value& v, Budget& budget) {
  if (v.is_string()) {
    budget.allocate(v.bytes().size());
    return v.text();
  }
  if (v.is_undefined()) return Text();
  return repr(v, budget);
}

std::string quoted(std::string_view text) { return repr_string(Text(std::string(text))).bytes(); }

namespace {

void append_json_char(Text& out, const Text& s, std::size_t at, std::size_t next,
                      bool ensure_ascii) {
  const char32_t c = code_point(s.bytes(), at);
  const bool user = s.from_user(at);
  switch (c) {
    case '"':
      return out.append("\\\"", user);
    case '\\':
      return out.append("\\\\", user);
    case '\n':
      return out.append("\\n", user);
    case '\r':
      return out.append("\\r", user);
    case '\t':
      return out.append("\\t", user);
    case '\f':
      return out.append("\\f", user);
    case '\b':
      return out.append("\\b", user);
    default:
      break;
  }
  if (c >= 0x20 && (c < 0x7F || !ensure_ascii)) return out.append(s, at, next);
  if (c < 0x10000) return out.append(fmt::format("\\u{:04x}", static_cast<unsigned>(c)), user);
  const auto high = static_cast<unsigned>(0xD800 + ((c - 0x10000) >> 10));
  const auto low = static_cast<unsigned>(0xDC00 + ((c - 0x10000) & 0x3FF));
  out.append(fmt::format("\\u{:04x}\\u{:04x}", high, low), user);
}

// One call of json.dumps.
class JsonWriter {
 public:
  JsonWriter(const JsonStyle& style, Budget& budget) : style_(style), budget_(budget) {}

  Text take() { return std::move(out_); }

  void write(const Value& v) {
    const Budget::Level level(budget_);
    budget_.step();
    if (v.is_none()) return put("null");
    if (v.is_bool()) return put(v.as_bool() ? "true" : "false");
    if (v.is_int()) return put(int_text(v.as_int()));
    if (v.is_float()) return put(number(v.as_double()));
    if (v.is_string()) return write_string(v.text());
    if (v.is_dict()) return write_dict(v.as_dict());
    using Form = Sequence::Form;
    if (v.is_sequence() &&
        (v.as_sequence().form == Form::kList || v.as_sequence().form == Form::kTuple)) {
      return write_list(v.as_sequence().items);
    }
    if (v.is_undefined()) fail(fmt::format("tojson: {}", v.as_undefined().message));
    fail(fmt::format("Object of type {} is not JSON serializable", type_name(v)));
  }

 private:
  void put(std::string_view s) {
    budget_.allocate(s.size());
    out_.append(s);
  }

  static std::string number(double d) {
    if (std::isnan(d)) return "NaN";
    if (std::isinf(d)) return d < 0 ? "-Infinity" : "Infinity";
    return float_text(d);
  }

  void write_string(const Text& s) {
    const std::string& b = s.bytes();
    budget_.allocate(b.size() + 2);
    out_.append("\"");
    for (std::size_t i = 0; i < b.size();) {
      const std::size_t next = next_char(b, i);
      append_json_char(out_, s, i, next, style_.ensure_ascii);
      i = next;
    }
    out_.append("\"");
  }

  void new_line() {
    if (!style_.indent) return;
    put("\n");
    for (int i = 0; i < level_; ++i) put(*style_.indent);
  }

  void write_list(const std::vector<Value>& items) {
    if (items.empty()) return put("[]");
    put("[");
    ++level_;
    for (std::size_t i = 0; i < items.size(); ++i) {
      separate(i);
      write(items[i]);
    }
    --level_;
    new_line();
    put("]");
  }

  void separate(std::size_t i) {
    if (i > 0) {
      budget_.allocate(style_.item_separator.size());
      out_.append(style_.item_separator);
    }
    new_line();
  }

  void write_dict(const Dict& dict) {
    if (dict.items().empty()) return put("{}");
    std::vector<const std::pair<Value, Value>*> order;
    for (const auto& item : dict.items()) order.push_back(&item);
    if (style_.sort_keys) {
      merge_sort(order,
                 [&](const auto* a, const auto* b) { return less(a->first, b->first, budget_); });
    }
    put("{");
    ++level_;
    for (std::size_t i = 0; i < order.size(); ++i) {
      separate(i);
      write_key(order[i]->first);
      budget_.allocate(style_.key_separator.size());
      out_.append(style_.key_separator);
      write(order[i]->second);
    }
    --level_;
    new_line();
    put("}");
  }

  void write_key(const Value& key) {
    if (key.is_string()) return write_string(key.text());
    if (key.is_none()) return put("\"null\"");
    if (key.is_bool()) return put(key.as_bool() ? "\"true\"" : "\"false\"");
    if (key.is_int()) return put('"' + int_text(key.as_int()) + '"');
    if (key.is_float()) return put('"' + number(key.as_double()) + '"');
    fail(fmt::format("keys must be str, int, float, bool or None, not {}", type_name(key)));
  }

  const JsonStyle& style_;
  Budget& budget_;
  Text out_;
  int level_ = 0;
};

}  // namespace

Text to_json(const Value& v, const JsonStyle& style, Budget& budget) {
  JsonWriter writer(style, budget);
  writer.write(v);
  return writer.take();
}

}  // namespace lacuna::jinja
