// SPDX-License-Identifier: Apache-2.0
// The cache file: made once, mapped after, never half there, never trusted blindly, never needed.
#include "backend/cpu/weight_store.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "tensor/packed_access.h"
#include "tests/support/random_weights.h"

namespace lacuna {
namespace {

namespace fs = std::filesystem;

class WeightStoreTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(testing::TempDir()) / ("lacuna-store-" + std::to_string(getpid()));
    fs::remove_all(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  struct Loaded {
    WeightStore store;
    int rows = 0, neurons = 0, reports = 0;
  };
  std::unique_ptr<Loaded> load(std::uint64_t fingerprint = 7) {
    auto l = std::make_unique<Loaded>();
    l->rows = l->store.add_row_blocks(up_.source);
    l->neurons = l->store.add_neuron_major(down_.source);
    const auto done = l->store.load(
        pool_, {"model", fingerprint, folder_, [&](std::uint64_t sum, std::uint64_t total) {
                  EXPECT_LE(sum, total);
                  ++l->reports;
                }});
    EXPECT_TRUE(done.ok()) << done.error().what;
    return l;
  }
  // One weight and scale of each matrix, against the source.
  void expect_good(const Loaded& l) {
    std::vector<float> row(192);
    dequantize_row(up_.source, 71, row.data());
    const RowBlocks& w = l.store.row_blocks(l.rows);
    EXPECT_EQ(std::fma(row_block_scale(w, 71, 1).scale, row_block_weight(w, 71, 100),
                       row_block_scale(w, 71, 1).bias),
              row[100]);
    dequantize_row(down_.source, 130, row.data());
    const NeuronMajor& n = l.store.neuron_major(l.neurons);
    EXPECT_EQ(std::fma(neuron_scale(n, 1, 130).scale, neuron_weight(n, 100, 130),
                       neuron_scale(n, 1, 130).bias),
              row[100]);
  }
  std::vector<fs::path> files() const {
    std::vector<fs::path> all;
    if (fs::exists(folder_)) {
      for (const auto& e : fs::directory_iterator(folder_)) all.push_back(e.path());
    }
    return all;
  }

  fs::path folder_;
  RandomMatrix up_{{100, 192, 4, 64, Dtype::kBf16}, 1};
  RandomMatrix down_{{200, 192, 4, 64, Dtype::kBf16}, 2};
  ThreadPool pool_{2};
};

TEST_F(WeightStoreTest, PacksOnceAndMapsAfter) {
  const auto first = load();
  EXPECT_EQ(first->reports, 2);
  EXPECT_TRUE(first->store.notes().empty());
  expect_good(*first);
  ASSERT_EQ(files().size(), 1u);
  const auto second = load();
  EXPECT_EQ(second->reports, 0) << "a later start must not pack";
  expect_good(*second);
}

TEST_F(WeightStoreTest, AnotherCheckpointGetsAnotherFile) {
  load(7);
  EXPECT_EQ(load(8)->reports, 2);
  EXPECT_EQ(files().size(), 2u);
}

TEST_F(WeightStoreTest, ADamagedFileIsMadeAgain) {
  load();
  const fs::path file = files().at(0);
  const auto size = fs::file_size(file);
  const auto damage = [&](auto&& how) {
    how();
    const auto again = load();
    EXPECT_EQ(again->reports, 2);
    expect_good(*again);
    EXPECT_EQ(fs::file_size(file), size);
  };
  damage([&] { fs::resize_file(file, size - 1); });
  damage([&] { fs::resize_file(file, size + 4096); });
  damage([&] { fs::resize_file(file, 10); });
  for (const int at : {0, 8, 16, 24}) {
    damage([&] {
      std::fstream f(file, std::ios::in | std::ios::out | std::ios::binary);
      f.seekp(at);
      f.put('\x55');
    });
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
  EXPECT_TRUE(files().empty()) << "nothing half-written may stay";
}

TEST_F(WeightStoreTest, AFolderThatCannotBeMadeIsNoted) {
  std::ofstream(folder_.string() + "-file") << "in the way";
  folder_ += "-file";
  const auto l = load();
  expect_good(*l);
  ASSERT_EQ(l->store.notes().size(), 1u);
  EXPECT_NE(l->store.notes()[0].find("in memory"), std::string::npos);
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
      const bool ok = store.load(pool, {"model", 9, folder_, {}}).ok() &&
                      store.neuron_major(id).rows != nullptr;
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
}

}  // namespace
}  // namespace lacuna
