// SPDX-License-Identifier: Apache-2.0
#include "model/fit.h"

#include <gtest/gtest.h>

namespace lacuna {
namespace {

constexpr std::uint64_t kGb = 1'000'000'000;

// The full-size model at 4 bits: 17.8 GB, 49 MB of state, 6,144 bytes a token.
MemoryNeeds lightning(std::uint64_t available) {
  return {17'775'000'000, 49'100'000, 6144, available};
}

TEST(Fit, TheWholeContextWhenThereIsRoom) {
  EXPECT_EQ(*fit_context(lightning(32 * kGb), 1048576, false), 1048576);
}

TEST(Fit, LessContextWhenThatIsWhatFits) {
  const auto fits = fit_context(lightning(20 * kGb), 1048576, false);
  ASSERT_TRUE(fits.ok());
  EXPECT_EQ(*fits, (20 * kGb - 17'824'100'000) / 6144);
}

TEST(Fit, ANamedContextIsNotCutInSilence) {
  const auto refused = fit_context(lightning(20 * kGb), 1048576, true);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kOutOfMemory);
  for (const char* number : {"17775.0", "49.1", "1048576", "20000.0"}) {
    EXPECT_NE(refused.error().what.find(number), std::string::npos) << number;
  }
  EXPECT_TRUE(fit_context(lightning(20 * kGb), 300000, true).ok());
}

TEST(Fit, WeightsThatDoNotFitAreRefused) {
  EXPECT_FALSE(fit_context(lightning(16 * kGb), 100, false).ok());
  EXPECT_FALSE(fit_context(lightning(17'824'100'000 + 255 * 6144), 1048576, false).ok());
  EXPECT_TRUE(fit_context(lightning(17'824'100'000 + 256 * 6144), 1048576, false).ok());
}

TEST(Fit, AModelWithoutGrowingCachesTakesAnyContext) {
  EXPECT_EQ(*fit_context({kGb, 1000, 0, 2 * kGb}, 5000, true), 5000);
}

}  // namespace
}  // namespace lacuna
