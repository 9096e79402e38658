// SPDX-License-Identifier: Apache-2.0
#include "base/threads.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <limits>

namespace lacuna {
namespace {

TEST(ThreadPool, EveryTaskRunsOnceWhateverTheNumbers) {
  for (const int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.size(), threads);
    for (const int tasks : {0, 1, 2, 7, 1000}) {
      std::vector<std::atomic<int>> runs(static_cast<std::size_t>(tasks));
      pool.run(tasks, [&](int task, int thread) {
        EXPECT_GE(thread, 0);
        EXPECT_LT(thread, threads);
        ++runs[task];
      });
      for (const auto& r : runs) EXPECT_EQ(r, 1);
    }
  }
}

TEST(ThreadPool, ManyShortLoopsLoseNothing) {
  ThreadPool pool(4);
  std::atomic<int> sum{0};
  for (int i = 0; i < 2000; ++i)
    pool.run(4, [&](int, int) { sum.fetch_add(1, std::memory_order_relaxed); });
  EXPECT_EQ(sum, 8000);
}

TEST(ThreadPool, SleepersWake) {
  ThreadPool pool(3);
  for (int i = 0; i < 5; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // long enough for workers to sleep
    std::atomic<int> runs{0};
    pool.run(9, [&](int, int) { ++runs; });
    EXPECT_EQ(runs, 9);
  }
}

TEST(ThreadPool, LoopsOfTwoCallersTakeTurns) {
  ThreadPool pool(2);
  std::atomic<int> sum{0};
  std::vector<std::thread> callers;
  for (int c = 0; c < 3; ++c) {
    callers.emplace_back([&] {
      for (int i = 0; i < 100; ++i) pool.run(5, [&](int, int) { ++sum; });
    });
  }
  for (auto& c : callers) c.join();
  EXPECT_EQ(sum, 3 * 100 * 5);
}

TEST(FlushDenormals, HoldsForItsScopeOnly) {
  volatile float smallest = std::numeric_limits<float>::denorm_min();
  {
    const FlushDenormals flush;
    volatile float doubled = smallest * 2.0f;
    EXPECT_EQ(doubled, 0.0f);
  }
  volatile float doubled = smallest * 2.0f;
  EXPECT_GT(std::fpclassify(doubled) == FP_SUBNORMAL, 0);
}

TEST(FlushDenormals, WorkersFlushToo) {
  ThreadPool pool(3);
  volatile float smallest = std::numeric_limits<float>::denorm_min();
  const FlushDenormals flush;
  std::atomic<int> kept{0};
  pool.run(64, [&](int, int) {
    volatile float doubled = smallest * 2.0f;
    kept += doubled != 0.0f;
  });
  EXPECT_EQ(kept, 0);
}

}  // namespace
}  // namespace lacuna
