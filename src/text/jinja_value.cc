// SPDX-License-Identifier: Apache-2.0
#include "text/jinja_value.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "text/jinja_loop.h"

namespace lacuna::jinja {

void fail(std::string message) {
  throw Failure{.code = ErrorCode::kInvalidArgument, .message = std::move(message)};
}
void fail_unsupported(std::string message) {
  throw Failure{.code = ErrorCode::kUnsupported, .message = std::move(message)};
}

void Budget::step(std::uint64_t n) {
  steps_ += n;
  if (steps_ > limits_.steps)
    fail(fmt::format("the template takes more than {} steps", limits_.steps));
}

void Budget::allocate(std::uint64_t bytes) {
  step(bytes / 64);
  bytes_ += bytes;
  if (bytes_ > limits_.bytes) {
    fail(fmt::format("the template builds more than {} bytes of values", limits_.bytes));
  }
}

Budget::Level::Level(Budget& budget) : budget_(budget) {
  if (budget.depth_ >= budget.limits_.depth) {
    fail(fmt::format("the template nests or recurses more than {} levels deep",
                     budget.limits_.depth));
  }
  ++budget.depth_;
}

Value::Value(Text text, bool markup)
    : storage_(std::make_shared<const String>(String{std::move(text), markup})) {}

Value Value::undefined(std::string message, bool unsafe) {
  return Value(std::make_shared<const Undefined>(Undefined{std::move(message), unsafe}));
}

const Value* Dict::find(const Value& key) const {
  const std::optional<std::string> hash = hash_key(key);
  if (!hash) return nullptr;
  const auto it = index_.find(*hash);
  return it == index_.end() ? nullptr : &items_[it->second].second;
}

const Value* Dict::find(std::string_view key) const {
  std::string hash = "s";
  hash += key;
  const auto it = index_.find(hash);
  return it == index_.end() ? nullptr : &items_[it->second].second;
}

void Dict::set(const Value& key, Value value) {
  std::optional<std::string> hash = hash_key(key);
  if (!hash) fail(fmt::format("a {} cannot be a dict key", type_name(key)));
  depth_ = std::max({depth_, depth_of(key) + 1, depth_of(value) + 1});
  if (depth_ > kMaxValueDepth) fail(fmt::format("values nest more than {} deep", kMaxValueDepth));
  const auto [it, fresh] = index_.emplace(*std::move(hash), items_.size());
  if (fresh) {
    items_.emplace_back(key, std::move(value));
  } else {
    items_[it->second].second = std::move(value);
  }
}

Value make_sequence(Sequence::Form form, std::vector<Value> items, Budget& budget) {
  budget.allocate(sizeof(Sequence) + items.size() * sizeof(Value));
  auto s = std::make_shared<Sequence>();
  s->form = form;
  for (const Value& v : items) s->depth = std::max(s->depth, depth_of(v) + 1);
  if (s->depth > kMaxValueDepth) fail(fmt::format("values nest more than {} deep", kMaxValueDepth));
  s->items = std::move(items);
  return Value(std::shared_ptr<const Sequence>(std::move(s)));
}

Value make_iterator(std::vector<Value> items, Budget& budget) {
  budget.allocate(sizeof(Iterator) + items.size() * sizeof(Value));
  int depth = 0;
  for (const Value& v : items) depth = std::max(depth, depth_of(v));
  if (depth >= kMaxValueDepth) fail(fmt::format("values nest more than {} deep", kMaxValueDepth));
  return Value(std::make_shared<Iterator>(Iterator{std::move(items), 0, depth + 1}));
}

Value make_dict(const std::vector<std::pair<std::string, Value>>& items, Budget& budget) {
  auto dict = std::make_shared<Dict>();
  for (const auto& [key, value] : items) {
    budget.allocate(key.size() + 2 * sizeof(Value));
    dict->set(Value::string(key), value);
  }
  return Value(std::shared_ptr<const Dict>(std::move(dict)));
}

bool truth(const Value& v) {
  if (v.is_none() || v.is_undefined()) return false;
  if (v.is_bool()) return v.as_bool();
  if (v.is_int()) return v.as_int() != 0;
  if (v.is_float()) return v.as_double() != 0;
  if (v.is_string()) return !v.text().empty();
  if (v.is_sequence()) return !v.as_sequence().items.empty();
  if (v.is_dict()) return !v.as_dict().items().empty();
  return true;
}

std::string type_name(const Value& v) {
  static constexpr const char* kForms[] = {"list",      "tuple",       "range",
                                           "dict_keys", "dict_values", "dict_items"};
  static constexpr const char* kNames[] = {
      "NoneType", "Undefined", "bool",      "int",       "float",       "str",
      "",         "dict",      "generator", "Namespace", "LoopContext", "function"};
  if (v.is_sequence()) return kForms[static_cast<int>(v.as_sequence().form)];
  if (v.is_string() && v.as_string().markup) return "Markup";
  return kNames[v.storage().index()];
}

int depth_of(const Value& v) {
  if (v.is_sequence()) return v.as_sequence().depth;
  if (v.is_dict()) return v.as_dict().depth();
  if (v.is_iterator()) return v.as_iterator().depth;
  if (v.is_loop()) return v.as_loop().depth;
  return 0;
}

namespace {

// A small tuple can hold itself twice, and so on: without a limit its key would double at every
// level.
constexpr std::size_t kMaxKeyBytes = std::size_t{1} << 20;

bool hash_key_into(const Value& v, std::string& out) {
  if (v.is_none()) {
    out += 'n';
  } else if (v.is_integral()) {
    // The same text as the float of that value, which is Python's rule for keys.
    const Int i = v.as_int();
    out += 'i' + fmt::format("{:x}.{:x}",
                             static_cast<std::uint64_t>(static_cast<unsigned __int128>(i) >> 64),
                             static_cast<std::uint64_t>(i));
  } else if (v.is_float()) {
    const double d = v.as_double();
    if (std::abs(d) < 1e38 && d == std::trunc(d))
      return hash_key_into(Value(static_cast<Int>(d)), out);
    out += 'f' + fmt::format("{}", d);
  } else if (v.is_string()) {
    out += 's' + v.bytes();
  } else if (v.is_sequence() && v.as_sequence().form == Sequence::Form::kTuple) {
    out += fmt::format("t{}", v.as_sequence().items.size());
    for (const Value& item : v.as_sequence().items) {
      std::string inner;
      if (!hash_key_into(item, inner)) return false;
      if (inner.size() > kMaxKeyBytes) fail("a tuple is too large to be a key");
      out += fmt::format(",{}:", inner.size()) + inner;
    }
  } else if (v.is_undefined()) {
    out += 'u';
  } else if (v.is_namespace() || v.is_loop() || v.is_callable() || v.is_iterator()) {
    const auto address = std::visit(
        [](const auto& p) -> const void* {
          if constexpr (std::is_pointer_v<std::decay_t<decltype(p)>>) return p;
          if constexpr (requires { p.get(); }) return p.get();
          return nullptr;
        },
        v.storage());
    out += fmt::format("p{}", address);
  } else {
    return false;
  }
  return true;
}

bool equal_items(const std::vector<Value>& a, const std::vector<Value>& b, Budget& budget) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (!equal(a[i], b[i], budget)) return false;
  }
  return true;
}

}  // namespace

std::optional<std::string> hash_key(const Value& v) {
  std::string out;
  if (!hash_key_into(v, out)) return std::nullopt;
  return out;
}

bool equal(const Value& a, const Value& b, Budget& budget) {
  const Budget::Level level(budget);
  budget.step();
  if (a.is_number() && b.is_number()) {
    if (a.is_integral() && b.is_integral()) return a.as_int() == b.as_int();
    return a.as_double() == b.as_double();
  }
  if (a.storage().index() != b.storage().index()) return false;
  if (a.is_none() || a.is_undefined()) return true;
  if (a.is_string()) {
    budget.step(a.bytes().size() / 64);
    return a.text() == b.text();
  }
  if (a.is_sequence()) {
    return a.as_sequence().form == b.as_sequence().form &&
           equal_items(a.as_sequence().items, b.as_sequence().items, budget);
  }
  if (a.is_dict()) {
    if (a.as_dict().items().size() != b.as_dict().items().size()) return false;
    for (const auto& [key, value] : a.as_dict().items()) {
      const Value* other = b.as_dict().find(key);
      if (other == nullptr || !equal(value, *other, budget)) return false;
    }
    return true;
  }
  return a.storage() == b.storage();
}

bool less(const Value& a, const Value& b, Budget& budget) {
  const Budget::Level level(budget);
  budget.step();
  for (const Value* v : {&a, &b}) {
    if (v->is_undefined()) fail(v->as_undefined().message);
  }
  if (a.is_number() && b.is_number()) {
    if (a.is_integral() && b.is_integral()) return a.as_int() < b.as_int();
    return a.as_double() < b.as_double();
  }
  if (a.is_string() && b.is_string()) {
    budget.step(std::min(a.bytes().size(), b.bytes().size()) / 64);
    return a.bytes() < b.bytes();  // the order of UTF-8 bytes is the order of code points
  }
  using Form = Sequence::Form;
  if (a.is_sequence() && b.is_sequence() && a.as_sequence().form == b.as_sequence().form &&
      (a.as_sequence().form == Form::kList || a.as_sequence().form == Form::kTuple)) {
    const auto& x = a.as_sequence().items;
    const auto& y = b.as_sequence().items;
    for (std::size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
      if (!equal(x[i], y[i], budget)) return less(x[i], y[i], budget);
    }
    return x.size() < y.size();
  }
  fail(fmt::format("a {} and a {} have no order", type_name(a), type_name(b)));
}

std::vector<Value> elements(const Value& v, Budget& budget) {
  std::vector<Value> out;
  if (v.is_sequence()) {
    out = v.as_sequence().items;
  } else if (v.is_dict()) {
    for (const auto& item : v.as_dict().items()) out.push_back(item.first);
  } else if (v.is_string()) {
    const std::string& b = v.bytes();
    budget.allocate(b.size() * 100);
    for (std::size_t i = 0; i < b.size(); i = next_char(b, i)) {
      out.emplace_back(v.text().slice(i, next_char(b, i)));
    }
  } else if (v.is_iterator()) {
    Iterator& it = v.as_iterator();
    out.assign(it.items.begin() + static_cast<std::ptrdiff_t>(it.next), it.items.end());
    it.next = it.items.size();
  } else if (v.is_loop()) {
    fail_unsupported("iterating over the loop variable is not supported");
  } else if (!v.is_undefined()) {
    fail(fmt::format("'{}' object is not iterable", type_name(v)));
  }
  budget.allocate(out.size() * sizeof(Value));
  return out;
}

bool contains(const Value& container, const Value& item, Budget& budget) {
  if (container.is_string()) {
    if (item.is_undefined()) fail(item.as_undefined().message);
    if (!item.is_string()) {
      fail(fmt::format("'in <string>' requires string as left operand, not {}", type_name(item)));
    }
    budget.step(container.bytes().size() / 16);
    return container.bytes().find(item.bytes()) != std::string::npos;
  }
  if (container.is_dict()) {
    if (!hash_key(item)) fail(fmt::format("unhashable type: '{}'", type_name(item)));
    return container.as_dict().find(item) != nullptr;
  }
  if (!container.is_sequence() && !container.is_iterator() && !container.is_undefined()) {
    fail(fmt::format("argument of type '{}' is not iterable", type_name(container)));
  }
  for (const Value& v : elements(container, budget)) {
    if (equal(v, item, budget)) return true;
  }
  return false;
}

}  // namespace lacuna::jinja
