// SPDX-License-Identifier: Apache-2.0
// The `loop` variable of a for block, and the walk over its elements.
//
// A filter (`for x in xs if …`) is asked as late as Python asks it: when the element is needed, or
// peeked at by loop.last, loop.nextitem or loop.length.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "text/jinja_value.h"

namespace lacuna::jinja {

struct Loop {
  explicit Loop(std::vector<Value> items) : source(std::move(items)) {
    for (const Value& v : source) depth = std::max(depth, depth_of(v) + 1);
  }

  // Moves to the next element; false at the end.
  bool advance() {
    std::optional<Value> next = peek();
    after.reset();
    peeked = false;
    if (!next) return false;
    ++index0;
    before = std::exchange(current, *std::move(next));
    return true;
  }

  // The element after the current one, without moving to it.
  std::optional<Value> peek() {
    if (!peeked) {
      after = pull();
      peeked = true;
    }
    return after;
  }

  long long length() {
    if (!accept) return static_cast<long long>(source.size());
    if (!filtered_length) {
      std::vector<Value> rest;
      while (std::optional<Value> v = pull()) rest.push_back(*std::move(v));
      filtered_length = static_cast<long long>(rest.size()) + index0 + 1 + (after ? 1 : 0);
      source = std::move(rest);
      cursor = 0;
      kept = true;
    }
    return *filtered_length;
  }

  std::vector<Value> source;
  std::size_t cursor = 0;  // of the element to be pulled next
  std::function<bool(const Value&)>
      accept;         // the filter; empty: all. Emptied when the loop is over
  bool kept = false;  // what is left in source has passed the filter
  std::optional<long long> filtered_length;
  std::optional<Value> after;  // what peek() saw
  bool peeked = false;
  Value current, before;
  long long index0 = -1;
  bool finished = false;
  int depth = 1;                                   // of the values, as depth_of counts
  std::optional<std::vector<Value>> last_changed;  // arguments of the last loop.changed()

 private:
  std::optional<Value> pull() {
    while (cursor < source.size()) {
      const Value& v = source[cursor++];
      if (!accept || kept || accept(v)) return v;
    }
    return std::nullopt;
  }
};

}  // namespace lacuna::jinja
