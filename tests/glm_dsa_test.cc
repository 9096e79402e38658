// SPDX-License-Identifier: Apache-2.0
// The bundled GLM model: attention that reads only the keys its indexer picked, against data made
// by an independent float32 implementation, and against itself in every other way of computing it.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "base/cpu.h"
#include "tests/support/golden.h"
#include "tests/support/kernels.h"

namespace lacuna {
namespace {

const char* const kTinyGlm = "models/tiny-glm-dsa/mlx-4bit";

Golden glm_golden() { return Golden("models/tiny-glm-dsa/golden/golden_mlx4.safetensors"); }

// Gathers from the first query on that sees more keys than it may pick.
EngineOptions gathering(Precision precision = Precision::kF32) {
  EngineOptions o = test_options(precision);
  o.sparse_min_context = 0;
  return o;
}

std::unique_ptr<Engine> open_glm(const EngineOptions& options) {
  auto engine = Engine::open(kTinyGlm, options);
  if (!engine.ok()) ADD_FAILURE() << engine.error().what;
  return engine.ok() ? *std::move(engine) : nullptr;
}

std::vector<int> prompt(const std::string& name, std::size_t size) {
  auto ids = glm_golden().get<int>(name + ".ids");
  ids.resize(std::min(size, ids.size()));
  return ids;
}

TEST(GlmGolden, LogitsAndTextAreTheReferences) {
  const Golden golden = glm_golden();
  const auto engine = open_glm(gathering());
  ASSERT_NE(engine, nullptr);
  EXPECT_EQ(engine->info().parameters, 25'852'880u);
  const std::size_t v = static_cast<std::size_t>(engine->info().vocabulary);
  for (const std::string p : {"chat", "prose", "code", "long"}) {
    if (kSanitized && p != "chat") continue;
    SCOPED_TRACE(p);
    const auto ids = golden.get<int>(p + ".ids");
    const auto session = start(*engine);
    const std::vector<float> logits = all_logits(*session, ids);
    const auto best = golden.get<int>(p + ".sparse.argmax");
    std::size_t same = 0;
    for (std::size_t t = 0; t < ids.size(); ++t)
      same += argmax(std::span(logits).subspan(t * v, v)) == best[t];
    // Of picks with nearly equal scores either may be taken, so a near-tie may fall the other way.
    EXPECT_GE(same + ids.size() / 500, ids.size());
    EXPECT_LT(kl(golden.get<float>(p + ".sparse.last_logits"), std::span(logits).last(v)), 1e-5);
    const auto text = golden.get<int>(p + ".sparse.greedy");
    EXPECT_EQ(greedy(*start(*engine), ids, static_cast<int>(text.size())), text);
    const std::uint64_t deep = ids.size() > 128 ? ids.size() - 128 : 0;
    EXPECT_EQ(session->counters().gathered_queries, 6 * deep);
    EXPECT_EQ(session->counters().masked_queries, 0u);
  }
}

TEST(GlmGolden, EveryKeyOfAShortTextIsSeen) {
  const Golden golden = glm_golden();
  const auto engine = open_glm(gathering());
  ASSERT_NE(engine, nullptr);
  const std::size_t v = static_cast<std::size_t>(engine->info().vocabulary);
  const auto ids = golden.get<int>("chat.ids");
  const auto full = golden.get<float>("chat.dense.full_logits");
  const std::vector<float> logits = all_logits(*start(*engine), ids);
  ASSERT_EQ(full.size(), logits.size());
  double sum = 0;
  for (std::size_t t = 0; t < ids.size(); ++t)
    sum += kl(std::span(full).subspan(t * v, v), std::span(logits).subspan(t * v, v));
  EXPECT_LT(sum / static_cast<double>(ids.size()), 1e-6);
}

class GlmExactness : public testing::TestWithParam<Precision> {};
INSTANTIATE_TEST_SUITE_P(Precisions, GlmExactness,
                         testing::Values(Precision::kF32, Precision::kBf16),
                         [](const auto& p) { return p.param == Precision::kF32 ? "f32" : "bf16"; });

TEST_P(GlmExactness, ChunksThreadsAndInstructionSetsGiveTheSameBits) {
  const std::vector<int> ids = prompt("prose", kSanitized ? 131 : 140);
  std::vector<float> want;
  const auto check = [&](const EngineOptions& o, const std::string& what) {
    const auto engine = open_glm(o);
    ASSERT_NE(engine, nullptr);
    const std::vector<float> got = all_logits(*start(*engine), ids);
    if (want.empty()) want = got;
    EXPECT_TRUE(same_bits(want, got)) << what;
  };
  EngineOptions o = gathering(GetParam());
  for (const int chunk : kSanitized ? std::vector{2048, 129} : std::vector{2048, 1, 33, 129}) {
    o.prefill_chunk = chunk;
    check(o, "chunks of " + std::to_string(chunk));
  }
  o.prefill_chunk = 2048;
  for (const int threads : kSanitized ? std::vector{3} : std::vector{1, 3, 5}) {
    o.threads = threads;
    check(o, std::to_string(threads) + " threads");
  }
  const char* before = std::getenv("LACUNA_ISA");
  const std::string saved = before != nullptr ? before : "";
  for (const Isa isa : usable_isas()) {
    if (kSanitized && isa == Isa::kScalar) continue;  // half a minute; the op tests run it
    setenv("LACUNA_ISA", isa_name(isa), 1);
    check(o, isa_name(isa));
  }
  if (before != nullptr) {
    setenv("LACUNA_ISA", saved.c_str(), 1);
  } else {
    unsetenv("LACUNA_ISA");
  }
}

TEST_P(GlmExactness, DecodingReuseAndDraftsArePrefill) {
  const std::vector<int> ids = prompt("code", 180);
  const auto engine = open_glm(gathering(GetParam()));
  ASSERT_NE(engine, nullptr);
  const std::size_t v = static_cast<std::size_t>(engine->info().vocabulary);
  const std::vector<float> want = all_logits(*start(*engine), ids);
  const auto row = [&](std::size_t t) { return std::span(want).subspan(t * v, v); };
  const auto session = start(*engine);
  ASSERT_TRUE(session->sync(std::span(ids).first(120)).ok());
  for (std::size_t t = 120; t < 140; ++t) {
    ASSERT_TRUE(session->decode(ids[t]).ok());
    ASSERT_TRUE(same_bits(row(t), session->logits())) << "position " << t;
  }
  // A guess across the place where keys begin to be picked, of which a part stays.
  ASSERT_TRUE(session->sync(std::span(ids).first(126)).ok());
  std::vector<int> batch(ids.begin() + 126, ids.begin() + 131);
  batch.push_back(5);
  ASSERT_TRUE(session->decode(batch).ok());
  for (std::size_t i = 0; i < 5; ++i)
    ASSERT_TRUE(same_bits(row(126 + i), session->logits(static_cast<int>(i))));
  session->accept(3);
  ASSERT_TRUE(session->decode(ids[129]).ok());
  EXPECT_TRUE(same_bits(row(129), session->logits()));
  // Another text, then back: keys carry their positions, so all that agrees is kept.
  std::vector<int> other(ids.begin(), ids.begin() + 150);
  other[100] = 9;
  ASSERT_TRUE(session->sync(other).ok());
  const auto report = session->sync(ids);
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->reused, 100);
  EXPECT_TRUE(same_bits(row(ids.size() - 1), session->logits()));
}

// Masking keys is the ordinary way; skipping them gives the same within rounding, and the gate
// decides by what a query sees, not by the chunk it came in.
TEST(GlmSparse, SkippingIsMasking) {
  const std::vector<int> ids = prompt("prose", kSanitized ? 205 : 321);
  const auto engine = open_glm(gathering());
  ASSERT_NE(engine, nullptr);
  SessionOptions masked_options;
  masked_options.sparse_attention = false;
  const auto gathered = start(*engine);
  const auto masked = start(*engine, masked_options);
  const std::vector<float> a = all_logits(*gathered, ids), b = all_logits(*masked, ids);
  double worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    worst = std::max(worst, std::fabs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
  EXPECT_LT(worst, 1e-3) << "logits reach 20: 2^-14 of that";
  EXPECT_GT(worst, 0) << "two ways of summing";
  EXPECT_EQ(gathered->counters().gathered_queries, masked->counters().masked_queries);
  EXPECT_EQ(masked->counters().gathered_queries, 0u);
  EXPECT_LT(gathered->counters().state_bytes, masked->counters().state_bytes);

  EngineOptions gate = test_options();
  gate.sparse_min_context = 200;
  for (const int chunk : {2048, 90}) {
    gate.prefill_chunk = chunk;
    const auto gated = open_glm(gate);
    ASSERT_NE(gated, nullptr);
    const auto session = start(*gated);
    ASSERT_TRUE(session->sync(ids).ok());
    EXPECT_EQ(session->counters().masked_queries, 6u * (199 - 128));
    EXPECT_EQ(session->counters().gathered_queries, 6u * (ids.size() - 199));
  }
}

}  // namespace
}  // namespace lacuna
