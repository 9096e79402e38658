// SPDX-License-Identifier: Apache-2.0
// The probe of the memory's read speed: that it measures something, and what it does without room.
#include "bandwidth.h"

#include <gtest/gtest.h>

namespace lacuna {
namespace {

constexpr std::size_t kSmall = std::size_t{64} << 20;
constexpr double kShort = 0.002;

TEST(BandwidthProbe, MeasuresAgainAndAgain) {
  for (const int threads : {1, 2, 3}) {
    BandwidthProbe probe(threads, kSmall);
    EXPECT_LE(probe.bytes(), kSmall);
    EXPECT_GT(probe.bytes(), kSmall - (std::size_t{1} << 20)) << threads;  // whole chunks of all
    for (int i = 0; i < 2; ++i) {
      const double gb_s = probe.measure(kShort);
      EXPECT_GT(gb_s, 0.01) << threads;
      EXPECT_LT(gb_s, 100'000) << threads;
    }
  }
}

TEST(BandwidthProbe, NoThreadsAreOne) {
  BandwidthProbe probe(0, kSmall);
  EXPECT_GT(probe.measure(kShort), 0);
}

// What fits the caches would be measured as faster than memory is.
TEST(BandwidthProbe, TooLittleMemoryGivesNoNumber) {
  for (const std::size_t bytes : {std::size_t{0}, kSmall - 1}) {
    BandwidthProbe probe(2, bytes);
    EXPECT_EQ(probe.bytes(), 0u);
    EXPECT_EQ(probe.measure(kShort), 0);
  }
}

}  // namespace
}  // namespace lacuna
