// SPDX-License-Identifier: Apache-2.0
#include "base/mmap.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace lacuna {
namespace {

Error system_error(const std::filesystem::path& path) {
  const int e = errno;
  const bool missing = e == ENOENT || e == ENOTDIR;
  return {missing ? ErrorCode::kNotFound : ErrorCode::kIo,
          fmt::format("{}: {}", path.string(), missing ? "no such file" : std::strerror(e))};
}

void advise(std::span<const std::uint8_t> range, int advice) {
  if (range.empty()) return;
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<std::uintptr_t>(range.data());
  const std::uintptr_t first = begin / page * page;
  ::madvise(reinterpret_cast<void*>(first), begin - first + range.size(), advice);
}

}  // namespace

Result<MappedFile> MappedFile::open(const std::filesystem::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return system_error(path);
  struct stat st{};
  if (::fstat(fd, &st) != 0 || S_ISDIR(st.st_mode)) {
    if (S_ISDIR(st.st_mode)) errno = EISDIR;
    Error error = system_error(path);
    ::close(fd);
    return error;
  }
  MappedFile file;
  if (st.st_size > 0) {
    void* p = ::mmap(nullptr, static_cast<std::size_t>(st.st_size), PROT_READ, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED) {
      Error error = system_error(path);
      ::close(fd);
      return error;
    }
    file.data_ = static_cast<const std::uint8_t*>(p);
    file.size_ = static_cast<std::size_t>(st.st_size);
  }
  ::close(fd);
  return file;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::uint8_t*>(data_), size_);
}

void read_ahead(std::span<const std::uint8_t> range) { advise(range, MADV_WILLNEED); }
void drop_pages(std::span<const std::uint8_t> range) { advise(range, MADV_DONTNEED); }

Result<std::string> read_text_file(const std::filesystem::path& path, std::size_t max_bytes) {
  LAC_TRY(MappedFile file, MappedFile::open(path));
  const auto bytes = file.bytes();
  if (bytes.size() > max_bytes) {
    return Error{ErrorCode::kCorrupt,
                 fmt::format("{}: {} bytes, more than the {} such a file may have", path.string(),
                             bytes.size(), max_bytes)};
  }
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

}  // namespace lacuna
