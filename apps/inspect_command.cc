// SPDX-License-Identifier: Apache-2.0
// lacuna inspect: what a checkpoint holds, from its headers alone.
#include "model/inspect.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "commands.h"
#include "console.h"
#include "open_model.h"

namespace lacuna {
namespace {

using Json = nlohmann::ordered_json;

struct InspectFlags {
  std::string model;
  bool tensors = false;
  bool json = false;
};

Result<int> inspect(const InspectFlags& flags) {
  LAC_TRY(const std::filesystem::path folder, find_model(flags.model));
  LAC_TRY(const InspectReport report, inspect_checkpoint(folder));
  const std::string text = flags.json
                               ? inspect_json(report, flags.tensors)
                                         .dump(-1, ' ', false, Json::error_handler_t::replace) +
                                     "\n"
                               : inspect_text(report, flags.tensors);
  if (!write_out(text)) return Error{ErrorCode::kIo, "stdout: cannot be written"};
  return kExitDone;
}

}  // namespace

int inspect_command(const Arguments& arguments) {
  InspectFlags flags;
  CommandLine line("inspect", "What a checkpoint holds, from its headers alone.");
  line.option("-m,--model,--model-path,model", flags.model,
              "checkpoint folder; without one the bundled small model");
  line.flag("--tensors", flags.tensors, "a line per tensor");
  line.flag("--json", flags.json, "one JSON object on stdout");
  if (const auto code = line.parse(arguments)) return *code;
  const Result<int> code = inspect(flags);
  return code.ok() ? *code : fail("inspect", code.error());
}

}  // namespace lacuna
