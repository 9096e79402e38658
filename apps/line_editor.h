// SPDX-License-Identifier: Apache-2.0
// Lines typed by a person, with editing and a history that is kept; or the lines of a pipe.
#pragma once

#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>

namespace lacuna {

class LineEditor {
 public:
  // kEnd: end of input, or Ctrl-D or Ctrl-C on the line. kInterrupted: by a signal.
  enum class Event { kLine, kEnd, kInterrupted };

  LineEditor();  // decides by whether stdin is a terminal
  ~LineEditor();

  bool interactive() const { return terminal_ != nullptr; }

  // Waits for a line, without its newline.
  Event read(std::string& line);

 private:
  struct Terminal;  // libedit's objects
  Event read_pipe(std::string& line);

  std::unique_ptr<Terminal> terminal_;
};

// $XDG_STATE_HOME/lacuna/history, by default under ~/.local/state; empty when there is no home.
std::filesystem::path history_path();

}  // namespace lacuna
