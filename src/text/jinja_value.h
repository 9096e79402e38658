// SPDX-License-Identifier: Apache-2.0
// The values of a template: what Python would hold, and what may be done to them.
//
// Values are immutable and shared, apart from namespaces, loops and iterators. Namespaces, scopes
// and macros belong to the Machine of one render and are pointed to, so no cycle of owners can
// arise; a container knows its own depth, so that none is too deep to print or to destroy.
//
// Errors inside the evaluator are thrown as Failure and caught at the door (chat_template.cc).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "lacuna/result.h"
#include "text/jinja_text.h"

namespace lacuna::jinja {

struct Failure {
  ErrorCode code = ErrorCode::kInvalidArgument;
  std::string message;
  int line = 0;  // 0: not known yet
};

[[noreturn]] void fail(std::string message);
[[noreturn]] void fail_unsupported(std::string message);

// What one render may use. A template is untrusted: every loop, copy and recursion pays here.
struct Limits {
  std::uint64_t steps = 50'000'000;                // node evaluations and elements touched
  std::uint64_t bytes = std::uint64_t{512} << 20;  // allocated in all, freed or not
  std::size_t output_bytes = std::size_t{64} << 20;
  int depth = 400;  // nested evaluations, macro calls included
};
inline constexpr int kMaxValueDepth = 200;  // lists in lists
inline constexpr long long kMaxRange = 100'000;

class Budget {
 public:
  explicit Budget(const Limits& limits) : limits_(limits) {}

  void step(std::uint64_t n = 1);
  void allocate(std::uint64_t bytes);  // also pays steps: touching memory is work

  // One level of recursion, for as long as it lives.
  class Level {
   public:
    explicit Level(Budget& budget);
    ~Level() { --budget_.depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    Budget& budget_;
  };

  const Limits& limits() const { return limits_; }

 private:
  Limits limits_;
  std::uint64_t steps_ = 0, bytes_ = 0;
  int depth_ = 0;
};

// Wide enough for every integer JSON can bring (int64 and uint64); overflow is a Failure.
__extension__ using Int = __int128;

class Value;
struct Sequence;
class Dict;
struct Iterator;
struct Namespace;
struct Loop;
struct Callable;

struct Undefined {
  std::string message;  // what a use of it fails with
  bool unsafe = false;  // an attribute that the sandbox hides
};
struct String {
  Text text;
  bool markup = false;  // result of `safe` or `escape`: + with it escapes the other side
};

class Value {
 public:
  using Storage = std::variant<std::monostate, std::shared_ptr<const Undefined>, bool, Int, double,
                               std::shared_ptr<const String>, std::shared_ptr<const Sequence>,
                               std::shared_ptr<const Dict>, std::shared_ptr<Iterator>, Namespace*,
                               std::shared_ptr<Loop>, std::shared_ptr<const Callable>>;

  Value() = default;  // None
  Value(bool b) : storage_(b) {}
  Value(Int i) : storage_(i) {}
  Value(double d) : storage_(d) {}
  Value(Namespace* n) : storage_(n) {}
  Value(Text text, bool markup = false);
  template <class T>
  Value(std::shared_ptr<T> p) : storage_(std::move(p)) {}
  static Value string(std::string_view bytes) { return Value(Text(std::string(bytes))); }
  static Value integer(long long i) { return Value(static_cast<Int>(i)); }
  static Value undefined(std::string message, bool unsafe = false);

  bool is_none() const { return storage_.index() == 0; }
  bool is_undefined() const { return storage_.index() == 1; }
  bool is_bool() const { return storage_.index() == 2; }
  bool is_int() const { return storage_.index() == 3; }
  bool is_float() const { return storage_.index() == 4; }
  bool is_string() const { return storage_.index() == 5; }
  bool is_sequence() const { return storage_.index() == 6; }
  bool is_dict() const { return storage_.index() == 7; }
  bool is_iterator() const { return storage_.index() == 8; }
  bool is_namespace() const { return storage_.index() == 9; }
  bool is_loop() const { return storage_.index() == 10; }
  bool is_callable() const { return storage_.index() == 11; }
  bool is_integral() const { return is_bool() || is_int(); }
  bool is_number() const { return is_integral() || is_float(); }

  const Undefined& as_undefined() const { return *std::get<1>(storage_); }
  bool as_bool() const { return std::get<2>(storage_); }
  Int as_int() const { return is_bool() ? Int{as_bool()} : std::get<3>(storage_); }
  double as_double() const {
    return is_float() ? std::get<4>(storage_) : static_cast<double>(as_int());
  }
  const String& as_string() const { return *std::get<5>(storage_); }
  const Text& text() const { return as_string().text; }
  const std::string& bytes() const { return as_string().text.bytes(); }
  const Sequence& as_sequence() const { return *std::get<6>(storage_); }
  const Dict& as_dict() const { return *std::get<7>(storage_); }
  Iterator& as_iterator() const { return *std::get<8>(storage_); }
  Namespace& as_namespace() const { return *std::get<9>(storage_); }
  Loop& as_loop() const { return *std::get<10>(storage_); }
  const Callable& as_callable() const { return *std::get<11>(storage_); }

  const Storage& storage() const { return storage_; }

 private:
  Storage storage_;
};

struct Sequence {
  enum class Form { kList, kTuple, kRange, kKeys, kValues, kItems };
  Form form = Form::kList;
  std::vector<Value> items;
  int depth = 1;
  std::string shown;  // what repr() gives for a range
};

// What a generator is: passed over once, without a length.
struct Iterator {
  std::vector<Value> items;
  std::size_t next = 0;
  int depth = 1;
};

// Keys are hashable values; order is that of insertion.
class Dict {
 public:
  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;
  void set(const Value& key, Value value);  // fails for an unhashable key
  const std::vector<std::pair<Value, Value>>& items() const { return items_; }
  int depth() const { return depth_; }

 private:
  std::vector<std::pair<Value, Value>> items_;
  std::unordered_map<std::string, std::size_t> index_;  // hash_key to position in items_
  int depth_ = 1;
};

struct Namespace {
  Dict attributes;
};

Value make_sequence(Sequence::Form form, std::vector<Value> items, Budget& budget);
inline Value make_list(std::vector<Value> items, Budget& budget) {
  return make_sequence(Sequence::Form::kList, std::move(items), budget);
}
inline Value make_tuple(std::vector<Value> items, Budget& budget) {
  return make_sequence(Sequence::Form::kTuple, std::move(items), budget);
}
Value make_iterator(std::vector<Value> items, Budget& budget);
Value make_dict(const std::vector<std::pair<std::string, Value>>& items, Budget& budget);

bool truth(const Value& v);
std::string type_name(const Value& v);  // "str", "dict", …, as Python's type(v).__name__
int depth_of(const Value& v);           // 0 for what is no container

// A text that is equal for two keys exactly when Python takes them for the same key (1, 1.0 and
// True). nullopt: v cannot be a key.
std::optional<std::string> hash_key(const Value& v);

bool equal(const Value& a, const Value& b, Budget& budget);
// a < b; fails when Python has no order for the pair.
bool less(const Value& a, const Value& b, Budget& budget);
// The elements that a `for` over v would see. An iterator is used up by it.
std::vector<Value> elements(const Value& v, Budget& budget);
bool contains(const Value& container, const Value& item, Budget& budget);

}  // namespace lacuna::jinja
