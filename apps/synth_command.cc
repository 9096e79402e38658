// SPDX-License-Identifier: Apache-2.0
// lacuna synth: a checkpoint of random weights in a real model's shape, for measuring.
#include "model/synth.h"

#include <fmt/core.h>

#include <filesystem>
#include <string>

#include "commands.h"
#include "console.h"
#include "open_model.h"

namespace lacuna {
namespace {

Result<int> synth(const std::string& folder, SynthOptions& options, bool quiet) {
  LAC_TRY(options.tokenizer_from, find_model(""));
  InterruptGuard interrupt;
  options.cancel = &interrupt.stop_flag();
  auto written = [&] {
    ProgressLine progress("writing weights", !quiet);
    options.on_progress = [&](std::uint64_t done, std::uint64_t total) {
      progress.update(done, total);
    };
    return write_synthetic(folder, options);
  }();
  LAC_TRY(const SynthReport report, std::move(written));
  if (!quiet) {
    tell(fmt::format("{}: {}", folder, report.description));
    tell(fmt::format("{} tensors, {:.2f} GB in {} file{}", report.tensors,
                     static_cast<double>(report.bytes) / 1e9, report.files,
                     report.files == 1 ? "" : "s"));
  }
  return kExitDone;
}

}  // namespace

int synth_command(const Arguments& arguments) {
  SynthOptions options;
  std::string folder;
  bool quiet = false;
  CommandLine line("synth",
                   "Writes a checkpoint of random weights, for measuring speed and memory.");
  CLI::App& app = line.app();  // of one call only, so not from the environment
  app.add_option("folder", folder, "folder to write, new or empty")->required();
  app.add_option("--shape", options.shape.shape,
                 "lightning, nano, super, ultra, or a config.json of a nemotron_h model");
  app.add_option("--layers", options.shape.layers, "only the first layers of the shape")
      ->check(CLI::Range(1, 1024));
  app.add_option("--pattern", options.shape.pattern, "other layers: letters M * E -");
  app.add_option("--experts", options.shape.experts,
                 "fewer routed experts; a token reads the same bytes")
      ->check(CLI::Range(1, 4096));
  app.add_flag("--mtp", options.shape.mtp, "with the drafting head, in mtp.safetensors");
  app.add_option("--live", options.live,
                 "share of live neurons: published, SHARE, or ROUTED,SHARED such as 0.05,0.12");
  app.add_option("-s,--seed", options.seed, "of the random weights");
  app.add_flag("--force", options.force, "replace a synthetic checkpoint in the folder");
  line.option("-t,--threads", options.threads, "worker threads; 0: the physical cores")
      ->check(CLI::Range(0, 1024));
  line.flag("-q,--quiet", quiet, "errors only on stderr");
  if (const auto code = line.parse(arguments)) return *code;
  const Result<int> code = synth(folder, options, quiet);
  return code.ok() ? *code : fail("synth", code.error());
}

}  // namespace lacuna
