// SPDX-License-Identifier: Apache-2.0
#include "decode/logits_file.h"

#include <fmt/core.h>

#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>
#include <utility>

namespace lacuna {
namespace {

using Json = nlohmann::ordered_json;

static_assert(std::endian::native == std::endian::little, "safetensors is little-endian");

constexpr std::uint64_t kMaxHeader = 1 << 20;
constexpr std::uint64_t kMaxVocabulary = 1 << 24;

std::uint64_t row_count(std::span<const EvalWindow> windows) {
  std::uint64_t rows = 0;
  for (const EvalWindow& w : windows) rows += w.inputs.size();
  return rows;
}

std::string make_header(std::uint64_t rows, int vocabulary, int window_length) {
  const std::uint64_t ids = rows * 4;
  const std::uint64_t logits = rows * vocabulary * 4;
  Json header;
  header["__metadata__"] = {{"format", "lacuna logits"}, {"window", std::to_string(window_length)}};
  header["inputs"] = {{"dtype", "I32"}, {"shape", {rows}}, {"data_offsets", {0, ids}}};
  header["targets"] = {{"dtype", "I32"}, {"shape", {rows}}, {"data_offsets", {ids, 2 * ids}}};
  header["logits"] = {{"dtype", "F32"},
                      {"shape", {rows, vocabulary}},
                      {"data_offsets", {2 * ids, 2 * ids + logits}}};
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');  // the data begin aligned
  return text;
}

// One tensor of the header, its bytes checked against the file.
struct Entry {
  std::vector<std::uint64_t> shape;
  const std::uint8_t* data = nullptr;
};

Result<Entry> find_entry(const Json& header, const char* name, const char* dtype, std::size_t rank,
                         std::span<const std::uint8_t> data) {
  const auto corrupt = [&](const std::string& what) {
    return Error{ErrorCode::kCorrupt, fmt::format("{}: {}", name, what)};
  };
  try {
    if (!header.contains(name)) return corrupt("missing");
    const Json& entry = header.at(name);
    if (entry.at("dtype") != dtype) {
      return corrupt(fmt::format("dtype {}, want {}", entry.at("dtype").dump(), dtype));
    }
    Entry found;
    found.shape = entry.at("shape").get<std::vector<std::uint64_t>>();
    const auto offsets = entry.at("data_offsets").get<std::vector<std::uint64_t>>();
    if (found.shape.size() != rank || offsets.size() != 2)
      return corrupt(fmt::format("rank {}, want {}", found.shape.size(), rank));
    std::uint64_t bytes = 4;
    for (const std::uint64_t n : found.shape) {
      if (n > data.size()) return corrupt(fmt::format("shape {}", entry.at("shape").dump()));
      if (__builtin_mul_overflow(bytes, n, &bytes)) return corrupt("the shape overflows");
    }
    if (offsets[0] > offsets[1] || offsets[1] > data.size() || offsets[1] - offsets[0] != bytes) {
      return corrupt(fmt::format("data_offsets {}, want {} bytes within {}",
                                 entry.at("data_offsets").dump(), bytes, data.size()));
    }
    found.data = data.data() + offsets[0];
    return found;
  } catch (const Json::exception&) {
    return corrupt("want dtype, shape and data_offsets");
  }
}

Result<int> find_window(const Json& header) {
  const Error error{ErrorCode::kCorrupt, "__metadata__: want \"window\", a number above 0"};
  try {
    const std::string text = header.at("__metadata__").at("window").get<std::string>();
    if (text.empty() || text.size() > 9) return error;
    int length = 0;
    for (const char c : text) {
      if (c < '0' || c > '9') return error;
      length = length * 10 + (c - '0');
    }
    if (length == 0) return error;
    return length;
  } catch (const Json::exception&) {
    return error;
  }
}

std::vector<int> read_ids(const Entry& entry) {
  std::vector<int> ids(entry.shape[0]);
  if (!ids.empty()) std::memcpy(ids.data(), entry.data, ids.size() * sizeof(int));
  return ids;
}

}  // namespace

Result<LogitsWriter> LogitsWriter::create(const std::filesystem::path& path,
                                          std::span<const EvalWindow> windows, int window_length,
                                          int vocabulary) {
  LAC_TRY(OutputFile file, OutputFile::create(path));
  LogitsWriter writer(std::move(file));
  writer.path_ = path;
  const std::uint64_t rows = row_count(windows);
  writer.missing_ = rows * vocabulary;
  const std::string header = make_header(rows, vocabulary, window_length);
  const std::uint64_t header_bytes = header.size();
  LAC_TRY_VOID(writer.file_.write(&header_bytes, sizeof header_bytes));
  LAC_TRY_VOID(writer.file_.write(header.data(), header.size()));
  for (const EvalWindow& w : windows)
    LAC_TRY_VOID(writer.file_.write(w.inputs.data(), w.inputs.size_bytes()));
  for (const EvalWindow& w : windows)
    LAC_TRY_VOID(writer.file_.write(w.targets.data(), w.targets.size_bytes()));
  return writer;
}

Result<void> LogitsWriter::add(std::span<const float> logits) {
  if (logits.size() > missing_) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{}: more rows than the windows have", path_.string())};
  }
  missing_ -= logits.size();
  return file_.write(logits.data(), logits.size_bytes());
}

Result<void> LogitsWriter::commit() {
  if (missing_ != 0) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{}: {} logits are missing", path_.string(), missing_)};
  }
  return file_.commit();
}

Result<LogitsFile> LogitsFile::open(const std::filesystem::path& path) {
  LogitsFile result;
  result.path_ = path;
  const std::string name = path.string();
  LAC_TRY(result.file_, MappedFile::open(path));
  const std::span<const std::uint8_t> bytes = result.file_.bytes();
  std::uint64_t header_bytes = 0;
  if (bytes.size() >= 8) std::memcpy(&header_bytes, bytes.data(), 8);
  if (header_bytes < 2 || header_bytes > kMaxHeader || header_bytes > bytes.size() - 8) {
    return Error{ErrorCode::kCorrupt,
                 fmt::format("{}: not a safetensors file of logits: header of {} bytes in a file "
                             "of {}",
                             name, header_bytes, bytes.size())};
  }
  const auto data = bytes.subspan(8 + header_bytes);
  const Json header = Json::parse(bytes.data() + 8, bytes.data() + 8 + header_bytes, nullptr,
                                  /*allow_exceptions=*/false);
  if (!header.is_object())
    return Error{ErrorCode::kCorrupt, name + ": the header is not a JSON object"};

  auto window = find_window(header);
  if (!window) return std::move(window).error().in(name);
  auto inputs = find_entry(header, "inputs", "I32", 1, data);
  if (!inputs) return std::move(inputs).error().in(name);
  auto targets = find_entry(header, "targets", "I32", 1, data);
  if (!targets) return std::move(targets).error().in(name);
  auto logits = find_entry(header, "logits", "F32", 2, data);
  if (!logits) return std::move(logits).error().in(name);

  result.rows_ = logits->shape[0];
  if (inputs->shape[0] != result.rows_ || targets->shape[0] != result.rows_) {
    return Error{ErrorCode::kCorrupt,
                 fmt::format("{}: {} inputs and {} targets for {} rows of logits", name,
                             inputs->shape[0], targets->shape[0], result.rows_)};
  }
  if (logits->shape[1] == 0 || logits->shape[1] > kMaxVocabulary) {
    return Error{ErrorCode::kCorrupt,
                 fmt::format("{}: logits: vocabulary of {}", name, logits->shape[1])};
  }
  result.window_length_ = *window;
  result.vocabulary_ = static_cast<int>(logits->shape[1]);
  result.inputs_ = read_ids(*inputs);
  result.targets_ = read_ids(*targets);
  result.logits_ = logits->data;
  return result;
}

Result<void> LogitsFile::check_same(std::span<const EvalWindow> windows, int window_length,
                                    int vocabulary) const {
  const auto different = [&](const std::string& what) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("{}: {}", path_.string(), what)};
  };
  if (vocabulary != vocabulary_)
    return different(fmt::format("vocabulary of {}, the model has {}", vocabulary_, vocabulary));
  if (window_length != window_length_)
    return different(fmt::format("windows of {}, want {}", window_length_, window_length));
  if (row_count(windows) != rows_)
    return different(fmt::format("{} rows, the text has {}", rows_, row_count(windows)));
  std::size_t row = 0;
  for (const EvalWindow& w : windows) {
    for (std::size_t i = 0; i < w.inputs.size(); ++i, ++row) {
      if (w.inputs[i] != inputs_[row] || w.targets[i] != targets_[row]) {
        return different(fmt::format("token {} predicts {} at row {}, the text has {} and {}",
                                     inputs_[row], targets_[row], row, w.inputs[i], w.targets[i]));
      }
    }
  }
  return {};
}

std::vector<float> LogitsFile::row(std::uint64_t index) const {
  std::vector<float> logits(vocabulary_);
  const std::size_t bytes = logits.size() * sizeof(float);
  std::memcpy(logits.data(), logits_ + index * bytes, bytes);
  return logits;
}

}  // namespace lacuna
