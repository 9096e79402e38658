// SPDX-License-Identifier: Apache-2.0
// Walks the kernels of this machine, and compares floats bit for bit.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <span>
#include <string>

#include "base/threads.h"
#include "ops/kernels.h"

namespace lacuna {

// Whether this program runs many times slower than usual: tests then repeat less.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

// Calls body(table) for every usable level but scalar, with denormals flushed as in a forward pass.
// A machine that only runs scalar has nothing to compare, and the test says so by failing.
template <class Body>
void for_each_kernel(const Body& body) {
  const FlushDenormals flush;
  int levels = 0;
  for (const Isa isa : usable_isas()) {
    if (isa == Isa::kScalar) continue;
    SCOPED_TRACE(isa_name(isa));
    body(kernels_for(isa));
    ++levels;
  }
  EXPECT_GT(levels, 0) << "no vector kernels on this machine";
}

// The first place where two results differ in any bit.
inline ::testing::AssertionResult same_bits(std::span<const float> want,
                                            std::span<const float> got) {
  if (want.size() != got.size())
    return ::testing::AssertionFailure() << want.size() << " and " << got.size() << " values";
  for (std::size_t i = 0; i < want.size(); ++i) {
    if (std::memcmp(&want[i], &got[i], sizeof(float)) != 0) {
      return ::testing::AssertionFailure()
             << "at " << i << ": want " << want[i] << ", got " << got[i];
    }
  }
  return ::testing::AssertionSuccess();
}

}  // namespace lacuna
