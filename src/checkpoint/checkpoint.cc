// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/checkpoint.h"

#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/mmap.h"
#include "checkpoint/json.h"

namespace lacuna {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* kConfig = "config.json";
constexpr const char* kIndex = "model.safetensors.index.json";
constexpr const char* kSingle = "model.safetensors";

Error not_found(std::string what) { return {ErrorCode::kNotFound, std::move(what)}; }
Error corrupt(std::string what) { return {ErrorCode::kCorrupt, std::move(what)}; }

bool is_file(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

Error no_gguf(const fs::path& path) {
  return {ErrorCode::kUnsupported,
          fmt::format("{}: GGUF is not supported; wanted a folder with {} and safetensors files",
                      path.string(), kConfig)};
}

Result<void> check_folder(const fs::path& folder) {
  std::error_code error;
  const fs::file_status status = fs::status(folder, error);
  if (status.type() == fs::file_type::not_found) {
    return not_found(fmt::format("{}: no such folder; wanted one with {} and safetensors files",
                                 folder.string(), kConfig));
  }
  if (error) return Error{ErrorCode::kIo, fmt::format("{}: {}", folder.string(), error.message())};
  if (fs::is_directory(status)) return {};
  if (folder.extension() == ".gguf") return no_gguf(folder);
  return not_found(fmt::format("{}: a file; wanted the folder that holds {} and safetensors files",
                               folder.string(), kConfig));
}

// File names of the folder, sorted: what is found must not depend on the order the system lists
// them.
Result<std::vector<std::string>> list_files(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    names.push_back(it->path().filename().string());
  }
  if (error) return Error{ErrorCode::kIo, fmt::format("{}: {}", folder.string(), error.message())};
  std::sort(names.begin(), names.end());
  return names;
}

bool is_side_file(std::string_view name) {
  return name == "mtp.safetensors" ||
         (name.starts_with("model-mtp") && name.ends_with(".safetensors"));
}

Error no_weights(const fs::path& folder, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    if (name.ends_with(".gguf")) return no_gguf(folder / name);
  }
  const auto shard = std::find_if(names.begin(), names.end(), [](const std::string& name) {
    return name.starts_with("model-") && name.ends_with(".safetensors") && !is_side_file(name);
  });
  if (shard != names.end()) {
    return not_found(fmt::format("{}: no {}, which says what is in {} and the other shards",
                                 folder.string(), kIndex, *shard));
  }
  return not_found(fmt::format("{}: no weights; wanted {}, or {} and its shards", folder.string(),
                               kSingle, kIndex));
}

bool is_plain_file_name(const std::string& name) {
  return !name.empty() && name.front() != '.' &&
         name.find_first_of(std::string_view("/\\\0", 3)) == std::string::npos;
}

// Tensor name to file name.
Result<std::map<std::string, std::string>> read_index(const fs::path& folder) {
  LAC_TRY(const std::string text, read_text_file(folder / kIndex));
  LAC_TRY(const Json index, parse_json(text, kIndex));
  if (!index.is_object() || !index.contains("weight_map") || !index["weight_map"].is_object()) {
    return corrupt(
        fmt::format("{}: no weight_map, the object that gives every tensor's file", kIndex));
  }
  std::map<std::string, std::string> out;
  for (const auto& [tensor, file] : index["weight_map"].items()) {
    if (!file.is_string() || !is_plain_file_name(file.get_ref<const std::string&>())) {
      return corrupt(fmt::format("{}: {}: {}, wanted the name of a file beside it", kIndex,
                                 printable(tensor), printable_json(file)));
    }
    out.emplace(tensor, file.get<std::string>());
  }
  if (out.empty()) return corrupt(fmt::format("{}: weight_map lists no tensor", kIndex));
  return out;
}

}  // namespace

const TensorView* Checkpoint::find(const std::string& name) const {
  const auto it = tensors_.find(name);
  return it == tensors_.end() ? nullptr : &it->second;
}

// FNV-1a: fast on short texts, and a fingerprint guards against change, not against an attacker.
void Checkpoint::mix(std::string_view bytes) {
  for (const char c : bytes) {
    fingerprint_ = (fingerprint_ ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  }
}

Result<void> Checkpoint::add_file(const std::string& name, bool is_side) {
  const fs::path path = folder_ / name;
  LAC_TRY(MappedFile opened, MappedFile::open(path));
  std::error_code error;
  const auto modified = fs::last_write_time(path, error);
  if (error) return Error{ErrorCode::kIo, fmt::format("{}: {}", path.string(), error.message())};

  auto mapping = std::make_shared<const MappedFile>(std::move(opened));
  const auto bytes = mapping->bytes();
  LAC_TRY(SafetensorsFile file, parse_safetensors(bytes, name));
  for (const TensorView& tensor : file.tensors) {
    if (const TensorView* other = find(tensor.name); other != nullptr)
      return corrupt(fmt::format("{}: {} is in {} too", name, tensor.name, other->file));
  }
  for (const TensorView& tensor : file.tensors) tensors_.emplace(tensor.name, tensor);
  mix(fmt::format("{}\n{}\n{}\n", name, bytes.size(), modified.time_since_epoch().count()));
  mix({reinterpret_cast<const char*>(bytes.data()), file.header_bytes});
  files_.push_back({name, bytes.size(), std::move(file.metadata), is_side});
  mappings_.push_back(std::move(mapping));
  return {};
}

Result<void> Checkpoint::check_index(const std::map<std::string, std::string>& index) const {
  std::set<std::string> listed_files;
  for (const auto& [name, file] : index) {
    listed_files.insert(file);
    const TensorView* tensor = find(name);
    if (tensor == nullptr) {
      return corrupt(fmt::format("{}: {} is listed in {}, which does not have it", kIndex,
                                 printable(name), file));
    }
    if (tensor->file != file) {
      return corrupt(
          fmt::format("{}: {} is listed in {}, but is in {}", kIndex, name, file, tensor->file));
    }
  }
  for (const auto& [name, tensor] : tensors_) {
    if (listed_files.contains(tensor.file) && !index.contains(name)) {
      return corrupt(fmt::format("{}: {} is in {}, but not listed", kIndex, name, tensor.file));
    }
  }
  return {};
}

Result<Checkpoint> Checkpoint::open(const fs::path& folder) {
  LAC_TRY_VOID(check_folder(folder));
  LAC_TRY(const std::vector<std::string> names, list_files(folder));
  if (!is_file(folder / kConfig)) {
    const bool has_gguf = std::any_of(names.begin(), names.end(),
                                      [](const std::string& n) { return n.ends_with(".gguf"); });
    if (has_gguf) return no_weights(folder, names);
    return not_found(fmt::format("{}: no {}", folder.string(), kConfig));
  }

  Checkpoint out;
  out.folder_ = folder;
  out.fingerprint_ = 0xcbf29ce484222325u;
  LAC_TRY(const std::string text, read_text_file(folder / kConfig));
  LAC_TRY(out.config_, parse_json(text, kConfig));
  if (!out.config_.is_object()) return corrupt(fmt::format("{}: wanted an object", kConfig));
  out.mix(text);

  std::optional<std::map<std::string, std::string>> index;
  std::map<std::string, int> files;  // and how many tensors the index lists in each
  if (is_file(folder / kIndex)) {
    LAC_TRY(index, read_index(folder));
    for (const auto& [tensor, file] : *index) ++files[file];
  } else if (is_file(folder / kSingle)) {
    files[kSingle] = 0;
  } else {
    return no_weights(folder, names);
  }
  for (const auto& [file, tensors] : files) {
    if (!is_file(folder / file)) {
      return not_found(
          fmt::format("{}: no {}, in which {} lists {} tensors (an incomplete download?)",
                      folder.string(), file, kIndex, tensors));
    }
    LAC_TRY_VOID(out.add_file(file, false));
  }
  for (const std::string& name : names) {
    if (!is_side_file(name) || files.contains(name)) continue;
    if (const auto added = out.add_file(name, true); !added.ok())
      out.notes_.push_back("left out: " + added.error().what);
  }
  if (index) LAC_TRY_VOID(out.check_index(*index));
  return out;
}

}  // namespace lacuna
