// SPDX-License-Identifier: Apache-2.0
// The program: finds the command and hands over.
#include <fmt/core.h>
#include <signal.h>

#include <algorithm>
#include <exception>
#include <new>
#include <string>

#include "commands.h"
#include "console.h"
#include "lacuna/version.h"

namespace {

struct Command {
  const char* name;
  const char* summary;
  int (*run)(const lacuna::Arguments& arguments);
};

constexpr Command kCommands[] = {
    {"run", "answer one prompt", lacuna::run_command},
    {"chat", "talk with a model", lacuna::chat_command},
    {"eval", "perplexity of a text, and how far two settings are apart", lacuna::eval_command},
    {"bench", "how fast a model runs, sparse and dense", lacuna::bench_command},
    {"profile", "what is live, what is read, and where the time goes", lacuna::profile_command},
    {"inspect", "what a checkpoint holds", lacuna::inspect_command},
    {"convert", "make an MLX checkpoint from an original release", lacuna::convert_command},
    {"synth", "write a checkpoint of random weights, for measuring", lacuna::synth_command},
};

std::string help() {
  std::string text = "Usage: lacuna COMMAND [OPTIONS]\n\n";
  for (const Command& command : kCommands)
    text += fmt::format("  {:8}  {}\n", command.name, command.summary);
  text += "\n  lacuna COMMAND --help   the options of a command\n";
  text += "  lacuna --version\n";
  return text;
}

int dispatch(const lacuna::Arguments& arguments) {
  using namespace lacuna;
  const std::string name = arguments.empty() ? "" : arguments[0];
  for (const Command& command : kCommands)
    if (name == command.name) return command.run({arguments.begin() + 1, arguments.end()});
  if (name == "--version")
    return write_out(fmt::format("lacuna {}\n", kVersion)) ? kExitDone : kExitFailure;
  if (name == "--help" || name == "-h" || name == "help")
    return write_out(help()) ? kExitDone : kExitFailure;
  tell(name.empty() ? "lacuna: no command (see lacuna --help)"
                    : fmt::format("lacuna: no command \"{}\" (see lacuna --help)", name));
  return kExitUsage;
}

}  // namespace

int main(int argc, char** argv) {
  signal(SIGPIPE, SIG_IGN);  // a reader that left shows as a failed write
  try {
    return dispatch({argv + std::min(argc, 1), argv + argc});
  } catch (const std::bad_alloc&) {
    lacuna::tell("lacuna: out of memory");
    return lacuna::kExitMemory;
  } catch (const std::exception& error) {
    lacuna::tell(fmt::format("lacuna: {}", error.what()));
    return lacuna::kExitFailure;
  }
}
