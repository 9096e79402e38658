// SPDX-License-Identifier: Apache-2.0
// Where the time and the bytes of forward passes went, part by part: for `lacuna profile` and
// whoever tunes a kernel. Tracing costs a clock reading a part.
#pragma once

#include <chrono>
#include <vector>

#include "lacuna/counters.h"

namespace lacuna {

// One part of a pass, in the order it ran. Parts follow each other without a gap.
struct TraceStep {
  int pass = 0;           // counted from 0 since the trace was made or cleared
  int layer = -1;         // -1: outside the layers
  const char* part = "";  // "in_proj", "scan", "up", …: a literal
  double start = 0;       // seconds since the pass began
  double seconds = 0;
  Counters counters;  // of this part alone
};

class Trace {
 public:
  const std::vector<TraceStep>& steps() const { return steps_; }
  int passes() const { return passes_; }
  void clear() {
    steps_.clear();
    passes_ = 0;
  }

  // The rest is called by the model and its backend.
  void begin_pass(const Counters& now) {
    ++passes_;
    layer_ = -1;
    counters_ = now;
    began_ = at_ = Clock::now();
  }
  void enter_layer(int layer) { layer_ = layer; }
  // What ran since the last lap was `part`.
  void lap(const char* part, const Counters& now) {
    const Clock::time_point end = Clock::now();
    steps_.push_back(
        {passes_ - 1, layer_, part, seconds(at_ - began_), seconds(end - at_), now - counters_});
    counters_ = now;
    at_ = end;
  }

 private:
  using Clock = std::chrono::steady_clock;
  static double seconds(Clock::duration d) { return std::chrono::duration<double>(d).count(); }

  std::vector<TraceStep> steps_;
  int passes_ = 0;
  int layer_ = -1;
  Counters counters_;
  Clock::time_point began_, at_;
};

}  // namespace lacuna
