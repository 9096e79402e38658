// SPDX-License-Identifier: Apache-2.0
#include "base/threads.h"

#include "base/check.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace lacuna {
namespace {

// A wait passes through three stages. Spinning covers the gap between two loops of a decode step;
// yielding gives the core to whoever needs it; sleeping costs a wake-up and saves the battery.
constexpr int kSpins = 3000;
constexpr int kYields = 300;

void pause_cpu() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

std::uint64_t get_mode() {
#if defined(__x86_64__)
  return _mm_getcsr();
#elif defined(__aarch64__)
  std::uint64_t mode;
  asm volatile("mrs %0, fpcr" : "=r"(mode));
  return mode;
#else
  return 0;
#endif
}

void set_mode([[maybe_unused]] std::uint64_t mode) {
#if defined(__x86_64__)
  _mm_setcsr(static_cast<unsigned>(mode));
#elif defined(__aarch64__)
  asm volatile("msr fpcr, %0" ::"r"(mode));
#endif
}

#if defined(__x86_64__)
constexpr std::uint64_t kFlush = 0x8040;  // FTZ and DAZ
#else
constexpr std::uint64_t kFlush = std::uint64_t{1} << 24;  // FPCR.FZ
#endif

}  // namespace

FlushDenormals::FlushDenormals() : saved_(get_mode()) { set_mode(saved_ | kFlush); }
FlushDenormals::~FlushDenormals() { set_mode(saved_); }

ThreadPool::ThreadPool(int threads) {
  for (int i = 1; i < threads; ++i) workers_.emplace_back([this, i] { worker(i); });
}

ThreadPool::~ThreadPool() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  for (auto& w : workers_) w.join();
}

void ThreadPool::run_erased(int tasks, Call call, const void* body) {
  const std::lock_guard one_loop(run_mutex_);
  if (workers_.empty() || tasks == 1) {
    for (int task = 0; task < tasks; ++task) call(body, task, 0);
    return;
  }
  LAC_CHECK(static_cast<std::uint64_t>(tasks) <= kTaskMask, "{} tasks in one loop", tasks);
  run_loop(tasks, call, body);
}

void ThreadPool::run_loop(int tasks, Call call, const void* body) {
  call_.store(call, std::memory_order_relaxed);
  body_.store(body, std::memory_order_relaxed);
  done_.store(0, std::memory_order_relaxed);
  const std::uint64_t number = (loop_.load(std::memory_order_relaxed) >> (2 * kTaskBits)) + 1;
  loop_.store((number << kTaskBits | static_cast<std::uint64_t>(tasks)) << kTaskBits);
  // Both this load and the sleeper's look at loop_ are sequentially consistent: either we see the
  // sleeper and wake it, or it sees the loop and does not sleep.
  if (sleepers_.load() > 0) {
    const std::lock_guard lock(mutex_);
    wake_.notify_all();
  }
  take_tasks(0);
  for (int spins = 0; done_.load(std::memory_order_acquire) != tasks; ++spins) {
    if (spins < kSpins) {
      pause_cpu();
    } else {
      std::this_thread::yield();
    }
  }
}

// Runs tasks until there is none left to take; false when there was none.
bool ThreadPool::take_tasks(int thread) {
  bool any = false;
  for (std::uint64_t seen = loop_.load(std::memory_order_acquire);;) {
    const std::uint64_t next = seen & kTaskMask;
    if (next >= (seen >> kTaskBits & kTaskMask)) return any;
    const Call call = call_.load(std::memory_order_relaxed);
    const void* body = body_.load(std::memory_order_relaxed);
    if (!loop_.compare_exchange_weak(seen, seen + 1, std::memory_order_acq_rel)) continue;
    call(body, static_cast<int>(next), thread);
    done_.fetch_add(1, std::memory_order_release);
    any = true;
    seen = loop_.load(std::memory_order_acquire);
  }
}

void ThreadPool::worker(int thread) {
  const FlushDenormals flush;
  const auto work_left = [this] {
    const std::uint64_t loop = loop_.load();
    return (loop & kTaskMask) < (loop >> kTaskBits & kTaskMask);
  };
  for (int idle = 0;; ++idle) {
    if (take_tasks(thread)) idle = 0;
    if (idle < kSpins) {
      pause_cpu();
    } else if (idle < kSpins + kYields) {
      std::this_thread::yield();
    } else {
      std::unique_lock lock(mutex_);
      sleepers_.fetch_add(1);
      wake_.wait(lock, [&] { return stop_ || work_left(); });
      sleepers_.fetch_sub(1);
      idle = 0;
    }
    if (stop_.load(std::memory_order_relaxed)) return;
  }
}

}  // namespace lacuna
