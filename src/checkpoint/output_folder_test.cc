// SPDX-License-Identifier: Apache-2.0
// Files that appear whole, and the safetensors headers they begin with.
#include "checkpoint/output_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/mmap.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/safetensors_writer.h"
#include "tests/support/safetensors_writer.h"

namespace lacuna {
namespace {

namespace fs = std::filesystem;
using test::TempFolder;
using ::testing::HasSubstr;

int write(const PartialFile& file, std::uint64_t offset, std::string_view text) {
  return file.write(offset, {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()});
}

TEST(PartialFile, HasItsNameWhenFinished) {
  const TempFolder folder;
  const fs::path path = folder.path() / "file", partial = PartialFile::partial_path(path);
  {
    auto file = PartialFile::create(path);
    ASSERT_TRUE(file.ok());
    EXPECT_EQ(write(*file, 3, "def"), 0);
    EXPECT_EQ(write(*file, 0, "abc"), 0);
    EXPECT_FALSE(fs::exists(path));
    EXPECT_TRUE(fs::exists(partial));
    EXPECT_TRUE(file->finish().ok());
  }
  EXPECT_EQ(*read_text_file(path), "abcdef");
  EXPECT_FALSE(fs::exists(partial));
}

TEST(PartialFile, AnUnfinishedOneGoesUnlessResumed) {
  const TempFolder folder;
  const fs::path path = folder.path() / "file", partial = PartialFile::partial_path(path);
  ASSERT_EQ(write(*PartialFile::create(path), 0, "lost"), 0);
  EXPECT_FALSE(fs::exists(partial));
  ASSERT_EQ(write(*PartialFile::resume(path), 0, "kept"), 0);
  EXPECT_EQ(*read_text_file(partial), "kept");
  auto again = PartialFile::resume(path);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(write(*again, 4, " and more"), 0);
  EXPECT_TRUE(again->finish().ok());
  EXPECT_EQ(*read_text_file(path), "kept and more");
}

TEST(PartialFile, NamesWhatCannotBeWritten) {
  const auto file = PartialFile::create("/no/such/folder/file");
  ASSERT_FALSE(file.ok());
  EXPECT_EQ(file.error().code, ErrorCode::kIo);
  EXPECT_THAT(file.error().what, HasSubstr("/no/such/folder/file"));
}

TEST(CheckRoom, BothNumbersOfAFolderYetToBe) {
  const TempFolder folder;
  const fs::path there = folder.path() / "not" / "yet";
  EXPECT_TRUE(check_room(there, 1000, {}).ok());
  const auto refused = check_room(there, 1'000'000'000'000'000'000, {});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kIo);
  EXPECT_THAT(refused.error().what, HasSubstr("needs 1000000000.0 GB, its disk has "));
}

TEST(SafetensorsHeader, IsReadBack) {
  const OutputTensor codes{"a.weight", Dtype::kU32, {2, 3}}, scales{"a.scales", Dtype::kBf16, {3}};
  SafetensorsHeader header(nlohmann::ordered_json{{"format", "mlx"}, {"note", "n"}});
  header.add(codes);
  header.add(scales);
  EXPECT_EQ(codes.bytes(), 24u);
  std::string file = header.bytes();
  EXPECT_EQ(file.size() % 8, 0u);
  file += std::string(codes.bytes() + scales.bytes(), '\1');
  const auto parsed =
      parse_safetensors({reinterpret_cast<const std::uint8_t*>(file.data()), file.size()}, "file");
  ASSERT_TRUE(parsed.ok()) << parsed.error().what;
  EXPECT_EQ(parsed->metadata.at("note"), "n");
  ASSERT_EQ(parsed->tensors.size(), 2u);
  EXPECT_EQ(parsed->tensors[1].name, "a.scales");
  EXPECT_EQ(parsed->tensors[1].dtype, Dtype::kBf16);
  EXPECT_EQ(parsed->tensors[0].shape, codes.shape);
}

TEST(SafetensorsHeader, ShardNames) {
  EXPECT_EQ(shard_name(0, 1), "model.safetensors");
  EXPECT_EQ(shard_name(0, 2), "model-00001-of-00002.safetensors");
  EXPECT_EQ(shard_name(11, 120), "model-00012-of-00120.safetensors");
}

}  // namespace
}  // namespace lacuna
