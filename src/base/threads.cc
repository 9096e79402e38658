// SPDX-License-Identifier: Apache-2.0
#include "base/threads.h"

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
    epoch_.fetch_add(1);
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
  call_ = call;
  body_ = body;
  tasks_ = tasks;
  next_.store(0, std::memory_order_relaxed);
  busy_.store(static_cast<int>(workers_.size()), std::memory_order_relaxed);
  epoch_.fetch_add(1);
  // Both this load and the sleeper's look at epoch_ are sequentially consistent: either we see the
  // sleeper and wake it, or it sees the new epoch and does not sleep.
  if (sleepers_.load() > 0) {
    const std::lock_guard lock(mutex_);
    wake_.notify_all();
  }
  work(0);
  for (int spins = 0; busy_.load(std::memory_order_acquire) != 0; ++spins) {
    if (spins < kSpins) {
      pause_cpu();
    } else {
      std::this_thread::yield();
    }
  }
}

void ThreadPool::work(int thread) {
  for (;;) {
    const int task = next_.fetch_add(1, std::memory_order_relaxed);
    if (task >= tasks_) return;
    call_(body_, task, thread);
  }
}

void ThreadPool::worker(int thread) {
  const FlushDenormals flush;
  std::uint32_t seen = 0;
  for (;;) {
    for (int spins = 0; epoch_.load(std::memory_order_acquire) == seen; ++spins) {
      if (spins < kSpins) {
        pause_cpu();
      } else if (spins < kSpins + kYields) {
        std::this_thread::yield();
      } else {
        std::unique_lock lock(mutex_);
        sleepers_.fetch_add(1);
        wake_.wait(lock, [&] { return epoch_.load() != seen; });
        sleepers_.fetch_sub(1);
      }
    }
    seen = epoch_.load(std::memory_order_acquire);
    if (stop_) return;
    work(thread);
    busy_.fetch_sub(1, std::memory_order_release);
  }
}

}  // namespace lacuna
