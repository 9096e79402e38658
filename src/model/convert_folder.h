// SPDX-License-Identifier: Apache-2.0
// The folder a conversion writes to: what is in it, and how far an earlier call has come.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "checkpoint/output_folder.h"
#include "lacuna/result.h"

namespace lacuna {

inline constexpr const char* kConvertedConfig = "config.json";
inline constexpr const char* kConvertedIndex = "model.safetensors.index.json";
inline constexpr const char* kConvertProgress = "convert.progress.json";

Error wrong_path(const std::filesystem::path& path, const std::string& what);  // kInvalidArgument
Error path_error(const std::filesystem::path& path, const std::error_code& problem);  // kIo

struct ConvertProgress {
  std::uint64_t parts = 0;  // that are written, over all shards
  // Data that was written before the machine went down may be lost though the file has its length,
  // so an unfinished file counts within one boot only.
  bool same_boot = false;
};

// `conversion` is a text that is equal only when every byte of the result will be.
Result<void> note_convert_progress(OutputFolder& out, const std::string& conversion,
                                   std::uint64_t parts);

struct ConvertDestination {
  std::optional<ConvertProgress> progress;       // to go on with
  std::vector<std::filesystem::path> old_files;  // to be replaced, the note of progress last
};

// kInvalidArgument says what is in a folder that cannot be written to. With `force` a conversion,
// whole or not, may be; anything else never.
Result<ConvertDestination> look_at_destination(const std::filesystem::path& folder,
                                               const std::string& conversion, bool force);

// What is in it; nothing when it is yet to be. kInvalidArgument when it is a file.
Result<std::vector<std::filesystem::path>> list_destination(const std::filesystem::path& folder);

}  // namespace lacuna
