// SPDX-License-Identifier: Apache-2.0
#include "decode/stop_strings.h"

#include <algorithm>
#include <utility>

namespace lacuna {

StopStrings::StopStrings(std::vector<std::string> stops) : stops_(std::move(stops)) {
  for (const std::string& stop : stops_) longest_ = std::max(longest_, stop.size());
}

std::string StopStrings::push(std::string_view piece) {
  if (stopped()) return {};
  pending_ += piece;
  std::size_t first_end = std::string::npos;
  for (const std::string& stop : stops_) {
    const std::size_t at = pending_.find(stop);
    if (at == std::string::npos) continue;
    const std::size_t end = at + stop.size();
    if (end < first_end || (end == first_end && stop.size() > matched_.size())) {
      first_end = end;
      matched_ = stop;
    }
  }
  const std::size_t shown = stopped() ? first_end - matched_.size() : pending_.size() - held_back();
  std::string text = pending_.substr(0, shown);
  if (stopped()) {
    pending_.clear();
  } else {
    pending_.erase(0, shown);
  }
  return text;
}

std::string StopStrings::finish() { return std::exchange(pending_, {}); }

// Length of the longest end of pending_ that is the beginning of a stop string.
std::size_t StopStrings::held_back() const {
  if (stops_.empty()) return 0;
  const std::string_view text = pending_;
  for (std::size_t n = std::min(text.size(), longest_ - 1); n > 0; --n) {
    const std::string_view tail = text.substr(text.size() - n);
    for (const std::string& stop : stops_)
      if (stop.size() > n && std::string_view(stop).substr(0, n) == tail) return n;
  }
  return 0;
}

}  // namespace lacuna
