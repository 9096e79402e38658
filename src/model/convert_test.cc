// SPDX-License-Identifier: Apache-2.0
// Conversions from end to end: the bytes, what stops and goes on, and what is refused.
#include "model/convert.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/mmap.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/json.h"
#include "model/convert_files.h"
#include "model/nemotron_h_bind.h"
#include "tests/support/convert_source.h"

namespace lacuna {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using test::filled;
using test::generated;
using test::TempFolder;
using test::TestTensors;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

std::string content(const fs::path& path) {
  auto text = read_text_file(path, 1 << 30);
  EXPECT_TRUE(text.ok()) << text.error().what;
  return text ? *text : "";
}

std::map<std::string, std::string> contents(const fs::path& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::directory_iterator(folder))
    files[entry.path().filename().string()] = content(entry.path());
  return files;
}

// The names of the files that are not the same in both.
std::set<std::string> different(const fs::path& a, const fs::path& b) {
  const auto of_a = contents(a), of_b = contents(b);
  std::set<std::string> names;
  for (const auto& [name, text] : of_a)
    if (!of_b.contains(name) || of_b.at(name) != text) names.insert(name);
  for (const auto& [name, text] : of_b)
    if (!of_a.contains(name)) names.insert(name);
  return names;
}

Json json_of(const fs::path& path) {
  auto json = parse_json(content(path), path.string());
  EXPECT_TRUE(json.ok()) << json.error().what;
  return json ? *json : Json();
}

class Convert : public test::ConvertSource {
 protected:
  fs::path source() const { return folder_.path() / "source"; }
  fs::path out(const std::string& name = "out") const { return folder_.path() / name; }

  void write_source() const {
    fs::create_directories(source());
    folder_.write("source/config.json", config_.dump());
    folder_.write("source/model.safetensors", tensors_);
    folder_.write("source/tokenizer.json", "{}");
    folder_.write("source/README.md", "not copied");
  }

  static ConvertOptions options() {
    ConvertOptions options;
    options.threads = 2;
    return options;
  }

  ConvertReport convert(const ConvertOptions& options, const std::string& name = "out") const {
    auto report = convert_checkpoint(source(), out(name), options);
    EXPECT_TRUE(report.ok()) << report.error().what;
    return report ? *report : ConvertReport();
  }

  void expect_error(ErrorCode code, const std::string& what, const ConvertOptions& options,
                    const std::string& name = "out") const {
    const auto refused = convert_checkpoint(source(), out(name), options);
    ASSERT_FALSE(refused.ok()) << what;
    EXPECT_EQ(refused.error().code, code) << refused.error().what;
    EXPECT_THAT(refused.error().what, HasSubstr(what));
    EXPECT_EQ(refused.error().what.find('\n'), std::string::npos);
  }

  // Several files of a few parts each, and a note of progress after every part.
  static ConvertOptions in_steps() {
    ConvertOptions steps = options();
    steps.shard_bytes = 10'000;
    steps.note_bytes = 1;
    return steps;
  }
};

// A conversion by mlx-lm, recorded by tools/record_mlx_quantize.py. Its source is made here again.
class ConvertRecorded : public ::testing::Test {
 protected:
  void SetUp() override {
    auto file = MappedFile::open("tests/data/mlx_convert.safetensors");
    ASSERT_TRUE(file.ok()) << file.error().what;
    file_ = *std::move(file);
    auto parsed = parse_safetensors(file_.bytes(), "mlx_convert.safetensors");
    ASSERT_TRUE(parsed.ok()) << parsed.error().what;
    recorded_ = *std::move(parsed);

    fs::create_directories(source());
    folder_.write("source/config.json", recorded_.metadata.at("config"));
    TestTensors tensors = test::tiny_tensors(false);
    const std::string moe = "backbone.layers.2.mixer.experts.";
    for (int e = 0; e < 3; ++e) {  // 96 neurons: no multiple of 64
      tensors[fmt::format("{}{}.up_proj.weight", moe, e)].shape = {96, 64};
      tensors[fmt::format("{}{}.down_proj.weight", moe, e)].shape = {64, 96};
    }
    test::generate_weights(tensors);
    folder_.write("source/model.safetensors", tensors);
  }
  fs::path source() const { return folder_.path() / "source"; }

  void expect_as_recorded(const std::string& run, const fs::path& folder) const {
    auto made = Checkpoint::open(folder);
    ASSERT_TRUE(made.ok()) << made.error().what;
    std::size_t tensors = 0;
    for (const TensorView& wanted : recorded_.tensors) {
      if (!wanted.name.starts_with(run + "/")) continue;
      const TensorView* found = made->find(wanted.name.substr(run.size() + 1));
      ASSERT_NE(found, nullptr) << wanted.name;
      EXPECT_EQ(found->dtype, wanted.dtype) << wanted.name;
      ASSERT_EQ(found->shape, wanted.shape) << wanted.name;
      EXPECT_EQ(std::memcmp(found->data, wanted.data, wanted.bytes), 0) << wanted.name;
      ++tensors;
    }
    EXPECT_EQ(made->tensors().size(), tensors);
    // mlx-lm does not count A_log, D and dt_bias of the Mamba layer, 4 numbers each.
    Json wanted = Json::parse(recorded_.metadata.at(run + ".index"));
    wanted["total_parameters"] = wanted["total_parameters"].get<int>() + 3 * 4;
    EXPECT_EQ(json_of(folder / "model.safetensors.index.json")["metadata"], wanted);
  }

  const TempFolder folder_;
  MappedFile file_;
  SafetensorsFile recorded_;
};

TEST_F(ConvertRecorded, AsMlxLm) {
  ConvertOptions options;
  options.format.quantizer = MlxQuantizer::kCpu;
  const fs::path out = folder_.path() / "out";
  ASSERT_TRUE(convert_checkpoint(source(), out, options).ok());
  expect_as_recorded("plain", out);
  EXPECT_EQ(json_of(out / "config.json")["quantization"],
            Json::parse(recorded_.metadata.at("plain")));
}

TEST_F(ConvertRecorded, AsMlxLmWithRules) {
  folder_.write("rules.txt",
                std::string("*.shared_experts.up_proj keep\nlm_head 8 32\n*.fc2 6 32\n"));
  ConvertOptions options;
  options.format = {4, 32, MlxQuantizer::kCpu};
  options.rules = folder_.path() / "rules.txt";
  const fs::path out = folder_.path() / "out";
  const auto report = convert_checkpoint(source(), out, options);
  ASSERT_TRUE(report.ok()) << report.error().what;
  expect_as_recorded("mixed", out);
  Json said = json_of(out / "config.json")["quantization"];
  EXPECT_EQ(said["backbone.layers.2.mixer.shared_experts.up_proj"], false);
  said.erase("backbone.layers.2.mixer.shared_experts.up_proj");
  for (auto& [key, value] : said.items())
    if (value.is_object()) value.erase("mode");
  const Json wanted = Json::parse(recorded_.metadata.at("mixed"));
  EXPECT_EQ(nlohmann::json(said), nlohmann::json(wanted));  // in any order
}

TEST_F(Convert, WhatIsWrittenLoads) {
  write_source();
  const ConvertReport report = convert(options());
  EXPECT_TRUE(report.has_head);
  EXPECT_EQ(report.files, 2u);
  EXPECT_EQ(report.bytes_before, 0u);
  std::set<std::string> names;
  for (const auto& [name, text] : contents(out())) names.insert(name);
  EXPECT_THAT(names, UnorderedElementsAre("config.json", "model.safetensors", "mtp.safetensors",
                                          "model.safetensors.index.json", "tokenizer.json"));
  auto made = Checkpoint::open(out());
  ASSERT_TRUE(made.ok()) << made.error().what;
  EXPECT_EQ(made->tensors().size(), report.tensors);
  auto config = parse_nemotron_h_config(made->config());
  ASSERT_TRUE(config.ok()) << config.error().what;
  const auto bound = bind_nemotron_h(*made, *config);
  ASSERT_TRUE(bound.ok()) << bound.error().what;
  EXPECT_TRUE(bound->has_mtp);
  EXPECT_EQ(bound->parameters, main_parameters(*config));
  EXPECT_EQ(json_of(out() / "model.safetensors.index.json")["metadata"]["total_parameters"],
            main_parameters(*config));
}

TEST_F(Convert, TheSameBytesWhateverTheThreads) {
  write_source();
  ConvertOptions one = options();
  one.threads = 1;
  convert(one, "one");
  convert(options());
  EXPECT_THAT(different(out("one"), out()), IsEmpty());
}

// Takes a module's FP8 codes apart by hand, and expects what those numbers as BF16 give.
TEST_F(Convert, Fp8IsWhatItsBf16ValuesGive) {
  const float scale = 0.0123f;
  TestTensors plain = tensors_;
  for (const std::string module :
       {"backbone.layers.0.mixer.in_proj", "backbone.layers.2.mixer.experts.1.up_proj",
        "backbone.layers.1.mixer.k_proj"}) {
    test::TestTensor& weight = tensors_[module + ".weight"];
    test::TestTensor& values = plain[module + ".weight"];
    const std::size_t count = weight.bytes.size() / 2;
    std::string codes(count, '\0');
    for (std::size_t i = 0; i < count; ++i) {
      int code = static_cast<int>((i * 37 + i / 64) % 256);
      if ((code & 0x7F) == 0x7F) code ^= 1;  // no NaN
      codes[i] = static_cast<char>(code);
      const int exponent = (code >> 3) & 15, mantissa = code & 7;
      const float size = exponent > 0
                             ? std::ldexp(1 + static_cast<float>(mantissa) / 8, exponent - 7)
                             : std::ldexp(static_cast<float>(mantissa) / 8, -6);
      const std::uint16_t half = f32_to_bf16((code < 128 ? size : -size) * scale);
      std::memcpy(&values.bytes[2 * i], &half, 2);
    }
    weight = {Dtype::kF8E4M3, weight.shape, codes};
    tensors_[module + ".weight_scale"] = filled(Dtype::kF32, {}, scale);
    tensors_[module + ".input_scale"] = filled(Dtype::kF32, {}, 1);
  }
  folder_.write("rules.txt", std::string("*.k_proj keep\n"));
  ConvertOptions kept = options();
  kept.rules = folder_.path() / "rules.txt";
  config_["quantization_config"] = {{"quant_method", "modelopt"}, {"quant_algo", "FP8"}};
  write_source();
  convert(kept);
  config_.erase("quantization_config");
  tensors_ = plain;
  write_source();
  convert(kept, "plain");
  EXPECT_THAT(different(out(), out("plain")), IsEmpty());
  EXPECT_FALSE(json_of(out() / "config.json")["quantization_config"].contains("quant_method"));
}

// Values that stay have the source's dtype, but for the router's bias.
TEST_F(Convert, DtypesPassThrough) {
  const std::string moe = "backbone.layers.2.mixer.gate.";
  tensors_["backbone.layers.0.mixer.A_log"] = generated("A", {4}, Dtype::kF32);
  tensors_[moe + "e_score_correction_bias"] = generated("b", {3}, Dtype::kBf16);
  tensors_["lm_head.weight"] = generated("l", {32, 64}, Dtype::kF32);
  tensors_["backbone.embeddings.weight"] = filled(Dtype::kF16, {32, 64}, 1);
  write_source();
  convert(options());
  const auto made = Checkpoint::open(out());
  ASSERT_TRUE(made.ok());
  const auto dtype = [&](const std::string& name) { return made->find(name)->dtype; };
  EXPECT_EQ(dtype("backbone.layers.0.mixer.A_log"), Dtype::kF32);
  EXPECT_EQ(dtype("backbone.layers.0.mixer.D"), Dtype::kBf16);
  EXPECT_EQ(dtype(moe + "e_score_correction_bias"), Dtype::kF32);
  EXPECT_EQ(dtype("lm_head.scales"), Dtype::kF32);
  EXPECT_EQ(dtype("backbone.embeddings.biases"), Dtype::kF16);
}

TEST_F(Convert, AConfigKeepsItsInfinity) {
  config_["time_step_limit"] = {0.0, std::numeric_limits<double>::infinity()};
  write_source();
  folder_.write("source/config.json", python_json(config_, 1));
  convert(options());
  EXPECT_THAT(content(out() / "config.json"), HasSubstr("0.0,\n    Infinity\n"));
}

TEST(PythonJson, AsPythonWritesIt) {
  const Json value = Json::parse(
      R"({"a": [1, 2.5, 1e-05, true, null], "e": {}, "l": [], "s": "ü\n\"", "n": {"x": -3}})");
  EXPECT_EQ(python_json(value, 2),
            "{\n  \"a\": [\n    1,\n    2.5,\n    1e-05,\n    true,\n    null\n  ],\n  \"e\": {},\n"
            "  \"l\": [],\n  \"s\": \"\\u00fc\\n\\\"\",\n  \"n\": {\n    \"x\": -3\n  }\n}");
  EXPECT_EQ(python_json(Json(-std::numeric_limits<double>::infinity()), 1), "-Infinity");
  EXPECT_EQ(python_json(Json(std::nan("")), 1), "NaN");
}

// Stopped after every part in turn, and gone on with: the same bytes.
TEST_F(Convert, GoesOnWhereItWasStopped) {
  write_source();
  const ConvertReport whole = convert(in_steps(), "whole");
  EXPECT_GT(whole.files, 3u);
  int steps = 0;
  ConvertOptions counting = in_steps();
  counting.force = true;
  counting.on_progress = [&](auto...) { ++steps; };
  convert(counting, "whole");
  ASSERT_GT(steps, 20);
  for (int stop = 1; stop < steps; stop += 3) {
    std::atomic<bool> cancel{false};
    int seen = 0;
    ConvertOptions stopped = in_steps();
    stopped.cancel = &cancel;
    stopped.on_progress = [&](auto...) { cancel = ++seen == stop; };
    const std::string name = fmt::format("stopped{}", stop);
    expect_error(ErrorCode::kCancelled, "the same command goes on", stopped, name);
    EXPECT_FALSE(fs::exists(out(name) / "config.json"));  // no model yet
    std::uint64_t first = 0;
    ConvertOptions again = in_steps();
    again.on_progress = [&](std::uint64_t done, std::uint64_t total) {
      if (first == 0) first = done;
      EXPECT_LE(done, total);
    };
    const ConvertReport report = convert(again, name);
    EXPECT_EQ(report.bytes, whole.bytes);
    if (stop > 2) {
      EXPECT_GT(report.bytes_before, 0u) << stop;
    }
    EXPECT_GE(first, report.bytes_before);
    EXPECT_THAT(different(out(name), out("whole")), IsEmpty()) << stop;
  }
}

// A stopped conversion in out(), a third of the way.
class ConvertStopped : public Convert {
 protected:
  void SetUp() override {
    write_source();
    std::atomic<bool> cancel{false};
    ConvertOptions stopped = in_steps();
    stopped.cancel = &cancel;
    stopped.on_progress = [&](std::uint64_t done, std::uint64_t total) {
      cancel = done * 3 > total;
    };
    expect_error(ErrorCode::kCancelled, "interrupted", stopped);
    convert(in_steps(), "whole");
  }
  void expect_whole() const { EXPECT_THAT(different(out(), out("whole")), IsEmpty()); }
  fs::path note() const { return out() / "convert.progress.json"; }
};

TEST_F(ConvertStopped, OtherOptionsDoNotMix) {
  const auto usage = ErrorCode::kInvalidArgument;
  const std::string unfinished = "holds an unfinished conversion of another source";
  const auto changed = [](const auto& change) {
    ConvertOptions options = in_steps();
    change(options);
    return options;
  };
  expect_error(usage, unfinished, changed([](auto& o) { o.format.bits = 8; }));
  expect_error(usage, unfinished,
               changed([](auto& o) { o.format.quantizer = MlxQuantizer::kCpu; }));
  expect_error(usage, unfinished, changed([](auto& o) { o.head = HeadMode::kOff; }));
  expect_error(usage, unfinished, changed([](auto& o) { o.shard_bytes = 20'000; }));
  convert(changed([](auto& o) { o.threads = 1; }));  // makes no difference
  expect_whole();
}

TEST_F(ConvertStopped, AnotherSourceDoesNotMix) {
  tensors_["lm_head.weight"] = filled(Dtype::kBf16, {32, 64}, 0.5f);
  write_source();
  expect_error(ErrorCode::kInvalidArgument, "of another source", in_steps());
  ConvertOptions force = in_steps();
  force.force = true;
  EXPECT_EQ(convert(force).bytes_before, 0u);
  convert(in_steps(), "other");
  EXPECT_THAT(different(out(), out("other")), IsEmpty());
}

TEST_F(ConvertStopped, ADamagedNoteIsRefused) {
  for (const char* text : {"", "{", "[]", "{\"conversion\": 1}", "\xff"}) {
    folder_.write("out/convert.progress.json", std::string(text));
    expect_error(ErrorCode::kInvalidArgument, "--force", in_steps());
  }
}

TEST_F(ConvertStopped, AShorterFileThanNotedIsMadeAgain) {
  for (const auto& entry : fs::directory_iterator(out()))
    if (entry.path().extension() == ".partial") fs::resize_file(entry.path(), 100);
  convert(in_steps());
  expect_whole();
}

TEST_F(ConvertStopped, AfterABootOnlyWholeFilesCount) {
  Json note = json_of(this->note());
  note["boot"] = "another";
  folder_.write("out/convert.progress.json", note.dump());
  for (const auto& entry : fs::directory_iterator(out())) {  // as a crash may leave it
    if (entry.path().extension() == ".partial")
      folder_.write("out/" + entry.path().filename().string(),
                    std::string(fs::file_size(entry.path()), '\0'));
  }
  EXPECT_GT(convert(in_steps()).bytes_before, 0u);
  expect_whole();
}

TEST_F(ConvertStopped, AMissingFileIsMadeAgain) {
  for (const auto& [name, text] : contents(out()))
    if (name.ends_with("safetensors")) fs::remove(out() / name);
  convert(in_steps());
  expect_whole();
}

TEST_F(Convert, AFolderInUseStaysAsItIs) {
  write_source();
  const auto usage = ErrorCode::kInvalidArgument;
  folder_.write("notes.txt", std::string("mine"));
  fs::create_directories(out());
  folder_.write("out/notes.txt", std::string("mine"));
  ConvertOptions o = options();
  for (const bool force : {false, true}) {
    o.force = force;
    expect_error(usage, "new or empty folder", o);
    expect_error(usage, "is no folder", o, "notes.txt");
    expect_error(usage, "is the source itself", o, "source");
    EXPECT_EQ(contents(out()).size(), 1u);
  }
  fs::create_directory_symlink(source(), out("link"));
  expect_error(usage, "is the source itself", o, "link");
}

TEST_F(Convert, ForceReplacesAConversion) {
  write_source();
  convert(in_steps());
  expect_error(ErrorCode::kInvalidArgument, "holds a checkpoint, wanted --force", options());
  ConvertOptions force = options();
  force.force = true;
  force.head = HeadMode::kOff;
  convert(force);
  convert(force, "fresh");
  EXPECT_THAT(different(out(), out("fresh")), IsEmpty());  // no shard, no head of before
}

TEST_F(Convert, NamesTheRowThatCannotBe) {
  const auto spoil = [&](const std::string& name, std::size_t row, std::uint16_t bits) {
    test::TestTensor& tensor = tensors_[name];
    const auto width = static_cast<std::size_t>(tensor.shape.back());
    std::memcpy(&tensor.bytes[(row * width + 5) * 2], &bits, 2);
    write_source();
  };
  const std::string expert = "backbone.layers.2.mixer.experts.1.up_proj.weight";
  const auto whole = tensors_;
  spoil(expert, 17, 0x7FC0);
  expect_error(ErrorCode::kCorrupt, expert + ": row 17 holds a NaN", options(), "nan");
  tensors_ = whole;
  spoil("backbone.layers.2.mixer.gate.weight", 2, 0xFF80);
  expect_error(ErrorCode::kCorrupt, "gate.weight: row 2 holds a NaN, an infinity", options(),
               "inf");
}

TEST_F(Convert, SourcesAreChecked) {
  expect_error(ErrorCode::kNotFound, "source: no such folder", options());
  write_source();
  fs::resize_file(source() / "model.safetensors", 50'000);
  expect_error(ErrorCode::kCorrupt, "model.safetensors", options());
  write_source();
  ConvertOptions rules = options();
  rules.rules = folder_.path() / "none.txt";
  expect_error(ErrorCode::kInvalidArgument, "--rules: ", rules);
  EXPECT_FALSE(fs::exists(out()));
}

class ConvertHead : public Convert {
 protected:
  static ConvertOptions only() {
    ConvertOptions only = options();
    only.head = HeadMode::kOnly;
    return only;
  }
};

TEST_F(ConvertHead, IsTheOneOfAWholeConversion) {
  write_source();
  convert(options(), "whole");
  EXPECT_TRUE(convert(only()).has_head);  // alone, into a new folder
  EXPECT_EQ(contents(out()).size(), 1u);
  ConvertOptions off = options();
  off.head = HeadMode::kOff;
  EXPECT_FALSE(convert(off, "without").has_head);
  EXPECT_FALSE(fs::exists(out("without") / "mtp.safetensors"));
  convert(only(), "without");  // beside a checkpoint
  EXPECT_THAT(different(out("without"), out("whole")), IsEmpty());
  EXPECT_TRUE(content(out() / "mtp.safetensors") == content(out("whole") / "mtp.safetensors"));
}

TEST_F(ConvertHead, MustFitTheCheckpoint) {
  write_source();
  const auto usage = ErrorCode::kInvalidArgument;
  ConvertOptions eight = options();
  eight.format.bits = 8;
  eight.head = HeadMode::kOff;
  convert(eight);
  expect_error(usage, "mtp.layers.0.eh_proj has 8 bits in groups of 64, wanted the 4", only());
  EXPECT_FALSE(fs::exists(out() / "mtp.safetensors"));
  ConvertOptions fits = only();
  fits.format.bits = 8;
  convert(fits);
  expect_error(usage, "mtp.safetensors: is there, wanted --force", fits);
  fits.force = true;
  convert(fits);

  Json other = json_of(out() / "config.json");
  other["n_routed_experts"] = 2;
  folder_.write("out/config.json", other.dump());
  expect_error(usage, "is of another model", fits);
  fs::create_directories(out("busy"));
  folder_.write("busy/notes.txt", std::string("mine"));
  expect_error(usage, "is not empty and no checkpoint", fits, "busy");
  expect_error(usage, "is the source itself", only(), "source");
}

TEST_F(ConvertHead, ACancelLeavesNothing) {
  write_source();
  std::atomic<bool> cancel{true};
  ConvertOptions stopped = only();
  stopped.cancel = &cancel;
  expect_error(ErrorCode::kCancelled, "nothing was kept", stopped);
  EXPECT_FALSE(fs::exists(out()));
  fs::create_directories(out());
  expect_error(ErrorCode::kCancelled, "nothing was kept", stopped);
  EXPECT_THAT(contents(out()), IsEmpty());
}

}  // namespace
}  // namespace lacuna
