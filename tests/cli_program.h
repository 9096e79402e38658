// SPDX-License-Identifier: Apache-2.0
// Runs the program under test as a child, with files for its streams or on a terminal of its own.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/safetensors_writer.h"

namespace lacuna::test {

using Arguments = std::vector<std::string>;

struct Outcome {
  int code = -1;  // 128 + n after signal n
  std::string out, err;
};

constexpr auto kPatience = std::chrono::seconds(60);  // a loaded machine, a sanitizer build

// One folder for all tests of the process: packed weights, history, scratch files.
inline const TempFolder& scratch() {
  static const TempFolder folder;
  return folder;
}

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline int wait_for(pid_t child) {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  int status = 0;
  while (waitpid(child, &status, WNOHANG) == 0) {
    if (std::chrono::steady_clock::now() > deadline) {
      ADD_FAILURE() << "the program did not end";
      kill(child, SIGKILL);
      waitpid(child, &status, 0);
      break;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// In the child: never returns. `environment` adds to a clean one.
[[noreturn]] inline void become_program(const Arguments& arguments, const Arguments& environment) {
  std::vector<std::string> variables = {"PATH=/usr/bin:/bin",
                                        "LC_ALL=C.UTF-8",
                                        "TERM=xterm",
                                        "HOME=" + scratch().path().string(),
                                        "XDG_STATE_HOME=" + scratch().path().string(),
                                        "LACUNA_CACHE=" + scratch().path().string()};
  variables.insert(variables.end(), environment.begin(), environment.end());
  std::vector<char*> argv = {const_cast<char*>(LACUNA_PROGRAM)};
  for (const std::string& a : arguments) argv.push_back(const_cast<char*>(a.c_str()));
  argv.push_back(nullptr);
  std::vector<char*> envp;
  for (const std::string& v : variables) envp.push_back(const_cast<char*>(v.c_str()));
  envp.push_back(nullptr);
  execve(LACUNA_PROGRAM, argv.data(), envp.data());
  _exit(126);
}

class Child {
 public:
  Child(const Arguments& arguments, const std::string& input, const Arguments& environment,
        std::string out_path = "") {
    scratch().write("stdin", input);
    if (out_path.empty()) out_path = (scratch().path() / "stdout").string();
    pid_ = fork();
    if (pid_ != 0) return;
    redirect(scratch().path() / "stdin", O_RDONLY, 0);
    redirect(out_path, O_WRONLY | O_CREAT | O_TRUNC, 1);
    redirect(scratch().path() / "stderr", O_WRONLY | O_CREAT | O_TRUNC, 2);
    become_program(arguments, environment);
  }

  // Waits until something stands on stdout.
  void await_output() const {
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    while (read_file(scratch().path() / "stdout").empty()) {
      ASSERT_LT(std::chrono::steady_clock::now(), deadline) << "no output";
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }
  void send(int signal) const { kill(pid_, signal); }
  Outcome wait() const {
    const int code = wait_for(pid_);
    return {code, read_file(scratch().path() / "stdout"), read_file(scratch().path() / "stderr")};
  }

 private:
  static void redirect(const std::filesystem::path& path, int flags, int to) {
    const int file = open(path.c_str(), flags, 0600);
    if (file < 0 || dup2(file, to) < 0) _exit(125);
    close(file);
  }
  pid_t pid_;
};

inline Outcome run(const Arguments& arguments, const std::string& input = "",
                   const Arguments& environment = {}) {
  std::filesystem::remove(scratch().path() / "stdout");
  return Child(arguments, input, environment).wait();
}

// The program with a terminal as its three streams.
class TerminalChild {
 public:
  explicit TerminalChild(const Arguments& arguments, const Arguments& environment = {}) {
    pid_ = forkpty(&terminal_, nullptr, nullptr, nullptr);
    if (pid_ == 0) become_program(arguments, environment);
    if (pid_ < 0) ADD_FAILURE() << "no pseudo-terminal: is devpts mounted?";
  }
  ~TerminalChild() {
    if (terminal_ >= 0) close(terminal_);
  }
  TerminalChild(const TerminalChild&) = delete;

  void type(const std::string& text) const {
    ASSERT_EQ(write(terminal_, text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }

  // Reads until `text` is seen, and takes everything up to its end: the next call goes on there.
  std::string await(const std::string& text) {
    if (pid_ < 0) return {};
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    while (unread_.find(text) == std::string::npos) {
      pollfd ready = {terminal_, POLLIN, 0};
      char buffer[4096];
      if (poll(&ready, 1, 100) > 0) {
        const ssize_t n = read(terminal_, buffer, sizeof buffer);
        if (n <= 0) break;
        unread_.append(buffer, n);
      }
      if (std::chrono::steady_clock::now() > deadline) break;
    }
    const std::size_t at = unread_.find(text);
    EXPECT_NE(at, std::string::npos) << "no \"" << text << "\" in: " << unread_;
    const std::size_t end = at == std::string::npos ? unread_.size() : at + text.size();
    std::string seen = unread_.substr(0, end);
    unread_.erase(0, end);
    return seen;
  }
  int wait() const { return pid_ < 0 ? -1 : wait_for(pid_); }

 private:
  int terminal_ = -1;
  std::string unread_;
  pid_t pid_;
};

}  // namespace lacuna::test
