// SPDX-License-Identifier: Apache-2.0
// What this process may use of the machine: cores and instruction sets.
#pragma once

#include <string>
#include <vector>

#include "lacuna/result.h"

namespace lacuna {

// Levels of kernels, weakest first. A level is usable when the CPU and the system allow it.
enum class Isa { kScalar, kNeon, kAvx2, kAvx512, kAvx512Bf16 };

const char* isa_name(Isa isa);   // "scalar", "neon", "avx2", "avx512", "avx512bf16"
std::vector<Isa> usable_isas();  // weakest first; always begins with kScalar
// The best usable level, or the one LACUNA_ISA names. A name that is unknown or not usable on this
// machine is kInvalidArgument with the list of usable ones.
Result<Isa> choose_isa();

// Physical cores in the affinity mask, cut to the cgroup's CPU quota (rounded up); at least 1.
int usable_cores();
std::string cpu_model();  // "AMD EPYC", from the system; "unknown CPU" when it does not say

}  // namespace lacuna
