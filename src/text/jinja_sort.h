// SPDX-License-Identifier: Apache-2.0
// A stable merge sort that stays inside its data whatever the order says: a template may compare
// NaNs.
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace lacuna::jinja {

template <class T, class Less>
void merge_sort(std::vector<T>& items, const Less& less) {
  std::vector<T> merged;
  for (std::size_t width = 1; width < items.size(); width *= 2) {
    merged.clear();
    merged.reserve(items.size());
    for (std::size_t begin = 0; begin < items.size(); begin += 2 * width) {
      const std::size_t middle = std::min(begin + width, items.size());
      const std::size_t end = std::min(begin + 2 * width, items.size());
      std::size_t a = begin;
      std::size_t b = middle;
      while (a < middle || b < end) {
        const bool take_b = a == middle || (b < end && less(items[b], items[a]));
        merged.push_back(std::move(items[take_b ? b++ : a++]));
      }
    }
    items.swap(merged);
  }
}

}  // namespace lacuna::jinja
