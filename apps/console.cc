// SPDX-License-Identifier: Apache-2.0
#include "console.h"

#include <fmt/core.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "options.h"

namespace lacuna {
namespace {

std::atomic<bool> stop_requested{false};
std::atomic<int> interrupts{0};
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<int>::is_always_lock_free,
              "a signal handler touches them");

constexpr int kPatience = 3;

void on_interrupt(int) {
  stop_requested.store(true);
  if (interrupts.fetch_add(1) + 1 >= kPatience) _exit(kExitInterrupted);
}

void set_interrupt_handler(void (*handler)(int)) {
  struct sigaction action = {};
  action.sa_handler = handler;
  sigemptyset(&action.sa_mask);
  action.sa_flags = 0;  // no SA_RESTART: Ctrl-C ends a wait for input
  sigaction(SIGINT, &action, nullptr);
}

void show(const std::string& text) { std::fwrite(text.data(), 1, text.size(), stderr); }

}  // namespace

// Past stdio: Ctrl-C may interrupt a write, which stdio would take for a failure and lose bytes.
bool write_out(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(STDOUT_FILENO, text.data(), text.size());
    if (written < 0 && errno != EINTR) return false;
    if (written > 0) text.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

void tell(std::string_view line) {
  std::string clean(line);
  for (char& c : clean)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
  clean += '\n';
  show(clean);
}

int fail(std::string_view command, const Error& error) {
  tell(fmt::format("lacuna {}: {}", command, error.what));
  return exit_code(error.code);
}

bool stderr_is_terminal() { return isatty(STDERR_FILENO) != 0; }

InterruptGuard::InterruptGuard() {
  reset();
  set_interrupt_handler(on_interrupt);
}

InterruptGuard::~InterruptGuard() { set_interrupt_handler(SIG_DFL); }

std::atomic<bool>& InterruptGuard::stop_flag() const { return stop_requested; }

int InterruptGuard::count() const { return interrupts.load(); }

void InterruptGuard::reset() {
  stop_requested.store(false);
  interrupts.store(0);
}

ProgressLine::ProgressLine(std::string label, bool shown)
    : label_(std::move(label)),
      shown_(shown && stderr_is_terminal() && std::getenv("NO_COLOR") == nullptr) {}

ProgressLine::~ProgressLine() {
  if (percent_ >= 0) show(fmt::format("\r{:{}}\r", "", label_.size() + 6));
}

void ProgressLine::update(std::uint64_t done, std::uint64_t total) {
  if (!shown_ || total == 0) return;
  const int percent =
      static_cast<int>(100.0 * static_cast<double>(done) / static_cast<double>(total));
  if (percent == percent_) return;
  percent_ = percent;
  show(fmt::format("\r{} {:3} %", label_, percent));
}

}  // namespace lacuna
