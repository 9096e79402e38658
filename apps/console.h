// SPDX-License-Identifier: Apache-2.0
// The terminal: what is written where, and Ctrl-C.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

#include "lacuna/result.h"

namespace lacuna {

// Writes to stdout, unbuffered; false when the reader is gone or the disk is full.
bool write_out(std::string_view text);

// One line on stderr. Control characters, which a file name or a model may hold, become spaces.
void tell(std::string_view line);

// Tells an error as one line and gives the exit code it stands for.
int fail(std::string_view command, const Error& error);

bool stderr_is_terminal();

// While one exists, Ctrl-C is counted instead of ending the program. The third in a row ends it all
// the same, should the work not come to a point where it looks.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;

  // For SyncOptions::cancel and the like; may also be set by hand, to stop for another reason.
  std::atomic<bool>& stop_flag() const;
  int count() const;  // of Ctrl-C since the last reset
  void reset();
};

// "packing weights 43 %" on one line that is rewritten and finally wiped; nothing when stderr is no
// terminal, when NO_COLOR is set, or when not `shown`.
class ProgressLine {
 public:
  ProgressLine(std::string label, bool shown);
  ~ProgressLine();
  void update(std::uint64_t done, std::uint64_t total);

 private:
  std::string label_;
  bool shown_;
  int percent_ = -1;
};

}  // namespace lacuna
