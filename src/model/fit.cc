// SPDX-License-Identifier: Apache-2.0
#include "model/fit.h"

#include <fmt/core.h>

#include <algorithm>

namespace lacuna {
namespace {

constexpr int kLeastContext = 256;

double mb(std::uint64_t bytes) { return static_cast<double>(bytes) / 1e6; }

}  // namespace

Result<int> fit_context(const MemoryNeeds& needs, int wanted, bool exact) {
  const std::uint64_t fixed = needs.weights + needs.state;
  const std::uint64_t left = needs.available > fixed ? needs.available - fixed : 0;
  const std::uint64_t fits = needs.bytes_per_token == 0 ? static_cast<std::uint64_t>(wanted)
                                                        : left / needs.bytes_per_token;
  const bool weights_fit = needs.available >= fixed;
  if (weights_fit && fits >= static_cast<std::uint64_t>(wanted)) return wanted;
  if (!weights_fit || exact || fits < kLeastContext) {
    const int tokens = exact ? wanted : std::min(wanted, kLeastContext);
    return Error{
        ErrorCode::kOutOfMemory,
        fmt::format("needs {:.1f} MB of memory (weights {:.1f}, state {:.1f}, {} tokens of context "
                    "{:.1f}), {:.1f} MB are available",
                    mb(fixed + needs.bytes_per_token * static_cast<std::uint64_t>(tokens)),
                    mb(needs.weights), mb(needs.state), tokens,
                    mb(needs.bytes_per_token * static_cast<std::uint64_t>(tokens)),
                    mb(needs.available))};
  }
  return static_cast<int>(fits);
}

}  // namespace lacuna
