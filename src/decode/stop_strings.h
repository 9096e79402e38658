// SPDX-License-Identifier: Apache-2.0
// Cuts a stream of text at the first stop string, also when it arrives in pieces.
//
// Text that could still begin a stop string is held back, nothing else is. The stop string that is
// complete first wins (of two that end together, the longer), so how the text was cut into pieces
// never changes what is shown.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lacuna {

class StopStrings {
 public:
  explicit StopStrings(std::vector<std::string> stops);  // none of them empty

  // Takes the next piece, gives what can be shown now. After a stop string: nothing, always.
  std::string push(std::string_view piece);
  // The end of the stream: gives what was held back.
  std::string finish();

  bool stopped() const { return !matched_.empty(); }
  const std::string& matched() const { return matched_; }  // the stop string met, or empty

 private:
  std::size_t held_back() const;

  std::vector<std::string> stops_;
  std::size_t longest_ = 0;
  std::string pending_;
  std::string matched_;
};

}  // namespace lacuna
