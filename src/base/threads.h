// SPDX-License-Identifier: Apache-2.0
// A pool of workers for many short parallel loops: a decode step has some 150 of them, a few µs
// each.
//
// Workers spin for a while between loops, then yield, then sleep, so an idle pool costs nothing and
// a busy neighbour is not starved. One loop at a time; the caller works too, and with a core taken
// away by another program it does the work alone instead of waiting.
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
    run_erased(
        tasks,
        [](const void* b, int task, int thread) { (*static_cast<const Body*>(b))(task, thread); },
        &body);
  }

 private:
  using Call = void (*)(const void* body, int task, int thread);

  // A loop is one word: its number, its tasks, and the next task to take. A thread takes a task by
  // exchanging the word it has read for one with the next task counted up; that works only while
  // the loop still goes on, so `call_` and `body_`, read in between, are that loop's. Nobody waits
  // for a worker that has taken nothing: one that the system does not let run costs nothing.
  static constexpr int kTaskBits = 20;
  static constexpr std::uint64_t kTaskMask = (std::uint64_t{1} << kTaskBits) - 1;

  void run_erased(int tasks, Call call, const void* body);
  void run_loop(int tasks, Call call, const void* body);
  bool take_tasks(int thread);
  void worker(int thread);

  std::vector<std::thread> workers_;
  alignas(64) std::atomic<std::uint64_t> loop_{0};  // number | tasks | next
  std::atomic<Call> call_{nullptr};
  std::atomic<const void*> body_{nullptr};
  alignas(64) std::atomic<int> done_{0};  // finished tasks of the loop
  std::atomic<bool> stop_{false};
  std::atomic<int> sleepers_{0};
  std::mutex mutex_;
  std::condition_variable wake_;
  std::mutex run_mutex_;  // one loop at a time when sessions share an engine
};

// Kernels run with denormals flushed to zero, in and out: the bf16 dot product instructions do so
// anyway, and every instruction set must give the same bits. Restores the caller's mode when it
// goes.
class FlushDenormals {
 public:
  FlushDenormals();
  ~FlushDenormals();

 private:
  std::uint64_t saved_;
};

}  // namespace lacuna
