// SPDX-License-Identifier: Apache-2.0
#include "model/convert.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "base/mmap.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/json.h"
#include "checkpoint/linear_source.h"
#include "checkpoint/output_folder.h"
#include "checkpoint/safetensors_writer.h"
#include "lacuna/version.h"
#include "model/convert_files.h"
#include "model/convert_folder.h"
#include "model/convert_write.h"
#include "model/nemotron_h_config.h"

namespace lacuna {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* kHeadFile = "mtp.safetensors";
constexpr std::uint64_t kSmallFiles = 64 << 20;  // room for tokenizer, config and the like

struct Shard {
  std::string name;
  std::vector<ConvertPart> parts;
  std::uint64_t bytes = 0;  // of tensors
  std::string header;
};

std::vector<Shard> split(ConvertPlan& plan, std::uint64_t shard_bytes) {
  std::vector<Shard> shards;
  for (ConvertPart& part : plan.model) {
    const std::uint64_t bytes = part.bytes();
    if (shards.empty() || shards.back().bytes + bytes > shard_bytes) shards.emplace_back();
    shards.back().bytes += bytes;
    shards.back().parts.push_back(std::move(part));
  }
  for (std::size_t i = 0; i < shards.size(); ++i) shards[i].name = shard_name(i, shards.size());
  if (!plan.head.empty()) {
    Shard& head = shards.emplace_back();
    head.name = kHeadFile;
    head.parts = std::move(plan.head);
    for (const ConvertPart& part : head.parts) head.bytes += part.bytes();
  }
  for (Shard& shard : shards) {
    SafetensorsHeader header(Json{{"format", "mlx"}});
    for (const ConvertPart& part : shard.parts)
      for (const OutputTensor& tensor : part.tensors) header.add(tensor);
    shard.header = header.bytes();
  }
  return shards;
}

std::string index_of(const std::vector<Shard>& shards, std::uint64_t parameters) {
  std::map<std::string, std::string> files;
  std::uint64_t bytes = 0;
  for (const Shard& shard : shards) {
    if (shard.name == kHeadFile) continue;
    bytes += shard.bytes;
    for (const ConvertPart& part : shard.parts)
      for (const OutputTensor& tensor : part.tensors) files[tensor.name] = shard.name;
  }
  return converted_index(bytes, parameters, files);
}

ConvertReport report_of(const std::vector<Shard>& shards) {
  ConvertReport report;
  report.files = shards.size();
  for (const Shard& shard : shards) {
    report.bytes += shard.bytes;
    report.has_head = report.has_head || shard.name == kHeadFile;
    for (const ConvertPart& part : shard.parts) {
      report.tensors += part.tensors.size();
      report.modules += part.format ? 1 : 0;
    }
  }
  return report;
}

// Equal only when every byte of every shard will be.
std::string identity_of(const Checkpoint& source, const std::vector<Shard>& shards,
                        const AffineFormat& format) {
  std::uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a of the headers: names, formats, offsets
  for (const Shard& shard : shards)
    for (const char c : shard.header)
      hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return fmt::format("lacuna {} source {:016x} layout {:016x} quantizer {}", kVersion,
                     source.fingerprint(), hash,
                     format.quantizer == MlxQuantizer::kGpu ? "gpu" : "cpu");
}

class Conversion {
 public:
  Conversion(const ConvertOptions& options, std::vector<Shard> shards)
      : options_(options),
        shards_(std::move(shards)),
        report_(report_of(shards_)),
        writer_(options.threads, [this](std::uint64_t bytes) { return advance(bytes); }) {}

  // Everything, or what an earlier call has left.
  Result<ConvertReport> write_all(const fs::path& folder, const Checkpoint& source,
                                  const Json& quantization, std::uint64_t parameters) {
    identity_ = identity_of(source, shards_, options_.format);
    LAC_TRY(const auto companions, read_companions(source.folder()));
    LAC_TRY(const ConvertDestination there, look_at_destination(folder, identity_, options_.force));
    LAC_TRY_VOID(check_room(folder, report_.bytes + kSmallFiles, files_there(folder, there)));
    for (const fs::path& file : there.old_files) {
      std::error_code problem;
      fs::remove(file, problem);
      if (problem) return path_error(file, problem);
    }
    LAC_TRY(OutputFolder out, OutputFolder::open(folder));
    out.keep();
    if (!there.progress) LAC_TRY_VOID(note_convert_progress(out, identity_, 0));
    for (const Shard& shard : shards_)
      LAC_TRY_VOID(write_shard(folder, shard, there.progress.value_or(ConvertProgress()), out));
    for (const auto& [name, content] : companions) LAC_TRY_VOID(out.write(name, content));
    LAC_TRY_VOID(out.write(kConvertedIndex, index_of(shards_, parameters)));
    LAC_TRY_VOID(out.write(kConvertedConfig, converted_config(source.config(), quantization)));
    std::error_code problem;
    fs::remove(folder / kConvertProgress, problem);
    if (problem) return path_error(folder / kConvertProgress, problem);
    return report_;
  }

  // The one shard there is, from the start.
  Result<ConvertReport> write_head(const fs::path& folder) {
    const Shard& shard = shards_.front();
    keeps_ = false;
    LAC_TRY_VOID(check_room(folder, shard.bytes + kSmallFiles, {folder / kHeadFile}));
    std::error_code problem;
    const bool made = fs::create_directories(folder, problem);
    if (problem) return path_error(folder, problem);
    Result<void> written = [&]() -> Result<void> {
      LAC_TRY(PartialFile file, PartialFile::create(folder / shard.name));
      LAC_TRY_VOID(write_parts(shard, 0, file, nullptr));
      return file.finish();
    }();
    if (written) return report_;
    if (made) fs::remove(folder, problem);
    return std::move(written).error();
  }

 private:
  std::vector<fs::path> files_there(const fs::path& folder, const ConvertDestination& there) const {
    std::vector<fs::path> files = there.old_files;
    for (const Shard& shard : shards_) {
      if (!there.progress) break;
      files.push_back(folder / shard.name);
      files.push_back(PartialFile::partial_path(folder / shard.name));
    }
    return files;
  }

  Result<void> advance(std::uint64_t bytes) {
    done_ += bytes;
    if (options_.on_progress) options_.on_progress(done_, report_.bytes);
    if (options_.cancel == nullptr || !options_.cancel->load()) return {};
    return Error{ErrorCode::kCancelled, keeps_ ? "interrupted; the same command goes on from here"
                                               : "interrupted, nothing was kept"};
  }

  Result<void> write_shard(const fs::path& folder, const Shard& shard,
                           const ConvertProgress& before, OutputFolder& out) {
    const std::uint64_t first = first_part_;
    first_part_ += shard.parts.size();
    const fs::path path = folder / shard.name, partial = PartialFile::partial_path(path);
    std::error_code none;
    if (before.parts >= first_part_ && fs::exists(path, none)) {
      done_ += shard.bytes;
      report_.bytes_before += shard.bytes;
      return {};
    }
    std::size_t done = 0;
    if (before.same_boot && before.parts > first)
      done = static_cast<std::size_t>(
          std::min<std::uint64_t>(before.parts - first, shard.parts.size()));
    std::uint64_t bytes = 0;
    for (std::size_t i = 0; i < done; ++i) bytes += shard.parts[i].bytes();
    const std::uintmax_t size = fs::file_size(partial, none);
    if (done > 0 && (none || size < shard.header.size() + bytes)) done = 0;
    if (done == 0) {
      fs::remove(partial, none);
    } else {
      done_ += bytes;
      report_.bytes_before += bytes;
    }
    LAC_TRY(PartialFile file, PartialFile::resume(path));
    noted_parts_ = first;
    LAC_TRY_VOID(write_parts(shard, done, file, &out));
    LAC_TRY_VOID(file.finish());
    return note_convert_progress(out, identity_, first_part_);
  }

  // From part `done` on; a note of progress goes to `notes` now and then.
  Result<void> write_parts(const Shard& shard, std::size_t done, const PartialFile& file,
                           OutputFolder* notes) {
    const auto* header = reinterpret_cast<const std::uint8_t*>(shard.header.data());
    if (const int failed = file.write(0, {header, shard.header.size()})) return file.error(failed);
    std::uint64_t offset = shard.header.size(), since_note = 0;
    for (std::size_t i = 0; i < shard.parts.size(); ++i) {
      const std::uint64_t bytes = shard.parts[i].bytes();
      if (i >= done) {
        LAC_TRY_VOID(writer_.write(shard.parts[i], file, offset));
        since_note += bytes;
      }
      offset += bytes;
      if (notes == nullptr || since_note < options_.note_bytes) continue;
      LAC_TRY_VOID(note_convert_progress(*notes, identity_, noted_parts_ + i + 1));
      since_note = 0;
    }
    return {};
  }

  const ConvertOptions& options_;
  std::vector<Shard> shards_;
  ConvertReport report_;
  PartWriter writer_;
  std::string identity_;
  std::uint64_t first_part_ = 0;   // of the next shard
  std::uint64_t noted_parts_ = 0;  // before the shard that is written
  std::uint64_t done_ = 0;         // bytes
  bool keeps_ = true;              // what was done when it is cancelled
};

// A head that goes beside a checkpoint must be that model's, in the format its config says.
Result<void> check_head_fits(const fs::path& folder, const Checkpoint& source,
                             const ConvertPlan& plan, bool force) {
  LAC_TRY(const std::vector<fs::path> files, list_destination(folder));
  std::error_code none;
  if (files.empty()) return {};
  if (!fs::exists(folder / kConvertedConfig, none))
    return wrong_path(folder,
                      "is not empty and no checkpoint, wanted a converted one or a new folder");
  if (fs::exists(folder / kHeadFile, none) && !force)
    return wrong_path(folder / kHeadFile, "is there, wanted --force to replace it");
  LAC_TRY(const std::string text, read_text_file(folder / kConvertedConfig));
  LAC_TRY(const Json json, parse_json(text, (folder / kConvertedConfig).string()));
  if (!json.is_object()) return wrong_path(folder / kConvertedConfig, "wanted an object");
  LAC_TRY(const NemotronHConfig config, parse_nemotron_h_config(json));
  LAC_TRY(const NemotronHConfig head, parse_nemotron_h_config(source.config()));
  if (config.width != head.width || mtp_parameters(config) != mtp_parameters(head)) {
    return wrong_path(folder, fmt::format("is of another model: width {} and a head of {} weights, "
                                          "wanted the source's {} and {}",
                                          config.width, mtp_parameters(config), head.width,
                                          mtp_parameters(head)));
  }
  LAC_TRY(const QuantizationRules rules, QuantizationRules::parse(json));
  for (const ConvertPart& part : plan.head) {
    const QuantizationRules::Rule rule = rules.rule(part.name);
    if (!part.format || (part.format->bits == rule.bits && part.format->group == rule.group))
      continue;
    return wrong_path(
        folder / kConvertedConfig,
        fmt::format("{} has {} bits in groups of {}, wanted the {} in groups of {} that "
                    "the head would get",
                    part.name, rule.bits, rule.group, part.format->bits, part.format->group));
  }
  return {};
}

}  // namespace

Result<ConvertReport> convert_checkpoint(const fs::path& source_folder, const fs::path& destination,
                                         const ConvertOptions& options) {
  LAC_TRY(const Checkpoint source, Checkpoint::open(source_folder));
  std::error_code none;
  if (fs::equivalent(source_folder, destination, none))
    return wrong_path(destination, "is the source itself, wanted another folder");
  std::vector<ConvertRule> rules;
  if (!options.rules.empty()) {
    LAC_TRY(rules, read_convert_rules(options.rules, options.format));
  }
  LAC_TRY(ConvertPlan plan, plan_conversion(source, options.format, rules, options.head));
  const bool head_only = options.head == HeadMode::kOnly;
  if (head_only) LAC_TRY_VOID(check_head_fits(destination, source, plan, options.force));
  const Json quantization = plan.quantization;
  const std::uint64_t parameters = plan.parameters;
  Conversion conversion(options, split(plan, options.shard_bytes));
  return head_only ? conversion.write_head(destination)
                   : conversion.write_all(destination, source, quantization, parameters);
}

}  // namespace lacuna
