// SPDX-License-Identifier: Apache-2.0
#include "open_model.h"

#include <fmt/core.h>

#include <system_error>
#include <utility>

#include "console.h"

namespace lacuna {
namespace {

namespace fs = std::filesystem;

constexpr const char* kBundled = "tiny-nemotron-h/mlx-4bit";

}  // namespace

Result<fs::path> find_model(const std::string& name) {
  std::error_code ignored;
  if (!name.empty()) {
    if (fs::is_directory(name, ignored)) return fs::path(name);
    return Error{ErrorCode::kNotFound,
                 fmt::format("model {}: {}, want a checkpoint folder (a prompt goes in --prompt)",
                             name, fs::exists(name, ignored) ? "not a folder" : "no such folder")};
  }
  const fs::path program = fs::read_symlink("/proc/self/exe", ignored);
  const fs::path installed =
      program.parent_path().parent_path() / "share" / "lacuna" / "models" / kBundled;
  const fs::path source = fs::path(LACUNA_SOURCE_MODELS) / kBundled;
  for (const fs::path& folder : {installed, source})
    if (fs::is_directory(folder, ignored)) return folder;
  return Error{ErrorCode::kNotFound,
               fmt::format("the bundled model is neither at {} nor at {}: name one with --model",
                           installed.string(), source.string())};
}

Result<std::unique_ptr<Engine>> open_engine(const ModelFlags& flags) {
  LAC_TRY(const fs::path folder, find_model(flags.model));
  EngineOptions options = flags.engine_options();
  auto engine = [&] {
    ProgressLine progress("packing weights", !flags.quiet);
    options.on_packing = [&](std::uint64_t done, std::uint64_t total) {
      progress.update(done, total);
    };
    return Engine::open(folder, options);
  }();
  if (engine.ok() && !flags.quiet) {
    for (const std::string& note : (*engine)->info().notes) tell(note);
  }
  return engine;
}

}  // namespace lacuna
