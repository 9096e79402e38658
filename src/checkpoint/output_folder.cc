// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/output_folder.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

namespace lacuna {
namespace {

namespace fs = std::filesystem;

Error io_error(const fs::path& path, const std::string& what) {
  return {ErrorCode::kIo, fmt::format("{}: {}", path.string(), what)};
}

}  // namespace

PartialFile::PartialFile(fs::path path, int descriptor, bool resumed)
    : path_(std::move(path)),
      partial_(partial_path(path_)),
      descriptor_(descriptor),
      resumed_(resumed) {}

PartialFile::PartialFile(PartialFile&& other) noexcept
    : path_(std::move(other.path_)),
      partial_(std::move(other.partial_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      resumed_(other.resumed_) {}

PartialFile::~PartialFile() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  std::error_code ignored;
  if (!resumed_) fs::remove(partial_, ignored);
}

fs::path PartialFile::partial_path(const fs::path& path) { return path.string() + ".partial"; }

Result<PartialFile> PartialFile::open(const fs::path& path, bool resumed) {
  const fs::path partial = partial_path(path);
  const int descriptor =
      ::open(partial.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | (resumed ? 0 : O_TRUNC),
             S_IRUSR | S_IWUSR | S_IRGRP | S_IROTH);
  if (descriptor < 0) return io_error(partial, std::strerror(errno));
  return PartialFile(path, descriptor, resumed);
}

Result<PartialFile> PartialFile::create(const fs::path& path) { return open(path, false); }
Result<PartialFile> PartialFile::resume(const fs::path& path) { return open(path, true); }

int PartialFile::write(std::uint64_t offset, std::span<const std::uint8_t> bytes) const {
  while (!bytes.empty()) {
    const ssize_t n = ::pwrite(descriptor_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (n < 0 && errno != EINTR) return errno;
    if (n <= 0) continue;
    bytes = bytes.subspan(static_cast<std::size_t>(n));
    offset += static_cast<std::uint64_t>(n);
  }
  return 0;
}

Result<void> PartialFile::finish() {
  if (resumed_ && ::fdatasync(descriptor_) != 0) return error(errno);
  if (::close(std::exchange(descriptor_, -1)) == 0 &&
      std::rename(partial_.c_str(), path_.c_str()) == 0)
    return {};
  const Error failed = error(errno);
  std::error_code ignored;
  if (!resumed_) fs::remove(partial_, ignored);
  return failed;
}

Error PartialFile::error(int number) const { return io_error(path_, std::strerror(number)); }

OutputFolder::OutputFolder(fs::path folder, bool made) : folder_(std::move(folder)), made_(made) {}

OutputFolder::OutputFolder(OutputFolder&& other) noexcept
    : folder_(std::move(other.folder_)),
      files_(std::move(other.files_)),
      made_(other.made_),
      kept_(std::exchange(other.kept_, true)) {}

OutputFolder::~OutputFolder() {
  if (kept_) return;
  std::error_code ignored;
  for (const fs::path& file : files_) fs::remove(file, ignored);
  if (made_) fs::remove(folder_, ignored);
}

Result<OutputFolder> OutputFolder::open(const fs::path& folder) {
  std::error_code problem;
  const bool made = fs::create_directories(folder, problem);
  if (problem) return io_error(folder, problem.message());
  return OutputFolder(folder, made);
}

Result<PartialFile> OutputFolder::create(const std::string& name) {
  files_.push_back(folder_ / name);
  return PartialFile::create(files_.back());
}

Result<void> OutputFolder::write(const std::string& name, std::string_view content) {
  LAC_TRY(PartialFile file, create(name));
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(content.data());
  if (const int failed = file.write(0, {bytes, content.size()})) return file.error(failed);
  return file.finish();
}

Result<void> check_room(const fs::path& folder, std::uint64_t wanted,
                        const std::vector<fs::path>& replaced) {
  std::error_code problem;
  fs::path there = fs::absolute(folder, problem);
  while (!fs::exists(there, problem) && there.has_relative_path()) there = there.parent_path();
  const fs::space_info space = fs::space(there, problem);
  if (problem) return io_error(there, problem.message());
  std::uint64_t room = space.available;
  for (const fs::path& file : replaced) {
    const std::uintmax_t bytes = fs::file_size(file, problem);
    if (!problem) room += bytes;
  }
  if (wanted <= room) return {};
  return io_error(folder,
                  fmt::format("needs {:.1f} GB, its disk has {:.1f} GB of room",
                              static_cast<double>(wanted) / 1e9, static_cast<double>(room) / 1e9));
}

}  // namespace lacuna
