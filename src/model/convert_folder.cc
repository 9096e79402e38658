// SPDX-License-Identifier: Apache-2.0
#include "model/convert_folder.h"

#include <fmt/core.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/mmap.h"
#include "checkpoint/json.h"

namespace lacuna {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// Empty where the system does not say.
std::string boot_id() {
  std::string line;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), line);
  return line;
}

// Nothing when the folder has no note, or one that is damaged or of another conversion.
std::optional<ConvertProgress> read_progress(const fs::path& folder,
                                             const std::string& conversion) {
  const auto text = read_text_file(folder / kConvertProgress);
  if (!text) return {};
  const auto note = parse_json(*text, kConvertProgress);
  if (!note || !note->is_object() || note->value("conversion", Json()) != conversion) return {};
  const Json parts = note->value("parts", Json());
  if (!parts.is_number_integer() || parts.get<std::int64_t>() < 0) return {};
  const std::string boot = boot_id();
  return ConvertProgress{parts.get<std::uint64_t>(),
                         !boot.empty() && note->value("boot", Json()) == boot};
}

bool is_quantized_checkpoint(const fs::path& folder) {
  const auto text = read_text_file(folder / kConvertedConfig);
  if (!text) return false;
  const auto config = parse_json(*text, kConvertedConfig);
  return config && config->is_object() && config->contains("quantization");
}

bool is_weight_file(const fs::path& path) {
  const std::string name = path.filename().string();
  return name.ends_with(".safetensors") || name.ends_with(".safetensors.partial");
}

}  // namespace

Error wrong_path(const fs::path& path, const std::string& what) {
  return {ErrorCode::kInvalidArgument, fmt::format("{}: {}", path.string(), what)};
}

Error path_error(const fs::path& path, const std::error_code& problem) {
  return {ErrorCode::kIo, fmt::format("{}: {}", path.string(), problem.message())};
}

Result<void> note_convert_progress(OutputFolder& out, const std::string& conversion,
                                   std::uint64_t parts) {
  const Json note = {{"conversion", conversion}, {"parts", parts}, {"boot", boot_id()}};
  return out.write(kConvertProgress, note.dump(1) + "\n");
}

Result<std::vector<fs::path>> list_destination(const fs::path& folder) {
  std::error_code problem;
  const fs::file_status status = fs::status(folder, problem);
  if (!fs::exists(status)) return std::vector<fs::path>();
  if (!fs::is_directory(status))
    return wrong_path(folder, "is no folder, wanted a new or empty one");
  std::vector<fs::path> files;
  for (auto it = fs::directory_iterator(folder, problem); !problem && it != fs::end(it);
       it.increment(problem))
    files.push_back(it->path());
  if (problem) return path_error(folder, problem);
  return files;
}

Result<ConvertDestination> look_at_destination(const fs::path& folder,
                                               const std::string& conversion, bool force) {
  ConvertDestination out;
  LAC_TRY(const std::vector<fs::path> files, list_destination(folder));
  if (files.empty()) return out;
  std::error_code ignored;
  const bool unfinished = fs::exists(folder / kConvertProgress, ignored);
  if (unfinished && !force) {
    out.progress = read_progress(folder, conversion);
    if (out.progress) return out;
    return wrong_path(folder,
                      "holds an unfinished conversion of another source or with other options, "
                      "wanted --force to start again");
  }
  if (!unfinished && !is_quantized_checkpoint(folder)) {
    return wrong_path(folder,
                      force ? "holds something else than a conversion, wanted one, or a new or "
                              "empty folder"
                            : "is not empty, wanted a new or empty folder");
  }
  if (!force) return wrong_path(folder, "holds a checkpoint, wanted --force to replace it");
  std::copy_if(files.begin(), files.end(), std::back_inserter(out.old_files), is_weight_file);
  for (const char* name : {kConvertedIndex, kConvertedConfig, kConvertProgress})
    out.old_files.push_back(folder / name);
  return out;
}

}  // namespace lacuna
