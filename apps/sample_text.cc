// SPDX-License-Identifier: Apache-2.0
#include "sample_text.h"

#include <fmt/core.h>

#include <filesystem>
#include <utility>

#include "base/mmap.h"
#include "open_model.h"

namespace lacuna {
namespace {

constexpr const char* kBundledText = "val_prose.txt";

}  // namespace

Result<SampleText> read_sample_text(const std::string& named) {
  std::filesystem::path path = named;
  if (named.empty()) {
    LAC_TRY(const std::filesystem::path model, find_model(""));
    path = model.parent_path().parent_path() / kBundledText;
  }
  auto text = read_text_file(path);
  if (!text.ok()) return Error{ErrorCode::kInvalidArgument, text.error().what};
  if (text->empty()) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("{}: empty, want text", path.string())};
  }
  return SampleText{named.empty() ? kBundledText : named, *std::move(text)};
}

}  // namespace lacuna
