// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

#include "base/cpu.h"
#include "base/memory.h"
#include "base/mmap.h"
#include "base/output_file.h"

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

TEST(MappedFile, AdviceKeepsTheBytes) {
  const auto path = temp("lacuna-advice");
  std::ofstream(path) << std::string(10'000, 'x') << "yz";
  const auto file = MappedFile::open(path);
  ASSERT_TRUE(file.ok());
  const auto bytes = file->bytes();
  for (const auto range : {bytes, bytes.subspan(5000, 3), bytes.last(1), bytes.first(0)}) {
    read_ahead(range);
    drop_pages(range);
  }
  EXPECT_EQ(bytes[0], 'x');
  EXPECT_EQ(bytes[10'001], 'z');
}

TEST(Pages, AreAlignedAndZero) {
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{5000}, kHugePage, kHugePage + 1}) {
    Pages pages = Pages::anonymous(bytes);
    ASSERT_TRUE(pages);
    EXPECT_EQ(pages.size(), bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(pages.data()) % kHugePage, 0u);
    EXPECT_EQ(pages.data()[bytes - 1], 0);
    pages.data()[bytes - 1] = 7;
    pages.make_read_only();
    const Pages moved = std::move(pages);
    EXPECT_EQ(moved.data()[bytes - 1], 7);
  }
  EXPECT_FALSE(Pages::anonymous(0));
  EXPECT_FALSE(Pages::anonymous(std::size_t{1} << 60)) << "more than there are addresses";
  EXPECT_FALSE(Pages::anonymous(~std::size_t{0}));
}

TEST(Pages, HoldAFile) {
  const auto path = temp("lacuna-pages");
  std::ofstream(path) << std::string(5000, 'x') << "yz";
  const int fd = ::open(path.c_str(), O_RDONLY);
  ASSERT_GE(fd, 0);
  const Pages pages = Pages::of_file(fd, 5002);
  ::close(fd);
  ASSERT_TRUE(pages);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(pages.data()) % kHugePage, 0u);
  EXPECT_EQ(pages.data()[0], 'x');
  EXPECT_EQ(pages.data()[5001], 'z');
  errno = 0;
  EXPECT_FALSE(Pages::of_file(-1, 10));
  EXPECT_EQ(errno, EBADF);
}

TEST(OutputFile, IsThereWholeOrNotAtAll) {
  namespace fs = std::filesystem;
  const fs::path folder =
      fs::path(testing::TempDir()) / ("lacuna-output-" + std::to_string(getpid()));
  fs::create_directories(folder);
  const fs::path path = folder / "out";
  {
    auto file = OutputFile::create(path);
    ASSERT_TRUE(file.ok());
    ASSERT_TRUE(file->write("half", 4).ok());
  }
  EXPECT_TRUE(fs::is_empty(folder)) << "given up: nothing may stay";
  for (const char* text : {"first", "again"}) {
    auto file = OutputFile::create(path);
    ASSERT_TRUE(file.ok());
    ASSERT_TRUE(file->write(text, 5).ok());
    ASSERT_TRUE(file->commit().ok());
    EXPECT_EQ(*read_text_file(path), text);
  }
  const auto device = OutputFile::create("/dev/null");
  ASSERT_FALSE(device.ok()) << "a rename would put a file in its place";
  EXPECT_EQ(device.error().what, "/dev/null: not a regular file, want a file to write");
  EXPECT_FALSE(OutputFile::create(folder / "none" / "out").ok());
  fs::remove_all(folder);
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
