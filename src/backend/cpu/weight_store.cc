// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/weight_store.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <mutex>

#include "base/memory.h"
#include "checkpoint/pack.h"

namespace lacuna {
namespace {

constexpr std::size_t kHeaderBytes = 4096;
constexpr std::uint64_t kAlign = 4096;
constexpr char kMagic[8] = {'l', 'a', 'c', 'u', 'n', 'a', 'W', '1'};

// First bytes of a cache file. A file whose header differs in anything is packed again.
struct Header {
  char magic[8];
  std::uint64_t fingerprint;  // of the checkpoint
  std::uint64_t layout;       // of the matrices and their order
  std::uint64_t bytes;        // payload, after the header
};

std::uint64_t mix(std::uint64_t hash, std::uint64_t value) {
  hash = (hash ^ value) * 0x9e3779b97f4a7c15ull;
  return hash ^ hash >> 29;
}

// A file descriptor that closes itself.
struct Fd {
  int fd = -1;
  ~Fd() {
    if (fd >= 0) ::close(fd);
  }
};

Error disk_error(const std::filesystem::path& folder, std::uint64_t bytes) {
  return {ErrorCode::kIo, fmt::format("cache folder {}: {} ({:.1f} MB wanted)", folder.string(),
                                      std::strerror(errno), static_cast<double>(bytes) / 1e6)};
}

}  // namespace

WeightStore::~WeightStore() {
  if (mapping_ != nullptr) ::munmap(mapping_, mapping_bytes_);
}

int WeightStore::add_row_blocks(const LinearSource& source) {
  Item item;
  item.source = source;
  item.blocks = plan_row_blocks(source);
  item.offset = total_;
  total_ += (item.blocks.bytes() + kAlign - 1) / kAlign * kAlign;
  items_.push_back(item);
  return static_cast<int>(items_.size()) - 1;
}

int WeightStore::add_neuron_major(const LinearSource& source) {
  Item item;
  item.source = source;
  item.neuron_major = true;
  item.neurons = plan_neuron_major(source);
  item.offset = total_;
  total_ += (item.neurons.bytes() + kAlign - 1) / kAlign * kAlign;
  items_.push_back(item);
  return static_cast<int>(items_.size()) - 1;
}

std::uint64_t WeightStore::layout_hash() const {
  std::uint64_t hash = items_.size();
  for (const Item& i : items_) {
    const auto& s = i.source;
    for (const int v : {s.out, s.in, s.quantized ? s.bits : 0, s.group, static_cast<int>(s.dtype),
                        static_cast<int>(i.neuron_major)}) {
      hash = mix(hash, static_cast<std::uint64_t>(v));
    }
  }
  return hash;
}

Result<void> WeightStore::load(ThreadPool& pool, const Options& options) {
  const auto file =
      options.folder / fmt::format("{}-{:016x}.weights", options.name, options.fingerprint);
  if (map_cache(file, options.fingerprint)) return {};
  if (const auto packed = pack_to_file(pool, options, file); !packed.ok()) {
    notes_.push_back(packed.error().what + "; weights are packed in memory for this run");
    LAC_TRY_VOID(pack_to_memory(pool, options));
  }
  return {};
}

bool WeightStore::map_cache(const std::filesystem::path& file, std::uint64_t fingerprint) {
  const Fd f{::open(file.c_str(), O_RDONLY | O_CLOEXEC)};
  if (f.fd < 0) return false;
  struct stat st{};
  Header header{};
  const bool good =
      ::fstat(f.fd, &st) == 0 &&
      ::pread(f.fd, &header, sizeof header, 0) == static_cast<ssize_t>(sizeof header) &&
      std::memcmp(header.magic, kMagic, sizeof kMagic) == 0 && header.fingerprint == fingerprint &&
      header.layout == layout_hash() && header.bytes == total_ &&
      static_cast<std::uint64_t>(st.st_size) == kHeaderBytes + total_;
  if (!good) return false;
  void* p = ::mmap(nullptr, kHeaderBytes + total_, PROT_READ, MAP_SHARED, f.fd, 0);
  if (p == MAP_FAILED) return false;
  mapping_ = p;
  mapping_bytes_ = kHeaderBytes + total_;
  point_into(static_cast<const std::uint8_t*>(p) + kHeaderBytes);
  return true;
}

Result<void> WeightStore::pack_to_file(ThreadPool& pool, const Options& options,
                                       const std::filesystem::path& file) {
  const std::uint64_t bytes = kHeaderBytes + total_;
  std::error_code ignored;
  std::filesystem::create_directories(options.folder, ignored);
  const Fd f{::open(options.folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0644)};
  if (f.fd < 0) return disk_error(options.folder, bytes);
  // Room is taken before anything is written: a mapped page of a full disk would be a SIGBUS.
  if (const int e = ::posix_fallocate(f.fd, 0, static_cast<off_t>(bytes)); e != 0) {
    errno = e;
    return disk_error(options.folder, bytes);
  }
  void* p = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, f.fd, 0);
  if (p == MAP_FAILED) return disk_error(options.folder, bytes);
  mapping_ = p;
  mapping_bytes_ = bytes;
  auto* base = static_cast<std::uint8_t*>(p);
  pack_all(pool, options, base + kHeaderBytes);
  Header header{};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  header.fingerprint = options.fingerprint;
  header.layout = layout_hash();
  header.bytes = total_;
  std::memcpy(base, &header, sizeof header);
  ::mprotect(p, bytes, PROT_READ);
  point_into(base + kHeaderBytes);
  // A file of that name is either an outdated one, or whole and made by another process just now;
  // replacing it is right in the first case and harmless in the second.
  ::unlink(file.c_str());
  const std::string self = fmt::format("/proc/self/fd/{}", f.fd);
  if (::linkat(AT_FDCWD, self.c_str(), AT_FDCWD, file.c_str(), AT_SYMLINK_FOLLOW) != 0 &&
      errno != EEXIST) {
    notes_.push_back(disk_error(options.folder, bytes).what + "; packed weights are not kept");
  }
  return {};
}

Result<void> WeightStore::pack_to_memory(ThreadPool& pool, const Options& options) {
  const std::uint64_t available = available_memory_bytes();
  void* p = total_ > available ? MAP_FAILED
                               : ::mmap(nullptr, total_, PROT_READ | PROT_WRITE,
                                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) {
    return Error{
        ErrorCode::kOutOfMemory,
        fmt::format("packed weights take {:.1f} MB of memory, {:.1f} MB are available",
                    static_cast<double>(total_) / 1e6, static_cast<double>(available) / 1e6)};
  }
  mapping_ = p;
  mapping_bytes_ = total_;
  pack_all(pool, options, static_cast<std::uint8_t*>(p));
  ::mprotect(p, total_, PROT_READ);
  point_into(static_cast<const std::uint8_t*>(p));
  return {};
}

void WeightStore::pack_all(ThreadPool& pool, const Options& options, std::uint8_t* base) {
  // Memory comes zeroed, which neuron-major packing relies on.
  std::atomic<std::uint64_t> done{0};
  std::mutex report;
  pool.run(static_cast<int>(items_.size()), [&](int task, int) {
    const Item& item = items_[task];
    std::uint8_t* at = base + item.offset;
    std::uint64_t bytes;
    if (item.neuron_major) {
      const NeuronMajor& w = item.neurons;
      std::uint8_t* scales = at + w.row_bytes() * static_cast<std::size_t>(w.in);
      for (int column = 0; column < w.out; column += kColumnBlock) {
        pack_neuron_columns(item.source, w, column, at, scales);
      }
      bytes = w.bytes();
    } else {
      const RowBlocks& w = item.blocks;
      for (int b = 0; b < w.blocks(); ++b)
        pack_row_block(item.source, w, b, at + b * w.block_bytes());
      bytes = w.bytes();
    }
    const std::uint64_t sum = done.fetch_add(bytes) + bytes;
    if (options.on_packing) {
      const std::lock_guard lock(report);
      options.on_packing(sum, total_);
    }
  });
}

void WeightStore::point_into(const std::uint8_t* base) {
  for (Item& item : items_) {
    if (item.neuron_major) {
      NeuronMajor& w = item.neurons;
      w.rows = base + item.offset;
      w.scales =
          is_quantized(w.kind) ? w.rows + w.row_bytes() * static_cast<std::size_t>(w.in) : nullptr;
    } else {
      item.blocks.data = base + item.offset;
    }
  }
}

}  // namespace lacuna
