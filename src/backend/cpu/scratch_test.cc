// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/scratch.h"

#include <gtest/gtest.h>

namespace lacuna {
namespace {

TEST(Scratch, ReleasedMemoryIsUsedAgain) {
  Scratch s;
  const std::size_t bottom = s.mark();
  float* a = s.take<float>(100);
  s.release(bottom);
  EXPECT_EQ(s.take<float>(100), a);
}

TEST(Scratch, BlocksAreAlignedAndApartAlsoWhenItGrows) {
  Scratch s;
  std::vector<std::pair<std::uint8_t*, std::size_t>> taken;
  for (const std::size_t n : {1ul, 63ul, 64ul, 5000000ul, 3ul, 9000000ul, 100ul}) {
    auto* p = s.take<std::uint8_t>(n);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(p) % 64, 0u);
    for (const auto& [q, m] : taken) EXPECT_TRUE(p + n <= q || q + m <= p);
    std::fill(p, p + n, std::uint8_t{1});
    taken.emplace_back(p, n);
  }
}

TEST(Scratch, ASecondPassTakesTheSameMemory) {
  Scratch s;
  std::vector<void*> first, second;
  for (auto* pass : {&first, &second}) {
    const std::size_t mark = s.mark();
    for (const std::size_t n : {1000000ul, 3000000ul, 10ul, 6000000ul})
      pass->push_back(s.take<float>(n));
    s.release(mark);
  }
  EXPECT_EQ(first, second);
}

}  // namespace
}  // namespace lacuna
