// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/cpu.h"
#include "base/memory.h"
#include "base/mmap.h"

namespace lacuna {
namespace {

std::filesystem::path temp(const std::string& name) {
  return std::filesystem::path(testing::TempDir()) / name;
}

TEST(MappedFile, HoldsTheFilesBytes) {
  const auto path = temp("lacuna-mmap");
  std::ofstream(path) << "abc";
  auto file = MappedFile::open(path);
  ASSERT_TRUE(file.ok());
  MappedFile moved = *std::move(file);
  ASSERT_EQ(moved.bytes().size(), 3u);
  EXPECT_EQ(moved.bytes()[2], 'c');
  std::ofstream(path, std::ios::trunc);
  const auto empty = MappedFile::open(path);
  ASSERT_TRUE(empty.ok());
  EXPECT_TRUE(empty->bytes().empty());
}

TEST(MappedFile, ErrorsNameThePath) {
  const auto missing = MappedFile::open(temp("lacuna-not-there"));
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().code, ErrorCode::kNotFound);
  EXPECT_NE(missing.error().what.find("lacuna-not-there"), std::string::npos);
  const auto folder = MappedFile::open(testing::TempDir());
  ASSERT_FALSE(folder.ok());
  EXPECT_EQ(folder.error().code, ErrorCode::kIo);
}

TEST(ReadTextFile, RefusesWhatIsTooLarge) {
  const auto path = temp("lacuna-text");
  std::ofstream(path) << "0123456789";
  EXPECT_EQ(*read_text_file(path), "0123456789");
  const auto large = read_text_file(path, 9);
  ASSERT_FALSE(large.ok());
  EXPECT_EQ(large.error().code, ErrorCode::kCorrupt);
  EXPECT_NE(large.error().what.find("10 bytes"), std::string::npos);
}

TEST(Cpu, ScalarIsAlwaysThereAndTheBestIsTheDefault) {
  const char* before = std::getenv("LACUNA_ISA");
  const std::string saved = before != nullptr ? before : "";
  const std::vector<Isa> usable = usable_isas();
  ASSERT_FALSE(usable.empty());
  EXPECT_EQ(usable.front(), Isa::kScalar);
  unsetenv("LACUNA_ISA");
  EXPECT_EQ(*choose_isa(), usable.back());
  for (const Isa isa : usable) {
    setenv("LACUNA_ISA", isa_name(isa), 1);
    EXPECT_EQ(*choose_isa(), isa);
  }
  for (const char* wrong : {"sse9", "AVX2", "avx2 "}) {
    setenv("LACUNA_ISA", wrong, 1);
    const auto refused = choose_isa();
    ASSERT_FALSE(refused.ok()) << wrong;
    EXPECT_NE(refused.error().what.find("scalar"), std::string::npos)
        << "the error lists what would work";
  }
  if (before != nullptr) {
    setenv("LACUNA_ISA", saved.c_str(), 1);
  } else {
    unsetenv("LACUNA_ISA");
  }
}

TEST(Machine, HasCoresAndMemory) {
  EXPECT_GE(usable_cores(), 1);
  EXPECT_LE(usable_cores(), 4096);
  EXPECT_GT(available_memory_bytes(), std::uint64_t{1} << 20);
  EXPECT_FALSE(cpu_model().empty());
}

}  // namespace
}  // namespace lacuna
