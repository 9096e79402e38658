// SPDX-License-Identifier: Apache-2.0
#include "decode/logits_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace lacuna {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class LogitsFileTest : public ::testing::Test {
 protected:
  LogitsFileTest()
      : folder_(fs::temp_directory_path() / ("lacuna_logits_" + std::to_string(::getpid()))) {
    fs::create_directories(folder_);
    windows_ = eval_windows(tokens_, 3, 0);
    for (int i = 0; i < 24; ++i) logits_.push_back(static_cast<float>(i) * 0.25f);
  }
  ~LogitsFileTest() override { fs::remove_all(folder_); }

  fs::path path() const { return folder_ / "logits.safetensors"; }
  std::size_t files() const {
    return std::distance(fs::directory_iterator(folder_), fs::directory_iterator());
  }

  void save() {
    auto writer = LogitsWriter::create(path(), windows_, 3, 4);
    ASSERT_TRUE(writer.ok()) << writer.error().what;
    ASSERT_TRUE(writer->add(std::span(logits_).first(8)).ok());
    ASSERT_TRUE(writer->add(std::span(logits_).subspan(8)).ok());
    const auto committed = writer->commit();
    ASSERT_TRUE(committed.ok()) << committed.error().what;
  }

  std::string read() const {
    std::ifstream in(path(), std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  void write(const std::string& bytes) const { std::ofstream(path(), std::ios::binary) << bytes; }

  // The error of a file with this header and room for its data.
  std::string error_of(const std::string& header, std::size_t data_bytes = 144) const {
    std::uint64_t size = header.size();
    std::string bytes(8, '\0');
    std::memcpy(bytes.data(), &size, 8);
    write(bytes + header + std::string(data_bytes, '\0'));
    const auto file = LogitsFile::open(path());
    return file.ok() ? "ok" : file.error().what;
  }

  fs::path folder_;
  std::vector<int> tokens_ = {5, 6, 7, 8, 9, 10, 11};
  std::vector<EvalWindow> windows_;
  std::vector<float> logits_;  // [6, 4]
};

TEST_F(LogitsFileTest, ComesBackAsItWas) {
  save();
  const auto file = LogitsFile::open(path());
  ASSERT_TRUE(file.ok()) << file.error().what;
  EXPECT_EQ(file->rows(), 6u);
  EXPECT_EQ(file->vocabulary(), 4);
  EXPECT_TRUE(file->check_same(windows_, 3, 4).ok());
  EXPECT_EQ(file->row(5), std::vector<float>(logits_.end() - 4, logits_.end()));
  EXPECT_EQ(files(), 1u);
}

TEST_F(LogitsFileTest, NothingIsLeftOfAnUnfinishedFile) {
  write("what was there before");
  {
    auto writer = LogitsWriter::create(path(), windows_, 3, 4);
    ASSERT_TRUE(writer.ok());
    ASSERT_TRUE(writer->add(std::span(logits_).first(8)).ok());
    EXPECT_EQ(files(), 2u);
    const auto committed = writer->commit();
    ASSERT_FALSE(committed.ok());
    EXPECT_THAT(committed.error().what, HasSubstr("16 logits are missing"));
    EXPECT_FALSE(writer->add(std::vector<float>(17)).ok());
  }
  EXPECT_EQ(files(), 1u);
  EXPECT_EQ(read(), "what was there before");
}

TEST_F(LogitsFileTest, FolderThatIsNotThere) {
  const auto writer = LogitsWriter::create(folder_ / "no" / "file", windows_, 3, 4);
  ASSERT_FALSE(writer.ok());
  EXPECT_EQ(writer.error().code, ErrorCode::kIo);
  EXPECT_THAT(writer.error().what, HasSubstr("No such file"));
  const auto file = LogitsFile::open(folder_ / "none");
  ASSERT_FALSE(file.ok());
  EXPECT_EQ(file.error().code, ErrorCode::kNotFound);
}

TEST_F(LogitsFileTest, OtherTextsAreRefused) {
  save();
  const auto file = LogitsFile::open(path());
  ASSERT_TRUE(file.ok());
  const auto what = [&](const std::vector<int>& tokens, int window, int vocabulary) {
    const auto same = file->check_same(eval_windows(tokens, window, 0), window, vocabulary);
    return same.ok() ? "ok" : same.error().what;
  };
  EXPECT_THAT(what(tokens_, 3, 5), HasSubstr("vocabulary of 4, the model has 5"));
  EXPECT_THAT(what(tokens_, 2, 4), HasSubstr("windows of 3, want 2"));
  EXPECT_THAT(what({5, 6, 7, 8}, 3, 4), HasSubstr("6 rows, the text has 3"));
  EXPECT_THAT(what({5, 6, 7, 8, 9, 10, 12}, 3, 4), HasSubstr("token 10 predicts 11 at row 5"));
}

TEST_F(LogitsFileTest, EveryTruncationIsRefused) {
  save();
  const std::string whole = read();
  for (std::size_t n = 0; n < whole.size(); ++n) {
    write(whole.substr(0, n));
    const auto file = LogitsFile::open(path());
    ASSERT_FALSE(file.ok()) << n;
    EXPECT_EQ(file.error().code, ErrorCode::kCorrupt) << n;
  }
}

TEST_F(LogitsFileTest, HostileHeaders) {
  const std::string meta = R"("__metadata__":{"window":"3"},)";
  const std::string inputs = R"("inputs":{"dtype":"I32","shape":[6],"data_offsets":[0,24]},)";
  const std::string targets = R"("targets":{"dtype":"I32","shape":[6],"data_offsets":[24,48]},)";
  const std::string logits = R"("logits":{"dtype":"F32","shape":[6,4],"data_offsets":[48,144]})";
  const auto with_logits = [&](const std::string& text) {
    return error_of("{" + meta + inputs + targets + "\"logits\":" + text + "}");
  };
  EXPECT_EQ(error_of("{" + meta + inputs + targets + logits + "}"), "ok");

  EXPECT_THAT(error_of("[]"), HasSubstr("not a JSON object"));
  EXPECT_THAT(error_of("{{{{"), HasSubstr("not a JSON object"));
  EXPECT_THAT(error_of("{}"), HasSubstr("\"window\""));
  EXPECT_THAT(error_of(R"({"__metadata__":{"window":"-3"}})"), HasSubstr("\"window\""));
  EXPECT_THAT(error_of(R"({"__metadata__":{"window":3}})"), HasSubstr("\"window\""));
  EXPECT_THAT(error_of("{" + meta + inputs + logits + "}"), HasSubstr("targets: missing"));
  EXPECT_THAT(with_logits("7"), HasSubstr("logits: want dtype"));
  EXPECT_THAT(with_logits(R"({"dtype":"F16","shape":[6,4],"data_offsets":[48,144]})"),
              HasSubstr("dtype \"F16\", want F32"));
  EXPECT_THAT(with_logits(R"({"dtype":"F32","shape":[24],"data_offsets":[48,144]})"),
              HasSubstr("rank 1, want 2"));
  EXPECT_THAT(with_logits(R"({"dtype":"F32","shape":[6,4],"data_offsets":[48,140]})"),
              HasSubstr("want 96 bytes"));
  EXPECT_THAT(with_logits(R"({"dtype":"F32","shape":[6,4],"data_offsets":[144,48]})"),
              HasSubstr("want 96 bytes"));
  EXPECT_THAT(with_logits(R"({"dtype":"F32","shape":[6,4],"data_offsets":[64,160]})"),
              HasSubstr("within 144"));
  EXPECT_THAT(with_logits(R"({"dtype":"F32","shape":[-6,4],"data_offsets":[48,144]})"),
              HasSubstr("logits"));
  EXPECT_THAT(
      with_logits(R"({"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[48,48]})"),
      HasSubstr("shape"));
  EXPECT_THAT(with_logits(R"({"dtype":"F32","shape":[3,8],"data_offsets":[48,144]})"),
              HasSubstr("6 inputs and 6 targets for 3 rows"));
  EXPECT_THAT(with_logits(R"({"dtype":"F32","shape":[6,0],"data_offsets":[48,48]})"),
              HasSubstr("vocabulary of 0"));
}

}  // namespace
}  // namespace lacuna
