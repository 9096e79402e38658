// SPDX-License-Identifier: Apache-2.0
#include "base/output_file.h"

#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace lacuna {

namespace fs = std::filesystem;

Error OutputFile::error() const {
  return {ErrorCode::kIo, fmt::format("{}: {}", path_.string(), std::strerror(errno))};
}

Result<OutputFile> OutputFile::create(const fs::path& path) {
  OutputFile file;
  file.path_ = path;
  file.temporary_ = path;
  file.temporary_ += fmt::format(".{}.tmp", ::getpid());
  std::error_code ignored;
  if (fs::exists(path, ignored) && !fs::is_regular_file(path, ignored)) {
    return Error{ErrorCode::kIo,
                 fmt::format("{}: not a regular file, want a file to write", path.string())};
  }
  file.file_.reset(std::fopen(file.temporary_.c_str(), "wbx"));
  if (!file.file_) return file.error();
  return file;
}

OutputFile::~OutputFile() {
  if (!file_) return;
  std::error_code ignored;
  fs::remove(temporary_, ignored);
}

Result<void> OutputFile::write(const void* data, std::size_t bytes) {
  if (std::fwrite(data, 1, bytes, file_.get()) != bytes) return error();
  return {};
}

Result<void> OutputFile::commit() {
  if (std::fflush(file_.get()) != 0) return error();
  if (std::rename(temporary_.c_str(), path_.c_str()) != 0) return error();
  file_.reset();
  return {};
}

}  // namespace lacuna
