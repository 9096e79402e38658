// SPDX-License-Identifier: Apache-2.0
// A pool of workers for many short parallel loops: a decode step has some 150 of them, a few µs each.
//
// Workers spin for a while between loops, then yield, then sleep, so an idle pool costs nothing and
// a busy neighbour is not starved. One loop at a time; the caller works too.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace lacuna {

class ThreadPool {
 public:
  explicit ThreadPool(int threads);  // in all, the caller included
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;

  int size() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls body(task, thread) for every task in [0, tasks), thread in [0, size()). Threads take the
  // next free task, so which thread runs a task is not fixed: results must not depend on it.
  // Returns when all are done. `body` must not throw and must not call run.
  template <class Body>
  void run(int tasks, const Body& body) {
    if (tasks <= 0) return;
    run_erased(tasks, [](const void* b, int task, int thread) { (*static_cast<const Body*>(b))(task, thread); },
               &body);
  }

 private:
  using Call = void (*)(const void* body, int task, int thread);
  void run_erased(int tasks, Call call, const void* body);
  void work(int thread);
  void worker(int thread);

  std::vector<std::thread> workers_;
  Call call_ = nullptr;
  const void* body_ = nullptr;
  int tasks_ = 0;
  alignas(64) std::atomic<int> next_{0};
  alignas(64) std::atomic<int> busy_{0};           // workers that have not finished this loop
  alignas(64) std::atomic<std::uint32_t> epoch_{0};  // rises by one a loop
  std::atomic<bool> stop_{false};
  std::atomic<int> sleepers_{0};
  std::mutex mutex_;
  std::condition_variable wake_;
  std::mutex run_mutex_;  // one loop at a time when sessions share an engine
};

// Kernels run with denormals flushed to zero, in and out: the bf16 dot product instructions do so
// anyway, and every instruction set must give the same bits. Restores the caller's mode when it goes.
class FlushDenormals {
 public:
  FlushDenormals();
  ~FlushDenormals();

 private:
  std::uint64_t saved_;
};

}  // namespace lacuna
