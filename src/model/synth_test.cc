// SPDX-License-Identifier: Apache-2.0
// Synthetic checkpoints: what is written, that it runs, and that neurons are live as asked.
#include "model/synth.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "base/mmap.h"
#include "checkpoint/checkpoint.h"
#include "lacuna/engine.h"
#include "lacuna/session.h"
#include "lacuna/trace.h"
#include "model/inspect.h"
#include "model/synth_plan.h"
#include "tests/support/tiny_nemotron.h"
#include "text/tokenizer.h"

namespace lacuna {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using test::TempFolder;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr const char* kBundled = "models/tiny-nemotron-h/mlx-4bit";

// Wide enough for the law of large numbers, small enough to be written in a moment.
Json small_shape() {
  Json config = test::tiny_config();
  config.update({{"vocab_size", 8192},
                 {"hidden_size", 512},
                 {"hybrid_override_pattern", "ME*EM-ME"},
                 {"n_routed_experts", 6},
                 {"moe_intermediate_size", 256},
                 {"moe_shared_expert_intermediate_size", 512},
                 {"intermediate_size", 512},
                 {"max_position_embeddings", 2048}});
  return config;
}

// A folder for the shape's config.json and for what is written.
class Synth : public ::testing::Test {
 protected:
  SynthOptions options(const Json& shape = small_shape()) {
    temporary_.write("shape.json", shape.dump());
    SynthOptions options;
    options.shape.shape = (temporary_.path() / "shape.json").string();
    options.tokenizer_from = kBundled;
    options.threads = 2;
    return options;
  }
  fs::path folder(const std::string& name = "out") const { return temporary_.path() / name; }

  SynthReport write(const SynthOptions& options, const std::string& name = "out") {
    auto report = write_synthetic(folder(name), options);
    EXPECT_TRUE(report.ok()) << report.error().what;
    return report ? *report : SynthReport();
  }
  void expect_error(const SynthOptions& options, ErrorCode code, const std::string& text) {
    const auto report = write_synthetic(folder(), options);
    ASSERT_FALSE(report.ok());
    EXPECT_EQ(report.error().code, code) << report.error().what;
    EXPECT_THAT(report.error().what, HasSubstr(text));
    EXPECT_EQ(report.error().what.find('\n'), std::string::npos);
    EXPECT_FALSE(fs::exists(folder())) << report.error().what;
  }
  std::string content(const std::string& name, const std::string& of = "out") const {
    auto text = read_text_file(folder(of) / name, 1 << 30);
    EXPECT_TRUE(text.ok()) << text.error().what;
    return text ? *text : "";
  }
  std::set<std::string> names(const std::string& of = "out") const {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder(of)))
      names.insert(entry.path().filename().string());
    return names;
  }

  TempFolder temporary_;
};

// Live shares of each layer, routed and shared (where dense MLPs count), over a text.
struct Share {
  double routed = 0, shared = 0;
};
std::map<int, Share> live_shares(const fs::path& folder, const fs::path& cache) {
  EngineOptions options;
  options.cache_dir = cache;
  options.threads = 2;
  auto engine = Engine::open(folder, options);
  EXPECT_TRUE(engine.ok()) << engine.error().what;
  if (!engine.ok()) return {};
  std::string text = *read_text_file("models/val_prose.txt");
  text.resize(4000);
  const std::vector<int> tokens = (*engine)->tokenizer().encode(text);
  Trace trace;
  SessionOptions session_options;
  session_options.trace = &trace;
  auto session = (*engine)->new_session(session_options);
  EXPECT_TRUE(session.ok());
  EXPECT_TRUE((*session)->sync(tokens).ok());
  std::map<int, Counters> counters;
  for (const TraceStep& step : trace.steps())
    counters[step.layer] = counters[step.layer] + step.counters;
  std::map<int, Share> shares;
  for (const auto& [layer, c] : counters) {
    const auto ratio = [](std::uint64_t part, std::uint64_t all) {
      return all == 0 ? 0.0 : static_cast<double>(part) / static_cast<double>(all);
    };
    if (c.neurons == 0) continue;
    shares[layer] = {ratio(c.live_neurons - c.shared_live_neurons, c.neurons - c.shared_neurons),
                     ratio(c.shared_live_neurons, c.shared_neurons)};
  }
  return shares;
}

// A quarter off, or 0.7 points.
void expect_near(double found, double wanted, const std::string& what) {
  EXPECT_NEAR(found, wanted, std::max(0.25 * wanted, 0.007)) << what;
}

TEST_F(Synth, NeuronsAreLiveAsPublished) {
  write(options());
  const auto shares = live_shares(folder(), folder("cache"));
  ASSERT_EQ(shares.size(), 4u);
  const LiveProfile published;
  for (const int layer : {1, 3, 7}) {
    expect_near(shares.at(layer).routed, published.routed(layer / 7.0), "routed");
    expect_near(shares.at(layer).shared, published.shared(layer / 7.0), "shared");
  }
  expect_near(shares.at(5).shared, published.shared(5 / 7.0), "dense MLP");
}

TEST_F(Synth, NeuronsAreLiveAsAsked) {
  for (const auto& [live, wanted] : std::map<std::string, Share>{
           {"0.02,0.2", {0.02, 0.2}}, {"0.5", {0.5, 0.5}}, {"0.9", {0.9, 0.9}}}) {
    SynthOptions o = options();
    o.live = live;
    o.force = true;
    write(o);
    const auto shares = live_shares(folder(), folder("cache"));
    for (const int layer : {1, 3, 7}) {
      expect_near(shares.at(layer).routed, wanted.routed, live + " routed");
      expect_near(shares.at(layer).shared, wanted.shared, live + " shared");
    }
  }
}

TEST_F(Synth, LatentExpertsToo) {
  Json shape = small_shape();
  shape["moe_latent_size"] = 256;
  shape["norm_topk_prob"] = false;
  write(options(shape));
  const LiveProfile published;
  const auto shares = live_shares(folder(), folder("cache"));
  for (const int layer : {1, 3, 7}) {
    expect_near(shares.at(layer).routed, published.routed(layer / 7.0), "routed");
    expect_near(shares.at(layer).shared, published.shared(layer / 7.0), "shared");
  }
}

TEST_F(Synth, TheSameSeedGivesTheSameBytes) {
  SynthOptions o = options();
  o.threads = 1;
  write(o, "one");
  o.threads = 3;
  write(o, "three");
  for (const std::string& name : names("one"))
    EXPECT_EQ(content(name, "one"), content(name, "three")) << name;
  o.seed = 2;
  write(o, "other");
  EXPECT_NE(content("model.safetensors", "one"), content("model.safetensors", "other"));
}

TEST_F(Synth, FilesAreAnMlxConversions) {
  SynthOptions o = options();
  o.shard_bytes = 3'000'000;
  const SynthReport report = write(o);
  EXPECT_GT(report.files, 1u);
  const std::set<std::string> found = names();
  EXPECT_EQ(found.size(), report.files + 6);
  EXPECT_EQ(found.count(fmt::format("model-00001-of-{:05}.safetensors", report.files)), 1u);
  for (const char* name :
       {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json"})
    EXPECT_EQ(content(name), *read_text_file(fs::path(kBundled) / name)) << name;

  auto checkpoint = Checkpoint::open(folder());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().what;
  EXPECT_EQ(checkpoint->tensors().size(), report.tensors);
  for (const Checkpoint::File& file : checkpoint->files()) {
    EXPECT_LT(file.bytes, 3'100'000u);
    EXPECT_EQ(file.metadata.at("format"), "mlx");
    EXPECT_EQ(file.metadata.at("lacuna_synthetic"), report.description);
  }
  // Names and dtypes as in the bundled conversion, for the layers that both have.
  auto bundled = Checkpoint::open(kBundled);
  ASSERT_TRUE(bundled.ok());
  for (const std::string layer : {"backbone.layers.0.", "backbone.layers.1."}) {
    for (const auto& [name, tensor] : bundled->tensors()) {
      if (!name.starts_with(layer)) continue;
      const TensorView* own = checkpoint->find(name);
      ASSERT_NE(own, nullptr) << name;
      EXPECT_EQ(own->dtype, tensor.dtype) << name;
      EXPECT_EQ(own->shape.size(), tensor.shape.size()) << name;
    }
  }
}

TEST_F(Synth, NobodyTakesItForARealModel) {
  SynthOptions o = options();
  o.seed = 7;
  const SynthReport report = write(o);
  EXPECT_THAT(report.description, HasSubstr("synthetic weights"));
  EXPECT_THAT(report.description, HasSubstr("shape.json, 8 layers ME*EM-ME, 6 routed experts"));
  EXPECT_THAT(report.description, HasSubstr("live published, seed 7"));
  const auto inspected = inspect_checkpoint(folder());
  ASSERT_TRUE(inspected.ok());
  EXPECT_EQ(inspected->synthetic, report.description);
  EXPECT_EQ(inspected->problem, "");
  EXPECT_EQ(inspected->bytes, report.bytes);
}

TEST_F(Synth, TheDraftingHeadIsASideFile) {
  Json shape = small_shape();
  shape["num_nextn_predict_layers"] = 1;
  SynthOptions o = options(shape);
  write(o, "without");
  EXPECT_EQ(inspect_checkpoint(folder("without"))->head, InspectReport::Head::kNone);
  o.shape.mtp = true;
  write(o);
  const auto inspected = inspect_checkpoint(folder());
  ASSERT_TRUE(inspected.ok());
  EXPECT_EQ(inspected->problem, "");
  EXPECT_EQ(inspected->head, InspectReport::Head::kPresent);
  EXPECT_EQ(inspected->head_file, "mtp.safetensors");
  // The main model's bytes do not depend on it.
  EXPECT_EQ(content("model.safetensors.index.json"),
            content("model.safetensors.index.json", "without"));

  auto own = Checkpoint::open(folder()), bundled = Checkpoint::open(kBundled);
  ASSERT_TRUE(own.ok() && bundled.ok());
  std::set<std::string> names, wanted;
  for (const auto& [name, tensor] : own->tensors())
    if (name.starts_with("mtp.")) names.insert(name);
  for (const auto& [name, tensor] : bundled->tensors())
    if (name.starts_with("mtp.")) wanted.insert(name);
  EXPECT_EQ(names, wanted);
}

TEST_F(Synth, RoutersDoNotAnswerToWhatAllTokensShare) {
  write(options());
  auto checkpoint = Checkpoint::open(folder());
  ASSERT_TRUE(checkpoint.ok());
  const TensorView* gate = checkpoint->find("backbone.layers.1.mixer.gate.weight");
  ASSERT_NE(gate, nullptr);
  for (int e = 0; e < 6; ++e) {
    double sum = 0, squares = 0;
    for (int i = 0; i < 512; ++i) {
      std::uint16_t half;
      std::memcpy(&half, gate->data + 2 * (e * 512 + i), 2);
      sum += bf16_to_f32(half);
      squares += bf16_to_f32(half) * bf16_to_f32(half);
    }
    EXPECT_NEAR(sum, 0, 0.02);
    EXPECT_NEAR(std::sqrt(squares), 1.7, 0.3);
  }
}

TEST(SynthShape, LightningAddsUp) {
  auto config = choose_shape({});
  ASSERT_TRUE(config.ok()) << config.error().what;
  EXPECT_EQ(pattern_text(config->layers), "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME");
  EXPECT_EQ(main_parameters(*config), 31'577'940'288u);
  auto plan = plan_synthetic(*config, {});
  ASSERT_TRUE(plan.ok()) << plan.error().what;
  std::uint64_t tensors = 0, bytes = 0, quantized = 0;
  for (const SynthPart& part : plan->model) {
    tensors += part.tensors.size();
    for (const OutputTensor& tensor : part.tensors) {
      bytes += tensor.bytes();
      quantized += part.quantized() ? tensor.bytes() : 0;
    }
  }
  EXPECT_EQ(tensors, 729u);
  EXPECT_EQ(quantized, 17'757'605'376u);
  EXPECT_NEAR(static_cast<double>(bytes - quantized), 17.7e6, 0.1e6);
  EXPECT_TRUE(plan->head.empty());

  ShapeOptions with_head;
  with_head.mtp = true;
  std::uint64_t head = 0;
  config = choose_shape(with_head);
  plan = plan_synthetic(*config, {});
  for (const SynthPart& part : plan->head)
    for (const OutputTensor& tensor : part.tensors) head += tensor.bytes();
  EXPECT_EQ(head, 751'635'200u);
}

TEST(SynthShape, EveryReleaseCanBePlanned) {
  const std::map<std::string, std::pair<std::string, double>> releases = {
      {"nano", {"MEMEM*E", 31.58e9}},
      {"super", {"MEMEMEM*E", 120e9}},
      {"ultra", {"MEMEMEM*E", 550e9}}};
  for (const auto& [name, wanted] : releases) {
    ShapeOptions options;
    options.shape = name;
    const auto config = choose_shape(options);
    ASSERT_TRUE(config.ok()) << config.error().what;
    EXPECT_TRUE(pattern_text(config->layers).starts_with(wanted.first)) << name;
    EXPECT_EQ(config->layers.back(), LayerKind::kMoe);
    EXPECT_NEAR(static_cast<double>(main_parameters(*config)), wanted.second, 0.03 * wanted.second);
    EXPECT_TRUE(plan_synthetic(*config, {}).ok()) << name;
    const auto read = parse_nemotron_h_config(shape_json(*config, Json::object()));
    ASSERT_TRUE(read.ok()) << read.error().what;
    EXPECT_EQ(main_parameters(*read), main_parameters(*config));
  }
}

TEST(SynthShape, CutToSize) {
  ShapeOptions options;
  options.layers = 3;
  options.experts = 8;
  auto config = choose_shape(options);
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(pattern_text(config->layers), "MEM");
  EXPECT_EQ(config->experts, 8);
  options.pattern = "E*EE";
  config = choose_shape(options);
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(pattern_text(config->layers), "E*E");
}

TEST(LiveProfile, Texts) {
  const auto published = parse_live_profile("published");
  ASSERT_TRUE(published.ok());
  EXPECT_NEAR(published->routed(0), 0.03, 1e-12);
  EXPECT_NEAR(published->routed(0.5), 0.06, 1e-12);
  EXPECT_NEAR(published->shared(1), 0.09, 1e-12);
  const auto two = parse_live_profile("0.05,0.12");
  ASSERT_TRUE(two.ok());
  EXPECT_NEAR(two->routed(0.3), 0.05, 1e-12);
  EXPECT_NEAR(two->shared(0.8), 0.12, 1e-12);
  for (const char* text : {"", "0", "1", "1.5", "-0.1", "x", "0.1,", ",0.1", "0.1,0.2,0.3", "0.1 ",
                           "nan", "inf", "0.1;0.2", "Published"}) {
    const auto refused = parse_live_profile(text);
    ASSERT_FALSE(refused.ok()) << text;
    EXPECT_THAT(refused.error().what, HasSubstr(std::string("--live: ") + text));
  }
}

TEST_F(Synth, RefusesShapesThatAreNone) {
  const auto with = [&](const auto& change) {
    SynthOptions o = options();
    change(o);
    return o;
  };
  const auto usage = ErrorCode::kInvalidArgument;
  expect_error(with([](auto& o) { o.shape.shape = "thunder"; }), usage,
               "--shape: thunder, wanted lightning");
  expect_error(with([](auto& o) { o.shape.pattern = "MEX"; }), usage, "--pattern: layer 2 is 'X'");
  expect_error(with([](auto& o) { o.shape.pattern = "M\nE"; }), usage, "--pattern: layer 1");
  expect_error(with([](auto& o) { o.shape.layers = 9; }), usage,
               "--layers: 9, wanted 1 to the shape's 8");
  expect_error(with([](auto& o) { o.shape.experts = 1; }), usage, "--experts: 1, wanted 2");
  expect_error(with([](auto& o) { o.shape.experts = 7; }), usage, "--experts: 7");
  expect_error(with([](auto& o) { o.shape.mtp = true; }), usage, "--mtp");
  expect_error(with([](auto& o) { o.live = "2"; }), usage, "--live: 2");
  expect_error(with([](auto& o) { o.live = "1e-30"; }), usage, "--live: not to be had");

  const auto config = [&](const char* field, const Json& value) {
    Json shape = small_shape();
    shape[field] = value;
    return options(shape);
  };
  expect_error(config("hidden_size", 500), usage, "hidden_size: 500, wanted a multiple of 64");
  expect_error(config("vocab_size", 32), usage, "vocab_size: 32, wanted at least the tokenizer's");
  expect_error(config("model_type", "llama"), ErrorCode::kUnsupported, "llama");
  temporary_.write("shape.json", "{");
  SynthOptions broken = options();
  temporary_.write("shape.json", "{");
  expect_error(broken, ErrorCode::kCorrupt, "shape.json");
}

TEST_F(Synth, APatternNeedsItsSizes) {
  SynthOptions o = options();
  o.shape.shape = "lightning";
  o.shape.pattern = "M-";  // no release has dense MLPs any more
  expect_error(o, ErrorCode::kInvalidArgument, "intermediate_size");
}

TEST_F(Synth, RefusesMoreThanTheDiskHolds) {
  Json shape = small_shape();
  shape.update(
      {{"hidden_size", 65536}, {"n_routed_experts", 4096}, {"moe_intermediate_size", 1048576}});
  expect_error(options(shape), ErrorCode::kIo, "GB of room");
}

TEST_F(Synth, AFolderInUseStaysAsItIs) {
  fs::create_directory(folder());
  temporary_.write("out/notes.txt", "mine");
  SynthOptions o = options();
  for (const bool force : {false, true}) {
    o.force = force;
    const auto refused = write_synthetic(folder(), o);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(content("notes.txt"), "mine");
    EXPECT_EQ(names().size(), 1u);
  }
  const auto file = write_synthetic(folder() / "notes.txt", o);
  ASSERT_FALSE(file.ok());
  EXPECT_THAT(file.error().what, HasSubstr("is no folder"));
  const auto below = write_synthetic(folder() / "notes.txt" / "out", o);
  EXPECT_FALSE(below.ok());
}

TEST_F(Synth, ForceReplacesASyntheticCheckpointOnly) {
  SynthOptions o = options();
  o.shard_bytes = 3'000'000;
  write(o);
  const auto refused = write_synthetic(folder(), o);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().what, HasSubstr("--force"));
  o.force = true;
  o.shard_bytes = 1'000'000'000;
  write(o);
  EXPECT_EQ(names().count("model.safetensors"), 1u);
  EXPECT_EQ(names().size(), 7u);
  EXPECT_TRUE(Checkpoint::open(folder()).ok());
}

TEST_F(Synth, ACancelLeavesNothing) {
  std::atomic<bool> cancel{false};
  SynthOptions o = options();
  o.shard_bytes = 1'000'000;
  o.cancel = &cancel;
  std::uint64_t last = 0;
  o.on_progress = [&](std::uint64_t done, std::uint64_t total) {
    EXPECT_GT(done, last);
    EXPECT_LE(done, total);
    last = done;
    if (done > total / 2) cancel.store(true);
  };
  expect_error(o, ErrorCode::kCancelled, "interrupted");
  fs::create_directory(folder("own"));
  cancel.store(false);
  last = 0;
  EXPECT_FALSE(write_synthetic(folder("own"), o).ok());
  EXPECT_THAT(names("own"), IsEmpty());  // a folder that was there stays
}

}  // namespace
}  // namespace lacuna
