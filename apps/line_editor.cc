// SPDX-License-Identifier: Apache-2.0
#include "line_editor.h"

#include <histedit.h>
#include <unistd.h>

#include <cerrno>
#include <clocale>
#include <cstdlib>
#include <system_error>

namespace lacuna {
namespace {

namespace fs = std::filesystem;

constexpr int kHistoryLines = 1000;

const char* prompt(EditLine*) { return "> "; }

unsigned char leave(EditLine*, int) { return CC_EOF; }

}  // namespace

struct LineEditor::Terminal {
  EditLine* editor;
  History* history;
  fs::path history_file = history_path();

  Terminal() : editor(el_init("lacuna", stdin, stderr, stderr)), history(history_init()) {
    HistEvent event;
    ::history(history, &event, H_SETSIZE, kHistoryLines);
    ::history(history, &event, H_SETUNIQUE, 1);
    if (!history_file.empty()) {
      std::error_code ignored;
      fs::create_directories(history_file.parent_path(), ignored);
      ::history(history, &event, H_LOAD, history_file.c_str());
    }
    el_set(editor, EL_PROMPT, prompt);
    el_set(editor, EL_EDITOR, "emacs");
    el_set(editor, EL_HIST, ::history, history);
    el_source(editor, nullptr);
    // While a line is edited Ctrl-C is a key like any other: as a signal it could come just before
    // the read, and be lost.
    el_set(editor, EL_SIGNAL, 0);
    el_set(editor, EL_SETTY, "-d", "-isig", nullptr);
    el_set(editor, EL_ADDFN, "lacuna-leave", "leave", leave);
    el_set(editor, EL_BIND, "^C", "lacuna-leave", nullptr);
  }

  ~Terminal() {
    history_end(history);
    el_end(editor);
  }

  // A failure to save costs the history of one line, not the chat.
  void remember(const char* line) {
    HistEvent event;
    ::history(history, &event, H_ENTER, line);
    if (!history_file.empty()) ::history(history, &event, H_SAVE, history_file.c_str());
  }
};

LineEditor::LineEditor() {
  if (isatty(STDIN_FILENO) == 0) return;
  std::setlocale(LC_CTYPE, "");  // libedit asks it how wide a character is
  terminal_ = std::make_unique<Terminal>();
}

LineEditor::~LineEditor() = default;

LineEditor::Event LineEditor::read(std::string& line) {
  if (!terminal_) return read_pipe(line);
  // libedit itself would show the prompt first, and a key typed in between would miss the editor.
  el_set(terminal_->editor, EL_PREP_TERM, 1);
  int length = 0;
  errno = 0;
  const char* const text = el_gets(terminal_->editor, &length);
  if (text == nullptr || length <= 0) return errno == EINTR ? Event::kInterrupted : Event::kEnd;
  line.assign(text, length);
  if (line.find_first_not_of(" \t\r\n") != std::string::npos) terminal_->remember(text);
  if (line.ends_with('\n')) line.pop_back();
  return Event::kLine;
}

LineEditor::Event LineEditor::read_pipe(std::string& line) {
  line.clear();
  for (int c; (c = std::getchar()) != EOF;) {
    if (c == '\n') return Event::kLine;
    line.push_back(static_cast<char>(c));
  }
  if (std::ferror(stdin) != 0 && errno == EINTR) return Event::kInterrupted;
  return line.empty() ? Event::kEnd : Event::kLine;
}

fs::path history_path() {
  if (const char* state = std::getenv("XDG_STATE_HOME"); state != nullptr && *state == '/')
    return fs::path(state) / "lacuna" / "history";
  if (const char* home = std::getenv("HOME"); home != nullptr && *home != '\0')
    return fs::path(home) / ".local" / "state" / "lacuna" / "history";
  return {};
}

}  // namespace lacuna
