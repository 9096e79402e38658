// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/cache_file.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <limits>
#include <string_view>
#include <utility>

namespace lacuna {
namespace {

namespace fs = std::filesystem;

constexpr char kMagic[8] = {'l', 'a', 'c', 'u', 'n', 'a', 'W', '\n'};
// Counts up with every change of this format, or of a layout in tensor/packed.h.
constexpr std::uint64_t kFormat = 4;
constexpr std::size_t kTableAt = 4096;

// First bytes of a file. One whose header differs in anything is made again.
struct Header {
  char magic[8];
  std::uint64_t format, fingerprint, layout, bytes;
  std::uint64_t table;  // checksum of the table
  std::uint64_t self;   // checksum of the fields above
};

std::span<const std::uint8_t> bytes_of(const std::vector<std::uint64_t>& words) {
  return {reinterpret_cast<const std::uint8_t*>(words.data()), words.size() * sizeof(words[0])};
}

Header make_header(const CacheKey& key, const std::vector<std::uint64_t>& sums) {
  Header h{};
  std::memcpy(h.magic, kMagic, sizeof kMagic);
  h.format = kFormat;
  h.fingerprint = key.fingerprint;
  h.layout = key.layout;
  h.bytes = key.bytes;
  h.table = checksum(bytes_of(sums));
  h.self = checksum({reinterpret_cast<const std::uint8_t*>(&h), offsetof(Header, self)});
  return h;
}

std::size_t chunk_count(std::uint64_t payload) {
  return static_cast<std::size_t>((payload + kCacheChunk - 1) / kCacheChunk);
}
std::uint64_t payload_at(std::uint64_t payload) {
  const std::uint64_t table_end = kTableAt + chunk_count(payload) * sizeof(std::uint64_t);
  return (table_end + kCacheChunk - 1) / kCacheChunk * kCacheChunk;
}
std::uint64_t file_bytes(std::uint64_t payload) { return payload_at(payload) + payload; }

bool read_all(int fd, std::uint64_t at, void* to, std::size_t bytes) {
  auto* p = static_cast<char*>(to);
  while (bytes > 0) {
    const ssize_t n = ::pread(fd, p, bytes, static_cast<off_t>(at));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    p += n, at += static_cast<std::uint64_t>(n), bytes -= static_cast<std::size_t>(n);
  }
  return true;
}

std::string read_line(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

fs::path with_suffix(fs::path path, const char* suffix) { return path += suffix; }

// A name that no other writer has, here or in another process.
fs::path partial_path(fs::path path) {
  static std::atomic<int> count{0};
  return path += fmt::format(".partial.{}-{}", ::getpid(), count++);
}

// A temporary file that nobody holds the lock of was left by a crash.
void remove_if_abandoned(const fs::path& partial) {
  const Fd fd(::open(partial.c_str(), O_RDONLY | O_CLOEXEC));
  if (fd && ::flock(fd.get(), LOCK_EX | LOCK_NB) == 0) ::unlink(partial.c_str());
}

// Files of this model that no start will use again.
void remove_stale(const fs::path& folder, const CacheKey& key) {
  constexpr std::size_t kDigits = 16;
  const std::string own = key.path({}).string();
  const std::string prefix = key.name + "-";
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (!name.starts_with(prefix) || name.size() < prefix.size() + kDigits) continue;
    const std::string_view digits = std::string_view(name).substr(prefix.size(), kDigits);
    if (digits.find_first_not_of("0123456789abcdef") != std::string_view::npos) continue;
    const std::string_view rest = std::string_view(name).substr(prefix.size() + kDigits);
    if (rest.starts_with(".weights.partial.")) {
      remove_if_abandoned(it->path());
    } else if ((rest == ".weights" || rest == ".weights.verified") && !name.starts_with(own)) {
      ::unlink(it->path().c_str());
    }
  }
}

}  // namespace

// Eight lanes, for speed. Each word goes through a multiplication by an odd number and a shift that
// brings the high bits down: steps that can be undone, so one changed word reaches the result.
std::uint64_t checksum(std::span<const std::uint8_t> bytes) {
  constexpr std::uint64_t kOdd = 0x9e3779b97f4a7c15u;
  constexpr std::size_t kLanes = 8, kStep = kLanes * sizeof(std::uint64_t);
  std::uint64_t lanes[kLanes];
  for (std::size_t i = 0; i < kLanes; ++i) lanes[i] = kOdd * (i + 1);
  const auto add = [&lanes](const std::uint8_t* p) {
    for (std::size_t i = 0; i < kLanes; ++i) {
      std::uint64_t word;
      std::memcpy(&word, p + i * sizeof word, sizeof word);
      lanes[i] = (lanes[i] ^ word) * kOdd;
      lanes[i] ^= lanes[i] >> 32;
    }
  };
  std::size_t at = 0;
  for (; bytes.size() - at >= kStep; at += kStep) add(bytes.data() + at);
  if (at < bytes.size()) {
    std::uint8_t last[kStep] = {};
    std::memcpy(last, bytes.data() + at, bytes.size() - at);
    add(last);
  }
  std::uint64_t sum = bytes.size();
  for (const std::uint64_t lane : lanes) {
    sum = (sum ^ lane) * kOdd;
    sum ^= sum >> 32;
  }
  return sum;
}

fs::path CacheKey::path(const fs::path& folder) const {
  return folder / fmt::format("{}-{:016x}.weights", name, fingerprint);
}

Fd::Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
Fd& Fd::operator=(Fd&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}
Fd::~Fd() {
  if (fd_ >= 0) ::close(fd_);
}

std::optional<CacheFile> CacheFile::open(const fs::path& folder, const CacheKey& key) {
  CacheFile file;
  file.path_ = key.path(folder);
  file.fd_ = Fd(::open(file.path_.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat st{};
  if (!file.fd_ || ::fstat(file.fd_.get(), &st) != 0 || !S_ISREG(st.st_mode) ||
      static_cast<std::uint64_t>(st.st_size) != file_bytes(key.bytes)) {
    return std::nullopt;
  }
  file.sums_.resize(chunk_count(key.bytes));
  Header found{};
  if (!read_all(file.fd_.get(), 0, &found, sizeof found) ||
      !read_all(file.fd_.get(), kTableAt, file.sums_.data(), bytes_of(file.sums_).size())) {
    return std::nullopt;
  }
  const Header wanted = make_header(key, file.sums_);
  if (std::memcmp(&found, &wanted, sizeof found) != 0) return std::nullopt;
  file.pages_ = Pages::of_file(file.fd_.get(), static_cast<std::size_t>(st.st_size));
  if (!file.pages_) return std::nullopt;
  return file;
}

const std::uint8_t* CacheFile::payload() const {
  return pages_.data() +
         kCacheChunk * ((kTableAt + bytes_of(sums_).size() + kCacheChunk - 1) / kCacheChunk);
}

std::string CacheFile::identity() const {
  const std::string boot = read_line("/proc/sys/kernel/random/boot_id");
  struct stat st{};
  if (boot.empty() || ::fstat(fd_.get(), &st) != 0) return {};
  return fmt::format("{} {} {} {} {}.{:09} {}.{:09}", boot, st.st_dev, st.st_ino, st.st_size,
                     st.st_mtim.tv_sec, st.st_mtim.tv_nsec, st.st_ctim.tv_sec, st.st_ctim.tv_nsec);
}

bool CacheFile::is_verified() const {
  const std::string own = identity();
  return !own.empty() && read_line(with_suffix(path_, ".verified")) == own;
}

// Two processes that write at once write the same; a line torn by a crash only fails to match.
void CacheFile::mark_verified() const {
  const std::string own = identity();
  if (!own.empty()) std::ofstream(with_suffix(path_, ".verified"), std::ios::trunc) << own << '\n';
}

std::optional<std::uint64_t> CacheFile::find_damage(ThreadPool& pool) const {
  constexpr std::uint64_t kNone = std::numeric_limits<std::uint64_t>::max();
  std::atomic<std::uint64_t> first{kNone};
  const std::size_t total = pages_.size() - static_cast<std::size_t>(payload() - pages_.data());
  pool.run(static_cast<int>(sums_.size()), [&](int task, int) {
    const std::size_t at = static_cast<std::size_t>(task) * kCacheChunk;
    const std::size_t bytes = std::min(kCacheChunk, total - at);
    // Brings the pages in, and says of a bad disk what reading them would say by a signal.
    const bool unreadable =
        ::madvise(const_cast<std::uint8_t*>(payload()) + at, bytes, MADV_POPULATE_READ) != 0 &&
        (errno == EFAULT || errno == EHWPOISON);
    if (!unreadable && checksum({payload() + at, bytes}) == sums_[task]) return;
    std::uint64_t seen = first.load();
    while (at < seen && !first.compare_exchange_weak(seen, at)) continue;
  });
  if (first == kNone) return std::nullopt;
  return first.load();
}

Error CacheWriter::disk_error() const {
  return {ErrorCode::kIo,
          fmt::format("cache folder {}: {} ({:.1f} MB wanted)", folder_.string(),
                      std::strerror(errno), static_cast<double>(file_bytes(key_.bytes)) / 1e6)};
}

Result<CacheWriter> CacheWriter::create(const fs::path& folder, const CacheKey& key,
                                        Temporary preferred) {
  CacheWriter writer;
  writer.folder_ = folder;
  writer.path_ = key.path(folder);
  writer.key_ = key;
  writer.sums_.resize(chunk_count(key.bytes));
  std::error_code ignored;
  fs::create_directories(folder, ignored);
  remove_stale(folder, key);
  LAC_TRY_VOID(writer.open_temporary(preferred));
  ::flock(writer.fd_.get(), LOCK_EX | LOCK_NB);
  // Room is taken first: a full disk is better known before the work than after it. A file system
  // that cannot promise room reports a full disk when it is written to.
  if (::fallocate(writer.fd_.get(), 0, 0, static_cast<off_t>(file_bytes(key.bytes))) != 0 &&
      errno != EOPNOTSUPP && errno != ENOSYS) {
    return writer.disk_error();
  }
  return writer;
}

Result<void> CacheWriter::open_temporary(Temporary preferred) {
  if (preferred == Temporary::kUnnamed) {
    fd_ = Fd(::open(folder_.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0644));
    if (fd_) return {};
    // What file systems and kernels say that do not have it. Anything else is about the folder.
    if (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL) return disk_error();
  }
  const fs::path name = partial_path(path_);
  fd_ = Fd(::open(name.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0644));
  if (!fd_) return disk_error();
  partial_ = name;
  return {};
}

CacheWriter::~CacheWriter() {
  if (fd_ && !partial_.empty()) ::unlink(partial_.c_str());
}

Result<void> CacheWriter::write(std::uint64_t at, std::span<const std::uint8_t> chunks) {
  while (!chunks.empty()) {
    const auto chunk = chunks.first(std::min(kCacheChunk, chunks.size()));
    sums_[at / kCacheChunk] = checksum(chunk);
    LAC_TRY_VOID(write_all(payload_at(key_.bytes) + at, chunk));
    at += chunk.size();
    chunks = chunks.subspan(chunk.size());
  }
  return {};
}

Result<void> CacheWriter::write_all(std::uint64_t at, std::span<const std::uint8_t> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::pwrite(fd_.get(), bytes.data(), bytes.size(), static_cast<off_t>(at));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return disk_error();
    at += static_cast<std::uint64_t>(n);
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
  return {};
}

// By renaming, which replaces a file of that name in one step: an outdated or damaged one, or one
// that another process made just now.
bool CacheWriter::give_name() {
  if (partial_.empty()) {
    const fs::path name = partial_path(path_);
    const std::string self = fmt::format("/proc/self/fd/{}", fd_.get());
    if (::linkat(AT_FDCWD, self.c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW) != 0)
      return false;
    partial_ = name;
  }
  const fs::path from = std::exchange(partial_, fs::path());
  if (::rename(from.c_str(), path_.c_str()) == 0) return true;
  const int reason = errno;
  ::unlink(from.c_str());
  errno = reason;
  return false;
}

Result<CacheFile> CacheWriter::finish(std::string& note) && {
  std::vector<std::uint8_t> head(payload_at(key_.bytes));
  const Header header = make_header(key_, sums_);
  const auto table = bytes_of(sums_);
  std::memcpy(head.data(), &header, sizeof header);
  std::copy(table.begin(), table.end(), head.begin() + kTableAt);
  LAC_TRY_VOID(write_all(0, head));
  CacheFile file;
  file.path_ = path_;
  file.pages_ = Pages::of_file(fd_.get(), static_cast<std::size_t>(file_bytes(key_.bytes)));
  if (!file.pages_) return disk_error();
  const bool named = give_name();
  if (!named) note = disk_error().what + "; packed weights are not kept";
  file.fd_ = std::move(fd_);
  file.sums_ = std::move(sums_);
  if (named) file.mark_verified();
  return file;
}

}  // namespace lacuna
