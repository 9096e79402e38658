// SPDX-License-Identifier: Apache-2.0
// The cache file: made once, mapped after, never half there, never trusted blindly, never needed.
#include "backend/cpu/weight_store.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <deque>
#include <fstream>
#include <limits>
#include <thread>

#include "base/mmap.h"
#include "tensor/packed_access.h"
#include "tests/support/random_weights.h"

namespace lacuna {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

std::string first_line(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

class WeightStoreTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(testing::TempDir()) / ("lacuna-store-" + std::to_string(getpid()));
    fs::remove_all(folder_);
    up_.source.name = "up";
    down_.source.name = "down";
  }
  void TearDown() override { fs::remove_all(folder_); }

  struct Loaded {
    WeightStore store;
    int rows = 0, neurons = 0, reports = 0;
  };
  std::unique_ptr<Loaded> load(std::uint64_t fingerprint = 7, const std::string& name = "model") {
    auto l = std::make_unique<Loaded>();
    l->rows = l->store.add_row_blocks(up_.source);
    l->neurons = l->store.add_neuron_major(down_.source);
    const auto done = l->store.load(
        pool_, {name, fingerprint, folder_, [&](std::uint64_t sum, std::uint64_t total) {
                  EXPECT_LE(sum, total);
                  ++l->reports;
                }});
    EXPECT_TRUE(done.ok()) << done.error().what;
    return l;
  }
  // Every byte of each matrix.
  void expect_good(const Loaded& l) const {
    const PackedRows rows(up_.source, has_compact_scales(up_.source));
    EXPECT_EQ(std::memcmp(l.store.row_blocks(l.rows).data, rows.w.data, rows.w.bytes()), 0);
    const PackedNeurons neurons(down_.source, has_compact_scales(down_.source));
    EXPECT_EQ(neurons.w.form, l.store.neuron_major(l.neurons).form);
    EXPECT_EQ(std::memcmp(l.store.neuron_major(l.neurons).rows, neurons.w.rows, neurons.w.bytes()),
              0);
  }
  std::vector<fs::path> files(const std::string& extension = ".weights") const {
    std::vector<fs::path> all;
    if (fs::exists(folder_)) {
      for (const auto& e : fs::directory_iterator(folder_))
        if (extension.empty() || e.path().extension() == extension) all.push_back(e.path());
    }
    return all;
  }
  static void flip_bit(const fs::path& file, std::uint64_t at) {
    // The system's clock for file times ticks every few milliseconds.
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    std::fstream f(file, std::ios::in | std::ios::out | std::ios::binary);
    f.seekg(static_cast<std::streamoff>(at));
    const int byte = f.peek();
    f.seekp(static_cast<std::streamoff>(at));
    f.put(static_cast<char>(byte ^ 4));
  }
  void expect_made_again(const std::string& damaged) {
    const auto again = load();
    EXPECT_EQ(again->reports, 1);
    expect_good(*again);
    if (damaged.empty()) {
      EXPECT_TRUE(again->store.notes().empty());
    } else {
      ASSERT_EQ(again->store.notes().size(), 1u);
      EXPECT_THAT(again->store.notes()[0], HasSubstr(": " + damaged + " is damaged at byte "));
    }
    EXPECT_EQ(load()->reports, 0);
  }

  fs::path folder_;
  RandomMatrix up_{{100, 192, 4, 64, Dtype::kBf16}, 1};
  RandomMatrix down_{{200, 192, 4, 64, Dtype::kBf16}, 2};
  ThreadPool pool_{2};
};

// One matrix whose scales do not follow from its biases keeps them whole, the others do not.
TEST_F(WeightStoreTest, ScalesAreCompactMatrixByMatrix) {
  EXPECT_EQ(load()->store.neuron_major(1).form, ScaleForm::kCompact);
  auto* scales = const_cast<std::uint8_t*>(down_.source.scales);
  scales[0] ^= 1;
  up_ = RandomMatrix({100, 256, 4, 64, Dtype::kBf16}, 1);
  for (const int packs : {1, 0}) {
    const auto l = load(8);
    EXPECT_EQ(l->reports, packs);
    EXPECT_EQ(l->store.row_blocks(l->rows).form, ScaleForm::kCompact);
    EXPECT_EQ(l->store.neuron_major(l->neurons).form, ScaleForm::kPairs);
    expect_good(*l);
  }
}

TEST_F(WeightStoreTest, PacksOnceAndMapsAfter) {
  const auto first = load();
  EXPECT_EQ(first->reports, 1);
  EXPECT_TRUE(first->store.notes().empty());
  expect_good(*first);
  ASSERT_EQ(files().size(), 1u);
  EXPECT_EQ(files("").size(), 2u) << "the weights, and that they are verified";
  const auto second = load();
  EXPECT_EQ(second->reports, 0) << "a later start must not pack";
  EXPECT_TRUE(second->store.notes().empty());
  expect_good(*second);
}

TEST_F(WeightStoreTest, AnotherCheckpointReplacesTheFile) {
  const auto old = load(7);
  load(1, "model-x");
  EXPECT_EQ(load(8)->reports, 1);
  EXPECT_EQ(files().size(), 2u) << "another model's file stays";
  expect_good(*old);
  EXPECT_EQ(load(1, "model-x")->reports, 0);
}

TEST_F(WeightStoreTest, AFileMayBeDeletedWhileItIsInUse) {
  load();
  const auto l = load();
  fs::remove_all(folder_);
  expect_good(*l);
  EXPECT_EQ(load()->reports, 1);
}

// A batch ends anywhere in a chunk of the file, and a matrix may be larger than a batch.
TEST_F(WeightStoreTest, ManyBatchesHoldTheSameBytes) {
  const RandomMatrix wide({7000, 1024, 4, 64, Dtype::kBf16}, 3);
  const RandomMatrix other({3000, 512, 8, 32, Dtype::kF16}, 4);
  const LinearSource sources[] = {up_.source, wide.source, down_.source, other.source};
  std::deque<PackedRows> rows;
  std::deque<PackedNeurons> neurons;
  for (const LinearSource& s : sources) {
    rows.emplace_back(s, has_compact_scales(s));
    neurons.emplace_back(s, has_compact_scales(s));
  }
  for (const bool in_file : {true, true, false}) {
    WeightStore store;
    for (int i = 0; i < 24; ++i) {
      const LinearSource& s = sources[i * 7 % 4];
      i % 3 == 0 ? store.add_neuron_major(s) : store.add_row_blocks(s);
    }
    std::uint64_t last = 0;
    int reports = 0;
    WeightStore::Options options{"many", 1, in_file ? folder_ : "/dev/null/none",
                                 [&](std::uint64_t sum, std::uint64_t total) {
                                   EXPECT_GT(sum, last);
                                   EXPECT_EQ(total, store.bytes());
                                   last = sum;
                                   ++reports;
                                 }};
    options.batch_bytes = 3'000'000;
    ASSERT_TRUE(store.load(pool_, options).ok());
    EXPECT_EQ(last, reports > 0 ? store.bytes() : 0);
    for (int i = 0; i < 24; ++i) {
      const int s = i * 7 % 4;
      if (i % 3 == 0) {
        const NeuronMajor& w = store.neuron_major(i);
        EXPECT_EQ(std::memcmp(w.rows, neurons[s].w.rows, w.bytes()), 0) << i;
        EXPECT_EQ(w.scales - w.rows, neurons[s].w.scales - neurons[s].w.rows);
      } else {
        const RowBlocks& w = store.row_blocks(i);
        EXPECT_EQ(std::memcmp(w.data, rows[s].w.data, w.bytes()), 0) << i;
      }
    }
  }
}

TEST_F(WeightStoreTest, ADamagedHeaderIsMadeAgain) {
  load();
  const fs::path file = files().at(0);
  const auto size = fs::file_size(file);
  for (const auto wrong : {size - 1, size + 4096, std::uintmax_t{10}}) {
    fs::resize_file(file, wrong);
    expect_made_again("");
    EXPECT_EQ(fs::file_size(file), size);
  }
  for (const std::uint64_t at : {0, 8, 16, 24, 32, 40, 48, 4096}) {  // every field, and the table
    flip_bit(file, at);
    expect_made_again("");
  }
}

TEST_F(WeightStoreTest, AFlippedBitIsFoundAndNamed) {
  const auto whole = load();
  const fs::path file = files().at(0);
  const std::uint64_t begin = fs::file_size(file) - whole->store.bytes();
  const auto down_at = static_cast<std::uint64_t>(whole->store.neuron_major(whole->neurons).rows -
                                                  whole->store.row_blocks(whole->rows).data);
  // The name is that of the first matrix in the chunk of 2 MiB, which both share here.
  for (const std::uint64_t at :
       {begin, begin + down_at - 1, begin + down_at, std::uint64_t{fs::file_size(file) - 1}}) {
    flip_bit(file, at);
    expect_made_again("up");
  }
  // Times that were set back do not hide it.
  const auto time = fs::last_write_time(file);
  flip_bit(file, begin + 77);
  fs::last_write_time(file, time);
  expect_made_again("up");
}

TEST_F(WeightStoreTest, ACopiedFileIsReadThroughOnce) {
  load();
  const fs::path file = files().at(0), verified = file.string() + ".verified";
  const std::string before = first_line(verified);
  const auto copy_back = [&] {
    fs::copy_file(file, folder_ / "copy");
    fs::rename(folder_ / "copy", file);
  };
  copy_back();
  EXPECT_EQ(load()->reports, 0) << "a good copy is used";
  const std::string after = first_line(verified);
  EXPECT_NE(after, before);
  load();
  EXPECT_EQ(first_line(verified), after) << "and not read through again";
  fs::copy_file(file, folder_ / "copy");
  flip_bit(folder_ / "copy", fs::file_size(file) - 5000);
  fs::rename(folder_ / "copy", file);
  expect_made_again("up");
}

// What the .verified file promises, and that a boot ends the promise: a disk that lost a bit
// changes no times.
TEST_F(WeightStoreTest, ABootOfTheMachineEndsTrust) {
  load();
  const fs::path file = files().at(0), verified = file.string() + ".verified";
  flip_bit(file, fs::file_size(file) - 5000);
  struct stat st{};
  ASSERT_EQ(stat(file.c_str(), &st), 0);
  const std::string boot = first_line("/proc/sys/kernel/random/boot_id");
  const std::string rest =
      fmt::format(" {} {} {} {}.{:09} {}.{:09}", st.st_dev, st.st_ino, st.st_size,
                  st.st_mtim.tv_sec, st.st_mtim.tv_nsec, st.st_ctim.tv_sec, st.st_ctim.tv_nsec);
  std::ofstream(verified) << boot << rest << '\n';
  EXPECT_EQ(load()->reports, 0) << "verified in this boot, as far as the system tells";
  std::ofstream(verified) << std::string(boot.size(), '0') << rest << '\n';
  expect_made_again("up");
  for (const char* text : {"", "\n", "nonsense"}) {
    flip_bit(file, fs::file_size(file) - 5000);
    std::ofstream(verified) << text;
    expect_made_again("up");
  }
}

TEST_F(WeightStoreTest, WithoutARoomForItWeightsArePackedInMemory) {
  // A limit on file sizes stands for a full disk: the system refuses the room in the same call.
  signal(SIGXFSZ, SIG_IGN);
  rlimit old{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old), 0);
  rlimit tight = old;
  tight.rlim_cur = 8192;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &tight), 0);
  const auto l = load();
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &old), 0);
  expect_good(*l);
  ASSERT_EQ(l->store.notes().size(), 1u);
  EXPECT_NE(l->store.notes()[0].find(folder_.string()), std::string::npos)
      << "the note names the folder";
  EXPECT_TRUE(files("").empty()) << "nothing half-written may stay";
}

TEST_F(WeightStoreTest, AFolderThatCannotBeMadeIsNoted) {
  std::ofstream(folder_.string() + "-file") << "in the way";
  folder_ += "-file";
  const auto l = load();
  expect_good(*l);
  ASSERT_EQ(l->store.notes().size(), 1u);
  EXPECT_NE(l->store.notes()[0].find("in memory"), std::string::npos);
}

// In a process without the right to write there: what is in the folder is used, the rest is packed
// in memory.
TEST_F(WeightStoreTest, AReadOnlyFolderWorks) {
  load(7);
  fs::remove(files().at(0).string() + ".verified");
  fs::permissions(folder_, fs::perms(0555));
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    constexpr uid_t kNobody = 65534;
    if (geteuid() == 0 && setuid(kNobody) != 0) _exit(10);
    WeightStore mapped, packed;
    ThreadPool pool(1);
    for (WeightStore* s : {&mapped, &packed}) {
      s->add_row_blocks(up_.source);
      s->add_neuron_major(down_.source);
    }
    if (!mapped.load(pool, {"model", 7, folder_, {}}).ok() || !mapped.notes().empty()) _exit(11);
    if (!packed.load(pool, {"model", 8, folder_, {}}).ok() || packed.notes().size() != 1) _exit(12);
    _exit(std::memcmp(mapped.row_blocks(0).data, packed.row_blocks(0).data,
                      packed.row_blocks(0).bytes()) == 0
              ? 0
              : 13);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  fs::permissions(folder_, fs::perms(0755));
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(files("").size(), 1u);
}

TEST_F(WeightStoreTest, WhatDoesNotFitIsAnErrorWithBothNumbers) {
  WeightStore store;
  LinearSource huge = up_.source;  // never read: it is refused before
  huge.out = 1 << 30;
  huge.in = 1 << 14;
  store.add_row_blocks(huge);
  const auto done = store.load(pool_, {"huge", 1, "/dev/null/none", {}});
  ASSERT_FALSE(done.ok());
  EXPECT_EQ(done.error().code, ErrorCode::kOutOfMemory);
  EXPECT_THAT(done.error().what, testing::ContainsRegex("take [0-9]+\\.[0-9] MB of memory, "
                                                        "[0-9]+\\.[0-9] MB are available"));
}

TEST_F(WeightStoreTest, ScalesAreLookedAtBeforeThereIsAFile) {
  for (const float bad :
       {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    std::vector<std::uint8_t> biases(down_.source.scale_bytes());
    std::memcpy(biases.data(), down_.source.biases, biases.size());
    const std::uint16_t half = f32_to_bf16(bad);
    std::memcpy(biases.data() + biases.size() - 2, &half, 2);
    LinearSource source = down_.source;
    source.name = "layers.1.down";
    source.biases = biases.data();
    for (const fs::path& folder : {folder_, fs::path("/dev/null/none")}) {
      WeightStore store;
      store.add_row_blocks(up_.source);
      store.add_neuron_major(source);
      const auto done = store.load(pool_, {"model", 7, folder, {}});
      ASSERT_FALSE(done.ok());
      EXPECT_EQ(done.error().code, ErrorCode::kCorrupt);
      EXPECT_EQ(done.error().what, "layers.1.down.biases: holds a NaN or an infinity");
    }
    EXPECT_TRUE(files("").empty());
  }
}

// Pages of [data, data + bytes) that this process has in memory.
int resident_pages(const std::uint8_t* data, std::size_t bytes) {
  constexpr std::uintptr_t kPage = 4096;
  const int fd = open("/proc/self/pagemap", O_RDONLY);
  int count = 0;
  const auto begin = reinterpret_cast<std::uintptr_t>(data);
  for (std::uintptr_t page = begin / kPage; page * kPage < begin + bytes; ++page) {
    std::uint64_t entry = 0;
    if (pread(fd, &entry, sizeof entry, static_cast<off_t>(page * sizeof entry)) ==
        static_cast<ssize_t>(sizeof entry)) {
      count += static_cast<int>(entry >> 63);
    }
  }
  close(fd);
  return count;
}

TEST_F(WeightStoreTest, MappedSourcesAreDroppedAndStayReadable) {
  if (access("/proc/self/pagemap", R_OK) != 0) GTEST_SKIP() << "the system does not show pages";
  const RandomMatrix m({3000, 1024, 4, 64, Dtype::kBf16}, 5);
  const std::size_t codes = 3000 * m.source.row_bytes(), scales = m.source.scale_bytes();
  fs::create_directories(folder_);
  {
    std::ofstream file(folder_ / "source", std::ios::binary);
    file.write(reinterpret_cast<const char*>(m.source.weight), static_cast<std::streamsize>(codes));
    file.write(reinterpret_cast<const char*>(m.source.scales),
               static_cast<std::streamsize>(scales));
    file.write(reinterpret_cast<const char*>(m.source.biases),
               static_cast<std::streamsize>(scales));
  }
  const auto file = MappedFile::open(folder_ / "source");
  ASSERT_TRUE(file.ok());
  LinearSource source = m.source;
  source.weight = file->bytes().data();
  source.scales = source.weight + codes;
  source.biases = source.scales + scales;
  const PackedRows want(source, has_compact_scales(source));  // reads all of it
  ASSERT_GT(resident_pages(source.weight, codes), 0);
  for (const char* name : {"a", "b"}) {
    WeightStore store;
    const int id = store.add_row_blocks(source);
    WeightStore::Options options{name, 1, folder_, {}};
    options.mapped_sources = name[0] == 'b';
    options.batch_bytes = 500'000;
    ASSERT_TRUE(store.load(pool_, options).ok());
    EXPECT_EQ(resident_pages(source.weight, codes) == 0, options.mapped_sources);
    EXPECT_EQ(std::memcmp(store.row_blocks(id).data, want.w.data, want.w.bytes()), 0);
  }
  EXPECT_EQ(std::memcmp(source.weight, m.source.weight, codes), 0);
}

TEST_F(WeightStoreTest, TwoProcessesAtOnceBothEndWell) {
  std::vector<pid_t> children;
  for (int i = 0; i < 4; ++i) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      WeightStore store;
      ThreadPool pool(1);
      const int id = store.add_neuron_major(down_.source);
      const PackedNeurons want(down_.source, has_compact_scales(down_.source));
      const bool ok = store.load(pool, {"model", 9, folder_, {}}).ok() && store.notes().empty() &&
                      std::memcmp(store.neuron_major(id).rows, want.w.rows, want.w.bytes()) == 0;
      _exit(ok ? 0 : 1);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(files().size(), 1u);
  EXPECT_EQ(files("").size(), 2u);
}

}  // namespace
}  // namespace lacuna
