// SPDX-License-Identifier: Apache-2.0
// Whether a model fits the memory there is, and how much context beside it.
#pragma once

#include <cstdint>

#include "lacuna/result.h"

namespace lacuna {

struct MemoryNeeds {
  std::uint64_t weights = 0;          // bytes, resident once all of it was read
  std::uint64_t state = 0;            // of one session, whatever its length
  std::uint64_t bytes_per_token = 0;  // of a session's caches
  std::uint64_t available = 0;
};

// Tokens of context that fit, at most `wanted`. When fewer fit and the caller named a number
// (`exact`), or when not even 256 do, kOutOfMemory with all the numbers.
Result<int> fit_context(const MemoryNeeds& needs, int wanted, bool exact);

}  // namespace lacuna
