// SPDX-License-Identifier: Apache-2.0
// Memory this process may use.
#pragma once

#include <cstdint>

namespace lacuna {

// What the system says is available, cut to what the cgroup leaves.
std::uint64_t available_memory_bytes();

}  // namespace lacuna
