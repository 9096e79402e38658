// SPDX-License-Identifier: Apache-2.0
// lacuna convert: an original release to MLX's quantised layout.
#include <fmt/core.h>

#include <cstdint>
#include <string>
#include <utility>

#include "commands.h"
#include "console.h"
#include "model/convert.h"

namespace lacuna {
namespace {

std::string size_text(std::uint64_t bytes) {
  const auto size = static_cast<double>(bytes);
  return size < 1e9 ? fmt::format("{:.1f} MB", size / 1e6) : fmt::format("{:.2f} GB", size / 1e9);
}

std::string summary(const std::string& folder, const ConvertReport& report) {
  std::string text = fmt::format("{}: {} modules quantised, {} tensors, {} in {} file{}", folder,
                                 report.modules, report.tensors, size_text(report.bytes),
                                 report.files, report.files == 1 ? "" : "s");
  if (report.has_head) text += ", with the drafting head";
  if (report.bytes_before > 0)
    text += fmt::format("; {} were there", size_text(report.bytes_before));
  return text;
}

Result<int> convert(const std::string& source, const std::string& folder, ConvertOptions& options,
                    bool quiet) {
  InterruptGuard interrupt;
  options.cancel = &interrupt.stop_flag();
  auto converted = [&] {
    ProgressLine progress("converting", !quiet);
    options.on_progress = [&](std::uint64_t done, std::uint64_t total) {
      progress.update(done, total);
    };
    return convert_checkpoint(source, folder, options);
  }();
  LAC_TRY(const ConvertReport report, std::move(converted));
  if (!quiet) tell(summary(folder, report));
  return kExitDone;
}

}  // namespace

int convert_command(const Arguments& arguments) {
  ConvertOptions options;
  std::string source, folder, rules, head = "auto", quantizer = "gpu";
  bool quiet = false;
  CommandLine line("convert",
                   "Converts an original BF16 or FP8 release to MLX's quantised layout.");
  CLI::App& app = line.app();  // of one call only, so not from the environment
  app.add_option("source", source, "checkpoint folder of the release")->required();
  app.add_option("folder", folder, "folder to write, new or empty")->required();
  app.add_option("--bits", options.format.bits, "of a weight: 2, 3, 4, 5, 6 or 8")
      ->check(CLI::IsMember({2, 3, 4, 5, 6, 8}));
  app.add_option("--group", options.format.group, "weights that share a scale: 32, 64 or 128")
      ->check(CLI::IsMember({32, 64, 128}));
  app.add_option("--rules", rules, "file of lines: PATTERN BITS [GROUP], or PATTERN keep");
  app.add_option("--mtp", head, "the drafting head: auto, only, off")
      ->check(CLI::IsMember({"auto", "only", "off"}));
  app.add_option("--quantizer", quantizer,
                 "whose bits: gpu (MLX on Metal and CUDA, as releases are made) or cpu")
      ->check(CLI::IsMember({"gpu", "cpu"}));
  app.add_flag("--force", options.force, "replace a conversion that is in the folder");
  line.option("-t,--threads", options.threads, "worker threads; 0: the physical cores")
      ->check(CLI::Range(0, 1024));
  line.flag("-q,--quiet", quiet, "errors only on stderr");
  if (const auto code = line.parse(arguments)) return *code;
  options.rules = rules;
  if (head != "auto") options.head = head == "only" ? HeadMode::kOnly : HeadMode::kOff;
  if (quantizer == "cpu") options.format.quantizer = MlxQuantizer::kCpu;
  const Result<int> code = convert(source, folder, options, quiet);
  return code.ok() ? *code : fail("convert", code.error());
}

}  // namespace lacuna
