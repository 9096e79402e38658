// SPDX-License-Identifier: Apache-2.0
// The file by itself: its checksum, its name, and what is left behind by whom.
#include "backend/cpu/cache_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <set>

#include "tests/support/random_weights.h"

namespace lacuna {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::UnorderedElementsAre;

std::vector<std::uint8_t> random_bytes(std::size_t n, std::uint64_t seed = 1) {
  Random random(seed);
  std::vector<std::uint8_t> bytes(n);
  for (auto& b : bytes) b = static_cast<std::uint8_t>(random.bits());
  return bytes;
}

TEST(Checksum, EveryBitCounts) {
  for (const std::size_t n : {1u, 7u, 63u, 64u, 65u, 200u}) {
    std::vector<std::uint8_t> bytes = random_bytes(n);
    std::set<std::uint64_t> sums = {checksum(bytes)};
    for (std::size_t bit = 0; bit < 8 * n; ++bit) {
      bytes[bit / 8] = static_cast<std::uint8_t>(bytes[bit / 8] ^ 1u << bit % 8);
      EXPECT_TRUE(sums.insert(checksum(bytes)).second) << n << " bytes, bit " << bit;
      bytes[bit / 8] = static_cast<std::uint8_t>(bytes[bit / 8] ^ 1u << bit % 8);
    }
    EXPECT_EQ(sums.size(), 8 * n + 1);
  }
}

TEST(Checksum, LengthAndPlaceCount) {
  std::set<std::uint64_t> sums;
  const std::vector<std::uint8_t> zeros(300);
  for (std::size_t n = 0; n <= zeros.size(); ++n) sums.insert(checksum({zeros.data(), n}));
  EXPECT_EQ(sums.size(), zeros.size() + 1) << "zeros of other lengths";
  std::vector<std::uint8_t> bytes = random_bytes(256);
  sums = {checksum(bytes)};
  for (std::size_t at = 8; at < bytes.size(); at += 8) {  // words of one lane and of two
    std::swap_ranges(bytes.begin(), bytes.begin() + 8, bytes.begin() + at);
    EXPECT_TRUE(sums.insert(checksum(bytes)).second) << "words 0 and " << at / 8 << " swapped";
    std::swap_ranges(bytes.begin(), bytes.begin() + 8, bytes.begin() + at);
  }
}

class CacheFileTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(testing::TempDir()) / ("lacuna-cache-" + std::to_string(getpid()));
    fs::remove_all(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const auto& e : fs::directory_iterator(folder_))
      all.push_back(e.path().filename().string());
    return all;
  }
  void put(const std::string& name) const {
    fs::create_directories(folder_);
    std::ofstream(folder_ / name) << "something";
  }
  // Writes the payload, the last chunk first, and gives the file its name.
  void make(CacheWriter writer) {
    const std::span<const std::uint8_t> all = payload_;
    ASSERT_TRUE(writer.write(2 * kCacheChunk, all.subspan(2 * kCacheChunk)).ok());
    ASSERT_TRUE(writer.write(0, all.first(2 * kCacheChunk)).ok());
    std::string note;
    const auto file = std::move(writer).finish(note);
    ASSERT_TRUE(file.ok()) << file.error().what;
    EXPECT_EQ(note, "");
    expect_good(*file);
  }
  void expect_good(const CacheFile& file) {
    EXPECT_EQ(std::memcmp(file.payload(), payload_.data(), payload_.size()), 0);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(file.payload()) % kHugePage, 0u);
    EXPECT_EQ(file.find_damage(pool_), std::nullopt);
    EXPECT_TRUE(file.is_verified());
  }

  fs::path folder_;
  ThreadPool pool_{2};
  std::vector<std::uint8_t> payload_ = random_bytes(2 * kCacheChunk + 12345);
  CacheKey key_{"model", 0xabc, 5, payload_.size()};
  const std::string name_ = "model-0000000000000abc.weights";
  const std::string verified_ = name_ + ".verified";
};

TEST_F(CacheFileTest, BothKindsOfTemporaryGiveTheSameFile) {
  for (const auto kind : {CacheWriter::Temporary::kUnnamed, CacheWriter::Temporary::kNamed}) {
    fs::remove_all(folder_);
    auto writer = CacheWriter::create(folder_, key_, kind);
    ASSERT_TRUE(writer.ok()) << writer.error().what;
    EXPECT_EQ(names().size(), kind == CacheWriter::Temporary::kNamed ? 1u : 0u);
    EXPECT_FALSE(CacheFile::open(folder_, key_)) << "not before it is whole";
    make(*std::move(writer));
    EXPECT_THAT(names(), UnorderedElementsAre(name_, verified_));
    const auto file = CacheFile::open(folder_, key_);
    ASSERT_TRUE(file);
    expect_good(*file);
  }
}

TEST_F(CacheFileTest, AnotherKeyDoesNotOpen) {
  make(*CacheWriter::create(folder_, key_));
  CacheKey other = key_;
  ++other.layout;
  EXPECT_FALSE(CacheFile::open(folder_, other));
  other = key_;
  --other.bytes;
  EXPECT_FALSE(CacheFile::open(folder_, other));
  other = key_;
  ++other.fingerprint;
  EXPECT_FALSE(CacheFile::open(folder_, other));
  fs::rename(folder_ / name_, other.path(folder_));
  EXPECT_FALSE(CacheFile::open(folder_, other)) << "a name is not enough";
  EXPECT_FALSE(CacheFile::open(folder_ / "nowhere", key_));
}

TEST_F(CacheFileTest, DamageIsFoundWhereItIs) {
  make(*CacheWriter::create(folder_, key_));
  const auto size = fs::file_size(folder_ / name_);
  std::fstream f(folder_ / name_, std::ios::in | std::ios::out | std::ios::binary);
  const auto flip = [&](std::uint64_t at) {
    f.seekg(static_cast<std::streamoff>(at));
    const int byte = f.peek();
    f.seekp(static_cast<std::streamoff>(at));
    f.put(static_cast<char>(byte ^ 16)).flush();
  };
  const auto file = CacheFile::open(folder_, key_);
  ASSERT_TRUE(file);
  flip(size - 1);
  EXPECT_EQ(file->find_damage(pool_), 2 * kCacheChunk);
  flip(size - payload_.size() + kCacheChunk);
  EXPECT_EQ(file->find_damage(pool_), kCacheChunk) << "the first of two";
  flip(size - 1);
  flip(size - payload_.size() + kCacheChunk);
  EXPECT_EQ(file->find_damage(pool_), std::nullopt);
}

TEST_F(CacheFileTest, WhatIsNotFinishedLeavesNothing) {
  for (const auto kind : {CacheWriter::Temporary::kUnnamed, CacheWriter::Temporary::kNamed}) {
    auto writer = CacheWriter::create(folder_, key_, kind);
    ASSERT_TRUE(writer.ok());
    ASSERT_TRUE(writer->write(0, std::span(payload_).first(kCacheChunk)).ok());
    {
      const CacheWriter moved = *std::move(writer);
    }
    EXPECT_TRUE(names().empty());
  }
}

TEST_F(CacheFileTest, StaleFilesGoAndOthersStay) {
  const std::vector<std::string> stale = {
      "model-0000000000000abd.weights", "model-0000000000000abd.weights.verified",
      "model-0000000000000abd.weights.partial.77-0", name_ + ".partial.1-2"};
  const std::vector<std::string> others = {
      name_, "model-0000000000000ab.weights",    "model-0000000000000abdd.weights",
      "x",   "model-x-0000000000000abd.weights", "model-0000000000000abd.weights.mine"};
  for (const auto& name : stale) put(name);
  for (const auto& name : others) put(name);
  // One that another process is writing.
  const auto live = CacheWriter::create(folder_, key_, CacheWriter::Temporary::kNamed);
  ASSERT_TRUE(live.ok());
  EXPECT_EQ(names().size(), others.size() + 1);
  const auto writer = CacheWriter::create(folder_, key_);
  EXPECT_EQ(names().size(), others.size() + 1) << "the live one stays";
  for (const auto& name : others) EXPECT_TRUE(fs::exists(folder_ / name)) << name;
}

TEST_F(CacheFileTest, AFileThatCannotGetItsNameStillServes) {
  fs::create_directories(folder_ / name_ / "in the way");
  for (const auto kind : {CacheWriter::Temporary::kUnnamed, CacheWriter::Temporary::kNamed}) {
    auto writer = CacheWriter::create(folder_, key_, kind);
    ASSERT_TRUE(writer.ok());
    ASSERT_TRUE(writer->write(0, payload_).ok());
    std::string note;
    const auto file = (*std::move(writer)).finish(note);
    ASSERT_TRUE(file.ok());
    EXPECT_EQ(std::memcmp(file->payload(), payload_.data(), payload_.size()), 0);
    EXPECT_THAT(note, HasSubstr("not kept"));
    EXPECT_THAT(names(), UnorderedElementsAre(name_));
  }
}

TEST_F(CacheFileTest, AFolderThatIsNoneIsNamed) {
  std::ofstream(folder_.string() + "-file") << "in the way";
  const auto wrong = CacheWriter::create(folder_.string() + "-file", key_);
  fs::remove(folder_.string() + "-file");
  ASSERT_FALSE(wrong.ok());
  EXPECT_EQ(wrong.error().code, ErrorCode::kIo);
  EXPECT_THAT(wrong.error().what, HasSubstr(folder_.string() + "-file: "));
  EXPECT_THAT(wrong.error().what, HasSubstr("MB wanted"));
}

}  // namespace
}  // namespace lacuna
