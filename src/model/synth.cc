// SPDX-License-Identifier: Apache-2.0
#include "model/synth.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "base/cpu.h"
#include "base/mmap.h"
#include "base/threads.h"
#include "checkpoint/json.h"
#include "checkpoint/output_folder.h"
#include "checkpoint/safetensors_writer.h"
#include "model/synth_plan.h"

namespace lacuna {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr std::uint64_t kSmallFiles = 64 << 20;  // room for headers, tokenizer and the like
constexpr std::int64_t kBlockBytes = 2 << 20;    // of codes that a thread makes and writes at once
constexpr const char* kMark = "lacuna_synthetic";
constexpr const char* kConfig = "config.json";
constexpr const char* kIndex = "model.safetensors.index.json";
constexpr const char* kHeadFile = "mtp.safetensors";
constexpr std::array kCopied = {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja",
                                "generation_config.json"};

struct Shard {
  std::string name;
  std::vector<SynthPart> parts;
  std::uint64_t bytes = 0;  // of tensors
};

std::uint64_t part_bytes(const SynthPart& part) {
  std::uint64_t bytes = 0;
  for (const OutputTensor& tensor : part.tensors) bytes += tensor.bytes();
  return bytes;
}

std::vector<Shard> split(SynthPlan plan, std::uint64_t shard_bytes) {
  std::vector<Shard> shards(1);
  const auto add = [&](SynthPart part) {
    const std::uint64_t bytes = part_bytes(part);
    Shard& last = shards.back();
    Shard& shard =
        last.bytes > 0 && last.bytes + bytes > shard_bytes ? shards.emplace_back() : last;
    shard.bytes += bytes;
    shard.parts.push_back(std::move(part));
  };
  for (SynthPart& part : plan.model) add(std::move(part));
  for (std::size_t i = 0; i < shards.size(); ++i) shards[i].name = shard_name(i, shards.size());
  if (plan.head.empty()) return shards;
  Shard& head = shards.emplace_back();
  head.name = kHeadFile;
  head.parts = std::move(plan.head);
  for (const SynthPart& part : head.parts) head.bytes += part_bytes(part);
  return shards;
}

std::string shard_header(const Shard& shard, const std::string& description) {
  SafetensorsHeader header(Json{{"format", "mlx"}, {kMark, description}});
  for (const SynthPart& part : shard.parts)
    for (const OutputTensor& tensor : part.tensors) header.add(tensor);
  return header.bytes();
}

std::string index_json(const std::vector<Shard>& shards) {
  std::map<std::string, std::string> files;
  std::uint64_t bytes = 0;
  for (const Shard& shard : shards) {
    if (shard.name == kHeadFile) continue;
    bytes += shard.bytes;
    for (const SynthPart& part : shard.parts)
      for (const OutputTensor& tensor : part.tensors) files[tensor.name] = shard.name;
  }
  return Json{{"metadata", {{"total_size", bytes}}}, {"weight_map", files}}.dump(1) + "\n";
}

// The key of a row's random numbers.
class Keys {
 public:
  Keys(std::uint64_t seed, std::string_view tensor) {
    std::uint64_t hash = 0xCBF29CE484222325u;  // FNV-1a
    for (const char c : tensor) hash = (hash ^ static_cast<std::uint8_t>(c)) * 0x100000001B3u;
    tensor_ = SynthRandom(SynthRandom(seed).next() ^ hash).next();
  }
  std::uint64_t row(std::int64_t row) const {
    return SynthRandom(tensor_ ^ static_cast<std::uint64_t>(row)).next();
  }

 private:
  std::uint64_t tensor_ = 0;
};

// Makes the tensors of shards and writes them, all threads at once.
class ShardWriter {
 public:
  ShardWriter(const SynthOptions& options, std::uint64_t total)
      : options_(options),
        pool_(options.threads > 0 ? options.threads : usable_cores()),
        buffers_(pool_.size()),
        total_(total) {}

  Result<void> write(const Shard& shard, const std::string& description, PartialFile& file) {
    const std::string header = shard_header(shard, description);
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(header.data());
    if (const int failed = file.write(0, {bytes, header.size()})) return file.error(failed);
    std::uint64_t offset = header.size();
    for (const SynthPart& part : shard.parts) {
      LAC_TRY_VOID(part.quantized() ? write_module(part, file, offset)
                                    : write_values(part, file, offset));
      offset += part_bytes(part);
    }
    return {};
  }

 private:
  struct Buffers {
    std::vector<std::uint8_t> codes;
    std::vector<std::uint16_t> scales, biases;
  };

  Result<void> advance(std::uint64_t bytes) {
    done_ += bytes;
    if (options_.on_progress) options_.on_progress(done_, total_);
    if (options_.cancel != nullptr && options_.cancel->load())
      return Error{ErrorCode::kCancelled, "interrupted, nothing was kept"};
    return {};
  }

  Result<void> write_module(const SynthPart& part, const PartialFile& file, std::uint64_t offset) {
    const CodeRows rows(part.law);
    const Keys keys(options_.seed, part.tensors[0].name);
    const std::int64_t code_bytes = part.in / 2, pair_bytes = part.in / CodeRows::kGroup * 2;
    const std::uint64_t scales_at = offset + part.tensors[0].bytes();
    const std::uint64_t biases_at = scales_at + part.tensors[1].bytes();
    const std::int64_t block = std::max<std::int64_t>(1, kBlockBytes / code_bytes);
    const std::int64_t wave = block * pool_.size() * 2;  // between two looks at `cancel`
    for (std::int64_t begin = 0; begin < part.rows; begin += wave) {
      const std::int64_t end = std::min(begin + wave, part.rows);
      std::atomic<int> failed{0};
      pool_.run(static_cast<int>((end - begin + block - 1) / block), [&](int task, int thread) {
        const std::int64_t first = begin + task * block, last = std::min(first + block, end);
        Buffers& b = buffers_[thread];
        make_rows(rows, keys, part.in, first, last, b);
        const auto put = [&](std::uint64_t at, std::int64_t row_bytes, const void* data) {
          const auto size = static_cast<std::size_t>((last - first) * row_bytes);
          const int problem = file.write(at + static_cast<std::uint64_t>(first * row_bytes),
                                         {static_cast<const std::uint8_t*>(data), size});
          if (problem != 0) failed.store(problem);
        };
        put(offset, code_bytes, b.codes.data());
        put(scales_at, pair_bytes, b.scales.data());
        put(biases_at, pair_bytes, b.biases.data());
      });
      if (failed.load() != 0) return file.error(failed.load());
      LAC_TRY_VOID(
          advance(static_cast<std::uint64_t>((end - begin) * (code_bytes + 2 * pair_bytes))));
    }
    return {};
  }

  static void make_rows(const CodeRows& rows, const Keys& keys, int in, std::int64_t first,
                        std::int64_t last, Buffers& b) {
    const auto count = static_cast<std::size_t>(last - first);
    const std::size_t groups = static_cast<std::size_t>(in) / CodeRows::kGroup;
    b.codes.resize(count * static_cast<std::size_t>(in) / 2);
    b.scales.resize(count * groups);
    b.biases.resize(count * groups);
    for (std::size_t i = 0; i < count; ++i) {
      rows.write(keys.row(first + static_cast<std::int64_t>(i)), in,
                 &b.codes[i * static_cast<std::size_t>(in) / 2], &b.scales[i * groups],
                 &b.biases[i * groups]);
    }
  }

  Result<void> write_values(const SynthPart& part, const PartialFile& file, std::uint64_t offset) {
    const OutputTensor& tensor = part.tensors[0];
    SynthRandom random(Keys(options_.seed, tensor.name).row(0));
    const std::vector<float> values = part.values(random);
    std::vector<std::uint8_t> bytes(tensor.bytes());
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (tensor.dtype == Dtype::kF32) {
        std::memcpy(&bytes[i * sizeof(float)], &values[i], sizeof(float));
      } else {
        const std::uint16_t half = f32_to_bf16(values[i]);
        std::memcpy(&bytes[i * sizeof half], &half, sizeof half);
      }
    }
    if (const int failed = file.write(offset, bytes)) return file.error(failed);
    return advance(bytes.size());
  }

  const SynthOptions& options_;
  ThreadPool pool_;
  std::vector<Buffers> buffers_;
  std::uint64_t done_ = 0, total_ = 0;
};

Error wrong(const fs::path& path, const std::string& what) {
  return {ErrorCode::kInvalidArgument, fmt::format("{}: {}", path.string(), what)};
}

bool is_synthetic(const fs::path& folder) {
  const auto text = read_text_file(folder / kConfig);
  if (!text) return false;
  const auto config = parse_json(*text, kConfig);
  return config && config->is_object() && config->contains(kMark);
}

// The files of a synthetic checkpoint that is there, config.json first.
Result<std::vector<fs::path>> old_files(const fs::path& folder, bool force) {
  std::error_code problem;
  const fs::file_status status = fs::status(folder, problem);
  if (!fs::exists(status)) return std::vector<fs::path>();
  if (!fs::is_directory(status)) return wrong(folder, "is no folder, wanted a new or empty one");
  std::vector<fs::path> files = {folder / kConfig, folder / kIndex};
  bool empty = true;
  for (auto it = fs::directory_iterator(folder, problem); !problem && it != fs::end(it);
       it.increment(problem)) {
    empty = false;
    if (it->path().extension() == ".safetensors") files.push_back(it->path());
  }
  if (problem)
    return Error{ErrorCode::kIo, fmt::format("{}: {}", folder.string(), problem.message())};
  if (empty) return std::vector<fs::path>();
  if (!is_synthetic(folder)) {
    return wrong(folder, force ? "holds something else than a synthetic checkpoint: wanted one, or "
                                 "a new or empty folder"
                               : "is not empty, wanted a new or empty folder");
  }
  if (!force) return wrong(folder, "holds a synthetic checkpoint, wanted --force to replace it");
  return files;
}

std::string describe(const SynthOptions& options, const NemotronHConfig& config) {
  std::string out =
      fmt::format("synthetic weights, for measuring speed and memory only: shape {}, {} layers {}",
                  printable(fs::path(options.shape.shape).filename().string()),
                  config.layers.size(), pattern_text(config.layers));
  if (config.experts > 0) out += fmt::format(", {} routed experts", config.experts);
  return out + fmt::format(", live {}, seed {}", options.live, options.seed);
}

// What is written beside the weights.
struct SmallFiles {
  Json tokens;  // config.json of the tokenizer's checkpoint
  std::map<std::string, std::string> copied;
};

Result<SmallFiles> read_small_files(const fs::path& from, int vocabulary) {
  SmallFiles out;
  LAC_TRY(const std::string text, read_text_file(from / kConfig));
  LAC_TRY(out.tokens, parse_json(text, (from / kConfig).string()));
  const auto size = out.tokens.is_object() ? out.tokens.find("vocab_size") : out.tokens.end();
  if (size == out.tokens.end() || !size->is_number_integer())
    return Error{ErrorCode::kCorrupt, fmt::format("{}: no vocab_size", (from / kConfig).string())};
  if (*size > vocabulary) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("--shape: vocab_size: {}, wanted at least the tokenizer's {}",
                             vocabulary, printable_json(*size))};
  }
  for (const char* name : kCopied) {
    auto content = read_text_file(from / name);
    if (content) {
      out.copied[name] = *std::move(content);
    } else if (content.error().code != ErrorCode::kNotFound) {
      return std::move(content).error();
    }
  }
  return out;
}

}  // namespace

Result<SynthReport> write_synthetic(const fs::path& folder, const SynthOptions& options) {
  LAC_TRY(const NemotronHConfig config, choose_shape(options.shape));
  LAC_TRY(const LiveProfile live, parse_live_profile(options.live));
  LAC_TRY(const SmallFiles small, read_small_files(options.tokenizer_from, config.vocabulary));
  LAC_TRY(SynthPlan plan, plan_synthetic(config, live));
  const std::vector<Shard> shards = split(std::move(plan), options.shard_bytes);

  SynthReport report{describe(options, config), 0, 0, shards.size()};
  for (const Shard& shard : shards) {
    report.bytes += shard.bytes;
    for (const SynthPart& part : shard.parts) report.tensors += part.tensors.size();
  }
  LAC_TRY(const std::vector<fs::path> replaced, old_files(folder, options.force));
  LAC_TRY_VOID(check_room(folder, report.bytes + kSmallFiles, replaced));
  for (const fs::path& file : replaced) {
    std::error_code problem;
    fs::remove(file, problem);
    if (problem)
      return Error{ErrorCode::kIo, fmt::format("{}: {}", file.string(), problem.message())};
  }

  LAC_TRY(OutputFolder out, OutputFolder::open(folder));
  ShardWriter writer(options, report.bytes);
  for (const Shard& shard : shards) {
    LAC_TRY(PartialFile file, out.create(shard.name));
    LAC_TRY_VOID(writer.write(shard, report.description, file));
    LAC_TRY_VOID(file.finish());
  }
  for (const auto& [name, content] : small.copied) LAC_TRY_VOID(out.write(name, content));
  LAC_TRY_VOID(out.write(kIndex, index_json(shards)));
  Json json = shape_json(config, small.tokens);
  json[kMark] = report.description;
  LAC_TRY_VOID(out.write(kConfig, json.dump(2) + "\n"));
  out.keep();
  return report;
}

}  // namespace lacuna
