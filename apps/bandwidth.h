// SPDX-License-Identifier: Apache-2.0
// How fast this machine reads memory right now: the limit a decode step is measured against.
#pragma once

namespace lacuna {

// Gigabytes (10⁹) per second: the best of a few passes of `threads` threads over 256 MiB, more than
// the caches hold. Takes about 0.2 s. 0 when the memory cannot be had.
double measure_read_bandwidth(int threads);

}  // namespace lacuna
