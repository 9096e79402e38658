// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "checkpoint/json.h"

namespace lacuna {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kLengthBytes = 8;
constexpr std::size_t kMaxRank = 8;
constexpr std::size_t kMaxName = 512;

Error corrupt(std::string what) { return {ErrorCode::kCorrupt, std::move(what)}; }

// A tensor of the header with its offsets still unchecked against the file and the other tensors.
struct Entry {
  TensorView view;
  std::uint64_t begin = 0, end = 0;
};

Result<std::string_view> header_text(std::span<const std::uint8_t> file) {
  const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
  if (text.starts_with("version https://git-lfs")) {
    return corrupt("a Git LFS pointer instead of the weights (fetch them with `git lfs pull`)");
  }
  if (file.size() < kLengthBytes) {
    return corrupt(fmt::format("{} bytes, wanted at least the {} of the header length (truncated?)",
                               file.size(), kLengthBytes));
  }
  std::uint64_t length = 0;
  for (std::size_t i = 0; i < kLengthBytes; ++i) length |= std::uint64_t{file[i]} << (8 * i);
  if (length > kMaxSafetensorsHeader) {
    return corrupt(fmt::format("a header of {} bytes, more than the {} one may have", length,
                               kMaxSafetensorsHeader));
  }
  if (length > file.size() - kLengthBytes) {
    return corrupt(fmt::format("the header ends at byte {}, the file has {} (truncated?)",
                               kLengthBytes + length, file.size()));
  }
  return text.substr(kLengthBytes, length);
}

Result<Dtype> parse_dtype(const Json& value) {
  if (!value.is_string())
    return corrupt(fmt::format("dtype is {}, wanted a name", printable_json(value)));
  for (int i = 0; i <= static_cast<int>(Dtype::kF64); ++i) {
    const auto dtype = static_cast<Dtype>(i);
    if (value.get_ref<const std::string&>() == dtype_name(dtype)) return dtype;
  }
  return Error{ErrorCode::kUnsupported,
               fmt::format("dtype {} is not supported", printable_json(value))};
}

Result<std::uint64_t> parse_size(const Json& value, const char* field) {
  if (!value.is_number_integer() ||
      (!value.is_number_unsigned() && value.get<std::int64_t>() < 0)) {
    return corrupt(fmt::format("{} holds {}, wanted a whole number", field, printable_json(value)));
  }
  return value.get<std::uint64_t>();
}

Result<void> parse_shape(const Json& value, TensorView& view) {
  if (!value.is_array() || value.size() > kMaxRank) {
    return corrupt(fmt::format("shape is {}, wanted a list of at most {} numbers",
                               printable_json(value), kMaxRank));
  }
  // The dimensions without the zeros must fit too: reshaping code multiplies parts of a shape.
  std::uint64_t product = dtype_bytes(view.dtype);
  bool empty = false;
  for (const Json& item : value) {
    LAC_TRY(const std::uint64_t size, parse_size(item, "shape"));
    empty = empty || size == 0;
    constexpr std::uint64_t kMost = INT64_MAX;
    if (size > kMost ||
        __builtin_mul_overflow(product, std::max<std::uint64_t>(size, 1), &product) ||
        product > kMost) {
      return corrupt(fmt::format("shape {} overflows", printable_json(value)));
    }
    view.shape.push_back(static_cast<std::int64_t>(size));
  }
  view.bytes = empty ? 0 : product;
  return {};
}

Result<Entry> parse_entry(const Json& value) {
  const bool complete = value.is_object() && value.size() == 3 && value.contains("dtype") &&
                        value.contains("shape") && value.contains("data_offsets");
  if (!complete) {
    return corrupt(fmt::format("{}, wanted dtype, shape and data_offsets", printable_json(value)));
  }
  Entry entry;
  LAC_TRY(entry.view.dtype, parse_dtype(value["dtype"]));
  LAC_TRY_VOID(parse_shape(value["shape"], entry.view));
  const Json& offsets = value["data_offsets"];
  if (!offsets.is_array() || offsets.size() != 2) {
    return corrupt(fmt::format("data_offsets is {}, wanted [begin, end]", printable_json(offsets)));
  }
  LAC_TRY(entry.begin, parse_size(offsets[0], "data_offsets"));
  LAC_TRY(entry.end, parse_size(offsets[1], "data_offsets"));
  if (entry.end < entry.begin || entry.end - entry.begin != entry.view.bytes) {
    return corrupt(fmt::format("{} {} has {} bytes, its data_offsets are {}",
                               dtype_name(entry.view.dtype), shape_text(entry.view.shape),
                               entry.view.bytes, printable_json(offsets)));
  }
  return entry;
}

Result<void> parse_metadata(const Json& value, std::map<std::string, std::string>& out) {
  if (!value.is_object()) return corrupt("wanted an object of strings");
  for (const auto& [key, text] : value.items()) {
    if (!text.is_string()) {
      return corrupt(
          fmt::format("{} is {}, wanted a string", printable(key), printable_json(text)));
    }
    out.emplace(key, text.get<std::string>());
  }
  return {};
}

bool is_plain_name(std::string_view name) {
  return !name.empty() && name.size() <= kMaxName &&
         std::none_of(name.begin(), name.end(),
                      [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; });
}

// Sorts by offset and checks that the tensors tile the data exactly.
Result<void> check_tiling(std::vector<Entry>& entries, std::size_t data_at,
                          std::size_t file_bytes) {
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  const std::size_t data_bytes = file_bytes - data_at;
  const auto last = std::max_element(entries.begin(), entries.end(),
                                     [](const Entry& a, const Entry& b) { return a.end < b.end; });
  if (last != entries.end() && last->end > data_bytes) {
    return corrupt(
        fmt::format("{}: ends at byte {}, the file has {} (truncated? {} bytes are missing)",
                    last->view.name, data_at + last->end, file_bytes, last->end - data_bytes));
  }
  std::uint64_t at = 0;
  const Entry* before = nullptr;
  for (const Entry& entry : entries) {
    if (entry.begin < at) {
      return corrupt(fmt::format("{}: begins at data byte {}, inside {}, which ends at {}",
                                 entry.view.name, entry.begin, before->view.name, at));
    }
    if (entry.begin > at) {
      return corrupt(
          fmt::format("{}: begins at data byte {}, a hole after the one before ends at {}",
                      entry.view.name, entry.begin, at));
    }
    at = entry.end;
    before = &entry;
  }
  if (at != data_bytes) {
    return corrupt(
        fmt::format("the tensors end at byte {}, the file has {}", data_at + at, file_bytes));
  }
  return {};
}

Result<SafetensorsFile> parse(std::span<const std::uint8_t> file, const std::string& name) {
  LAC_TRY(const std::string_view text, header_text(file));
  if (!text.starts_with('{')) {
    return corrupt(
        fmt::format("the header begins with '{}', wanted '{{'", printable(text.substr(0, 1))));
  }
  const JsonOptions strict{.bare_numbers = false, .refuse_duplicates = true, .max_depth = 8};
  LAC_TRY(const Json header, parse_json(text, "header", strict));

  SafetensorsFile out;
  out.header_bytes = kLengthBytes + text.size();
  std::vector<Entry> entries;
  for (const auto& [key, value] : header.items()) {
    if (key == "__metadata__") {
      if (auto r = parse_metadata(value, out.metadata); !r) return std::move(r).error().in(key);
      continue;
    }
    if (!is_plain_name(key)) {
      return corrupt(fmt::format(
          "the tensor name \"{}\" is empty, too long or has control characters", printable(key)));
    }
    auto entry = parse_entry(value);
    if (!entry) return std::move(entry).error().in(key);
    entry->view.name = key;
    entry->view.file = name;
    entries.push_back(*std::move(entry));
  }
  LAC_TRY_VOID(check_tiling(entries, out.header_bytes, file.size()));
  for (Entry& entry : entries) {
    entry.view.data = file.data() + out.header_bytes + entry.begin;
    out.tensors.push_back(std::move(entry.view));
  }
  return out;
}

}  // namespace

std::int64_t TensorView::elements() const {
  std::int64_t product = 1;
  for (const std::int64_t size : shape) product *= size;
  return product;
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

Result<SafetensorsFile> parse_safetensors(std::span<const std::uint8_t> file,
                                          const std::string& name) {
  auto out = parse(file, name);
  if (!out) return std::move(out).error().in(name);
  return out;
}

}  // namespace lacuna
