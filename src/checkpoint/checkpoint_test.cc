// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <string>

#include "tests/support/safetensors_writer.h"

namespace lacuna {
namespace {

using test::filled;
using test::index_text;
using test::TempFolder;
using test::TestTensors;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr const char* kIndex = "model.safetensors.index.json";
constexpr const char* kShard1 = "model-00001-of-00002.safetensors";
constexpr const char* kShard2 = "model-00002-of-00002.safetensors";

TestTensors tensors(std::initializer_list<const char*> names) {
  TestTensors out;
  for (const char* name : names) out[name] = filled(Dtype::kF32, {2}, 1.0f);
  return out;
}

std::string error_of(const std::filesystem::path& path, ErrorCode code) {
  auto result = Checkpoint::open(path);
  EXPECT_FALSE(result.ok());
  if (result) return "no error";
  EXPECT_EQ(result.error().code, code) << result.error().what;
  EXPECT_EQ(result.error().what.find('\n'), std::string::npos);
  return result.error().what;
}

class CheckpointFolder : public ::testing::Test {
 protected:
  CheckpointFolder() { folder_.write("config.json", "{\"model_type\": \"x\"}"); }

  void write_shards(const TestTensors& first, const TestTensors& second) {
    folder_.write(kShard1, first);
    folder_.write(kShard2, second);
    folder_.write(kIndex, index_text({{kShard1, first}, {kShard2, second}}));
  }
  std::string error(ErrorCode code) const { return error_of(folder_.path(), code); }

  TempFolder folder_;
};

TEST_F(CheckpointFolder, OpensASingleFile) {
  folder_.write("model.safetensors", tensors({"a", "b"}));
  auto opened = Checkpoint::open(folder_.path());
  ASSERT_TRUE(opened.ok()) << opened.error().what;
  EXPECT_EQ(opened->tensors().size(), 2u);
  ASSERT_NE(opened->find("a"), nullptr);
  EXPECT_EQ(opened->find("a")->file, "model.safetensors");
  EXPECT_EQ(opened->find("c"), nullptr);
  EXPECT_EQ(opened->config()["model_type"], "x");
  EXPECT_EQ(opened->files()[0].metadata.at("format"), "mlx");
}

TEST_F(CheckpointFolder, ViewsOutliveAMove) {
  folder_.write("model.safetensors", tensors({"a"}));
  auto opened = Checkpoint::open(folder_.path());
  ASSERT_TRUE(opened.ok());
  const Checkpoint moved = *std::move(opened);
  float value = 0;
  std::memcpy(&value, moved.find("a")->data, 4);
  EXPECT_EQ(value, 1.0f);
}

TEST_F(CheckpointFolder, OpensShards) {
  write_shards(tensors({"a", "b"}), tensors({"c"}));
  auto opened = Checkpoint::open(folder_.path());
  ASSERT_TRUE(opened.ok()) << opened.error().what;
  EXPECT_EQ(opened->find("c")->file, kShard2);
  ASSERT_EQ(opened->files().size(), 2u);
  EXPECT_FALSE(opened->files()[0].is_side_file);
}

TEST_F(CheckpointFolder, MapsADraftingHeadBesideTheWeights) {
  folder_.write("model.safetensors", tensors({"a"}));
  folder_.write("other.safetensors", std::string("not looked at"));
  for (const char* name :
       {"mtp.safetensors", "model-mtp.safetensors", "model-mtp-4bit.safetensors"}) {
    folder_.write(name, tensors({"mtp.x"}));
    auto opened = Checkpoint::open(folder_.path());
    ASSERT_TRUE(opened.ok()) << opened.error().what;
    ASSERT_NE(opened->find("mtp.x"), nullptr);
    EXPECT_EQ(opened->find("mtp.x")->file, name);
    EXPECT_TRUE(opened->files().back().is_side_file);
    folder_.remove(name);
  }
  // One that cannot be read costs the head, not the model.
  const auto note = [&]() -> std::string {
    const auto opened = Checkpoint::open(folder_.path());
    EXPECT_TRUE(opened.ok());
    EXPECT_EQ(opened->tensors().size(), 1u);
    EXPECT_EQ(opened->files().size(), 1u);
    return opened->notes().size() == 1 ? opened->notes()[0] : "";
  };
  folder_.write("mtp.safetensors", tensors({"a", "mtp.x"}));
  EXPECT_THAT(note(), HasSubstr("left out: mtp.safetensors: a is in model.safetensors too"));
  folder_.write("mtp.safetensors", std::string("short"));
  EXPECT_THAT(note(), HasSubstr("left out: mtp.safetensors: 5 bytes"));
}

TEST_F(CheckpointFolder, ASideFileInTheIndexIsAShard) {
  folder_.write("model.safetensors", tensors({"a"}));
  folder_.write("mtp.safetensors", tensors({"mtp.x"}));
  folder_.write(kIndex, index_text({{"model.safetensors", tensors({"a"})},
                                    {"mtp.safetensors", tensors({"mtp.x"})}}));
  auto opened = Checkpoint::open(folder_.path());
  ASSERT_TRUE(opened.ok()) << opened.error().what;
  EXPECT_EQ(opened->files().size(), 2u);
}

TEST_F(CheckpointFolder, SaysWhatItLookedFor) {
  EXPECT_THAT(error_of(folder_.path() / "nothing", ErrorCode::kNotFound),
              AllOf(HasSubstr("nothing: no such folder"), HasSubstr("config.json")));
  EXPECT_THAT(error_of(folder_.path() / "config.json", ErrorCode::kNotFound),
              HasSubstr("config.json: a file; wanted the folder"));
  EXPECT_THAT(error(ErrorCode::kNotFound), HasSubstr("no weights; wanted model.safetensors"));
  folder_.write(kShard1, tensors({"a"}));
  EXPECT_THAT(error(ErrorCode::kNotFound),
              HasSubstr(std::string("no ") + kIndex + ", which says what is in " + kShard1));
  folder_.write("x.gguf", std::string("GGUF"));
  EXPECT_THAT(error(ErrorCode::kUnsupported), HasSubstr("x.gguf: GGUF is not supported"));
  EXPECT_THAT(error_of(folder_.path() / "x.gguf", ErrorCode::kUnsupported),
              HasSubstr("GGUF is not supported"));
  folder_.remove("config.json");
  EXPECT_THAT(error(ErrorCode::kUnsupported), HasSubstr("GGUF"));
  folder_.remove("x.gguf");
  EXPECT_THAT(error(ErrorCode::kNotFound), HasSubstr("no config.json"));
}

TEST_F(CheckpointFolder, RefusesABrokenConfig) {
  folder_.write("model.safetensors", tensors({"a"}));
  folder_.write("config.json", std::string("{\"a\": }"));
  EXPECT_THAT(error(ErrorCode::kCorrupt), HasSubstr("config.json:1:7: a: wanted a value"));
  folder_.write("config.json", std::string("[]"));
  EXPECT_THAT(error(ErrorCode::kCorrupt), HasSubstr("config.json: wanted an object"));
}

// L3, both ways.
TEST_F(CheckpointFolder, ComparesIndexAndShards) {
  const TestTensors first = tensors({"a", "b"}), second = tensors({"c"});
  write_shards(first, second);
  folder_.write(kIndex, index_text({{kShard1, tensors({"a", "b", "mtp.x"})}, {kShard2, second}}));
  EXPECT_THAT(error(ErrorCode::kCorrupt),
              HasSubstr(std::string("mtp.x is listed in ") + kShard1 + ", which does not have it"));
  folder_.write(kIndex, index_text({{kShard1, tensors({"a"})}, {kShard2, second}}));
  EXPECT_THAT(error(ErrorCode::kCorrupt),
              HasSubstr(std::string("b is in ") + kShard1 + ", but not listed"));
  folder_.write(kIndex, index_text({{kShard1, tensors({"a"})}, {kShard2, tensors({"b", "c"})}}));
  EXPECT_THAT(error(ErrorCode::kCorrupt),
              HasSubstr(std::string("b is listed in ") + kShard2 + ", but is in " + kShard1));
  folder_.write(kIndex, index_text({{kShard1, first}, {kShard2, second}}));
  folder_.write(kShard2, tensors({"b", "c"}));
  EXPECT_THAT(error(ErrorCode::kCorrupt),
              HasSubstr(std::string(kShard2) + ": b is in " + kShard1 + " too"));
}

TEST_F(CheckpointFolder, NamesAMissingShard) {
  write_shards(tensors({"a", "b"}), tensors({"c", "d", "e"}));
  folder_.remove(kShard2);
  EXPECT_THAT(error(ErrorCode::kNotFound),
              AllOf(HasSubstr(std::string("no ") + kShard2), HasSubstr("lists 3 tensors"),
                    HasSubstr("incomplete")));
}

TEST_F(CheckpointFolder, NamesTheShardThatWasCut) {
  write_shards(tensors({"a"}), tensors({"c", "d"}));
  std::filesystem::resize_file(folder_.path() / kShard2,
                               std::filesystem::file_size(folder_.path() / kShard2) - 1);
  EXPECT_THAT(error(ErrorCode::kCorrupt),
              AllOf(HasSubstr(std::string(kShard2) + ": d: ends at byte"),
                    HasSubstr("1 bytes are missing")));
}

TEST_F(CheckpointFolder, TheIndexCannotLeaveTheFolder) {
  folder_.write("model.safetensors", tensors({"a"}));
  for (const char* name : {"../model.safetensors", "/etc/passwd", "sub/x.safetensors", "..", "",
                           "a\\\\b", "x\\u0000"}) {
    folder_.write(kIndex, std::string("{\"weight_map\": {\"a\": \"") + name + "\"}}");
    EXPECT_THAT(error(ErrorCode::kCorrupt), HasSubstr("a: \"")) << name;
  }
}

TEST_F(CheckpointFolder, RefusesABrokenIndex) {
  folder_.write("model.safetensors", tensors({"a"}));
  for (const char* text : {"", "[]", "{}", "{\"weight_map\": []}", "{\"weight_map\": {}}",
                           "{\"weight_map\": {\"a\": 1}}"}) {
    folder_.write(kIndex, std::string(text));
    EXPECT_THAT(error(ErrorCode::kCorrupt), HasSubstr(kIndex)) << text;
  }
}

TEST_F(CheckpointFolder, FingerprintFollowsConfigHeadersAndTimes) {
  folder_.write("model.safetensors", tensors({"a"}));
  const auto fingerprint = [this] {
    auto opened = Checkpoint::open(folder_.path());
    EXPECT_TRUE(opened.ok());
    return opened->fingerprint();
  };
  const auto first = fingerprint();
  EXPECT_EQ(fingerprint(), first);
  const auto file = folder_.path() / "model.safetensors";
  const auto time = std::filesystem::last_write_time(file);

  folder_.write("model.safetensors", tensors({"b"}));
  std::filesystem::last_write_time(file, time);
  const auto renamed = fingerprint();
  EXPECT_NE(renamed, first);

  folder_.write("model.safetensors", tensors({"a"}));
  std::filesystem::last_write_time(file, time);
  EXPECT_EQ(fingerprint(), first);
  std::filesystem::last_write_time(file, time + std::chrono::seconds(1));
  EXPECT_NE(fingerprint(), first);
  std::filesystem::last_write_time(file, time);
  folder_.write("config.json", std::string("{\"model_type\": \"y\"}"));
  EXPECT_NE(fingerprint(), first);
}

}  // namespace
}  // namespace lacuna
