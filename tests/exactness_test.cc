// SPDX-License-Identifier: Apache-2.0
// One answer: a prompt's logits are the same bits whatever the chunking, the number of threads, the
// instruction set, skipping on or off, and whatever was computed, reused or rewound before.
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/cpu.h"
#include "tests/support/golden.h"
#include "tests/support/kernels.h"

namespace lacuna {
namespace {

class Exactness : public testing::TestWithParam<Precision> {
 protected:
  EngineOptions options() const { return test_options(GetParam()); }
  std::vector<int> prompt(const std::string& name, std::size_t size) const {
    auto ids = tiny_golden().get<int>(name + ".ids");
    ids.resize(std::min(size, ids.size()));
    return ids;
  }
};

INSTANTIATE_TEST_SUITE_P(Precisions, Exactness, testing::Values(Precision::kF32, Precision::kBf16),
                         [](const auto& p) { return p.param == Precision::kF32 ? "f32" : "bf16"; });

TEST_P(Exactness, AnyChunkingOfAPromptGivesTheSameBits) {
  const std::vector<int> ids = prompt("prose", 150);
  std::vector<float> want;
  for (const int chunk : {2048, 1, 7, 33, 64}) {
    EngineOptions o = options();
    o.prefill_chunk = chunk;
    const auto engine = open_tiny(o);
    const auto session = start(*engine);
    const std::vector<float> got = all_logits(*session, ids);
    if (want.empty()) want = got;
    EXPECT_TRUE(same_bits(want, got)) << "chunks of " << chunk;
  }
}

TEST_P(Exactness, AnyNumberOfThreadsGivesTheSameBits) {
  const std::vector<int> ids = prompt("code", 120);
  std::vector<float> want;
  for (const int threads : {1, 2, 3, 5}) {
    EngineOptions o = options();
    o.threads = threads;
    const auto engine = open_tiny(o);
    const auto session = start(*engine);
    const std::vector<float> got = all_logits(*session, ids);
    if (want.empty()) want = got;
    EXPECT_TRUE(same_bits(want, got)) << threads << " threads";
  }
}

TEST_P(Exactness, SkippingDeadNeuronsGivesTheSameBitsAndReadsLess) {
  const std::vector<int> ids = prompt("prose", 200);
  EngineOptions o = options();
  const auto sparse_engine = open_tiny(o);
  o.sparse_experts = false;
  const auto dense_engine = open_tiny(o);
  const auto sparse = start(*sparse_engine);
  const auto dense = start(*dense_engine);
  EXPECT_TRUE(same_bits(all_logits(*dense, ids), all_logits(*sparse, ids)));
  EXPECT_EQ(greedy(*dense, ids, 32), greedy(*sparse, ids, 32));
  EXPECT_EQ(dense->counters().live_neurons, sparse->counters().live_neurons);
  EXPECT_EQ(dense->counters().weight_bytes_dense, sparse->counters().weight_bytes_dense);
  EXPECT_LT(sparse->counters().weight_bytes, dense->counters().weight_bytes);
}

TEST_P(Exactness, EveryInstructionSetGivesTheSameBits) {
  const char* before = std::getenv("LACUNA_ISA");
  const std::string saved = before != nullptr ? before : "";
  const std::vector<int> ids = prompt("chat", 24);
  std::vector<float> want;
  std::vector<int> want_text;
  for (const Isa isa : usable_isas()) {
    setenv("LACUNA_ISA", isa_name(isa), 1);
    const auto engine = open_tiny(options());
    ASSERT_NE(engine, nullptr);
    EXPECT_EQ(engine->info().isa, isa_name(isa)) << "the forced kernels must be the ones in use";
    const auto session = start(*engine);
    const std::vector<float> got = all_logits(*session, ids);
    const std::vector<int> text = greedy(*session, ids, 8);
    if (want.empty()) want = got, want_text = text;
    EXPECT_TRUE(same_bits(want, got)) << isa_name(isa);
    EXPECT_EQ(want_text, text) << isa_name(isa);
  }
  setenv("LACUNA_ISA", "pentium", 1);
  const auto refused = Engine::open(kTinyNemotron, options());
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().what.find("pentium"), std::string::npos);
  if (before != nullptr) {
    setenv("LACUNA_ISA", saved.c_str(), 1);
  } else {
    unsetenv("LACUNA_ISA");
  }
}

TEST_P(Exactness, DecodingStepByStepIsPrefill) {
  const std::vector<int> ids = prompt("code", 60);
  const auto engine = open_tiny(options());
  const auto whole = start(*engine);
  const std::vector<float> want = all_logits(*whole, ids);
  const auto steps = start(*engine);
  ASSERT_TRUE(steps->sync(std::span(ids).first(1)).ok());
  const std::size_t v = static_cast<std::size_t>(engine->info().vocabulary);
  for (std::size_t t = 1; t < ids.size(); ++t) {
    ASSERT_TRUE(steps->decode(ids[t]).ok());
    ASSERT_TRUE(same_bits(std::span(want).subspan(t * v, v), steps->logits())) << "position " << t;
  }
}

// Past a few bands of keys: a prompt's rows take them one after the other, threads share them out
// at decode.
TEST_P(Exactness, DecodingBehindALongTextIsPrefill) {
  std::vector<int> ids;
  while (ids.size() < 532) {
    for (const int id : prompt("prose", 200)) ids.push_back(id);
  }
  ids.resize(532);
  std::vector<float> want;
  for (const int threads : {1, 2, 5}) {
    EngineOptions o = options();
    o.threads = threads;
    const auto engine = open_tiny(o);
    const auto whole = start(*engine);
    ASSERT_TRUE(whole->sync(ids).ok());
    if (want.empty()) want.assign(whole->logits().begin(), whole->logits().end());
    EXPECT_TRUE(same_bits(want, whole->logits())) << threads << " threads";
    const auto steps = start(*engine);
    ASSERT_TRUE(steps->sync(std::span(ids).first(508)).ok());  // a band ends at 512
    for (std::size_t t = 508; t < ids.size(); ++t) ASSERT_TRUE(steps->decode(ids[t]).ok());
    EXPECT_TRUE(same_bits(want, steps->logits())) << threads << " threads, step by step";
  }
}

TEST_P(Exactness, RewindingIsAFreshComputation) {
  const std::vector<int> a = prompt("prose", 100);
  std::vector<int> b = a;  // parts from a at token 60
  const std::vector<int> other = prompt("code", 100);
  std::copy(other.begin() + 60, other.end(), b.begin() + 60);
  const auto engine = open_tiny(options());
  const auto logits_of = [&](std::span<const int> ids) {
    const auto fresh = start(*engine);
    EXPECT_TRUE(fresh->sync(ids).ok());
    return std::vector<float>(fresh->logits().begin(), fresh->logits().end());
  };
  const auto session = start(*engine);
  ASSERT_TRUE(session->sync(std::span(a).first(60)).ok());  // a state is kept here
  ASSERT_TRUE(session->sync(a).ok());
  EXPECT_TRUE(same_bits(logits_of(a), session->logits()));
  const auto turned = session->sync(b);
  ASSERT_TRUE(turned.ok());
  EXPECT_EQ(turned->reused, 60);
  EXPECT_EQ(turned->computed, 40);
  EXPECT_TRUE(turned->why.empty()) << turned->why;
  EXPECT_TRUE(same_bits(logits_of(b), session->logits()));
  const auto back = session->sync(a);
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(back->reused, 60);
  EXPECT_TRUE(same_bits(logits_of(a), session->logits()));
  const auto shorter = session->sync(std::span(a).first(30));
  ASSERT_TRUE(shorter.ok());
  EXPECT_EQ(shorter->reused, 0);
  EXPECT_NE(shorter->why.find("recurrent"), std::string::npos)
      << "the report must say why nothing was reused";
  EXPECT_TRUE(same_bits(logits_of(std::span(a).first(30)), session->logits()));
  const auto same = session->sync(std::span(a).first(30));
  ASSERT_TRUE(same.ok());
  EXPECT_EQ(same->computed, 0);
  EXPECT_TRUE(same_bits(logits_of(std::span(a).first(30)), session->logits()));
}

TEST_P(Exactness, AppendingComputesOnlyWhatIsNew) {
  const std::vector<int> ids = prompt("prose", 320);
  const auto engine = open_tiny(options());
  const auto session = start(*engine);
  for (int n = 32; n <= 320; n += 32) {
    const auto turn = session->sync(std::span(ids).first(static_cast<std::size_t>(n)));
    ASSERT_TRUE(turn.ok());
    EXPECT_EQ(turn->computed, 32);
  }
  const auto fresh = start(*engine);
  ASSERT_TRUE(fresh->sync(ids).ok());
  EXPECT_TRUE(same_bits(fresh->logits(), session->logits()));
}

TEST_P(Exactness, AskingAgainComputesNothing) {
  const std::vector<int> ids = prompt("prose", 80);
  const auto engine = open_tiny(options());
  const auto session = start(*engine);
  const std::vector<int> first = greedy(*session, ids, 10);
  const auto again = session->sync(ids);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->computed, 0);
  const auto fresh = start(*engine);
  ASSERT_TRUE(fresh->sync(ids).ok());
  EXPECT_TRUE(same_bits(fresh->logits(), session->logits()));
  EXPECT_EQ(greedy(*session, ids, 10), first);
}

TEST_P(Exactness, TwoTimelinesDoNotTouchEachOther) {
  const std::vector<int> a = prompt("prose", 40);
  const std::vector<int> b = prompt("code", 40);
  const auto engine = open_tiny(options());
  const auto alone = start(*engine);
  const std::vector<int> want = greedy(*alone, a, 12);
  const auto one = start(*engine);
  const auto two = start(*engine);
  ASSERT_TRUE(one->sync(a).ok());
  ASSERT_TRUE(two->sync(b).ok());
  std::vector<int> got;
  for (int i = 0; i < 12; ++i) {
    got.push_back(argmax(one->logits()));
    ASSERT_TRUE(one->decode(got.back()).ok());
    ASSERT_TRUE(two->decode(argmax(two->logits())).ok());
  }
  EXPECT_EQ(got, want);
}

TEST_P(Exactness, ACancelledPromptLeavesAValidPrefix) {
  const std::vector<int> ids = prompt("prose", 100);
  EngineOptions o = options();
  o.prefill_chunk = 10;
  const auto engine = open_tiny(o);
  const auto session = start(*engine);
  std::atomic<bool> cancel{false};
  SyncOptions sync;
  sync.cancel = &cancel;
  sync.on_progress = [&](int done, int) { cancel = done >= 30; };
  const auto stopped = session->sync(ids, sync);
  ASSERT_FALSE(stopped.ok());
  EXPECT_EQ(stopped.error().code, ErrorCode::kCancelled);
  EXPECT_EQ(session->tokens().size(), 30u);
  const auto rest = session->sync(ids);
  ASSERT_TRUE(rest.ok());
  EXPECT_EQ(rest->computed, 70);
  const auto fresh = start(*engine);
  ASSERT_TRUE(fresh->sync(ids).ok());
  EXPECT_TRUE(same_bits(fresh->logits(), session->logits()));
}

TEST_P(Exactness, CancellingRightAfterARewindLeavesNoStaleLogits) {
  const std::vector<int> a = prompt("prose", 60);
  std::vector<int> b = a;
  b.back() = 7;
  const auto engine = open_tiny(options());
  const auto session = start(*engine);
  ASSERT_TRUE(session->sync(std::span(a).first(40)).ok());
  ASSERT_TRUE(session->sync(a).ok());
  const std::atomic<bool> cancel{true};
  SyncOptions sync;
  sync.cancel = &cancel;
  ASSERT_FALSE(session->sync(b, sync).ok());
  ASSERT_EQ(session->tokens().size(), 40u);
  ASSERT_TRUE(session->sync(std::span(a).first(40)).ok());
  const auto fresh = start(*engine);
  ASSERT_TRUE(fresh->sync(std::span(a).first(40)).ok());
  EXPECT_TRUE(same_bits(fresh->logits(), session->logits()));
}

TEST_P(Exactness, BadInputIsRefusedAndTheTimelineStays) {
  EngineOptions o = options();
  o.context = 16;
  const auto engine = open_tiny(o);
  const auto session = start(*engine);
  const std::vector<int> ids = prompt("prose", 17);
  const auto too_long = session->sync(ids);
  ASSERT_FALSE(too_long.ok());
  EXPECT_EQ(too_long.error().code, ErrorCode::kContextLength);
  EXPECT_NE(too_long.error().what.find("17"), std::string::npos);
  EXPECT_NE(too_long.error().what.find("16"), std::string::npos);
  EXPECT_FALSE(session->sync({}).ok());
  const int outside[] = {1, 8192};
  EXPECT_FALSE(session->sync(outside).ok());
  const int negative[] = {-1};
  EXPECT_FALSE(session->sync(negative).ok());
  ASSERT_TRUE(session->sync(std::span(ids).first(16)).ok());
  const std::vector<float> kept(session->logits().begin(), session->logits().end());
  const auto full = session->decode(5);
  ASSERT_FALSE(full.ok());
  EXPECT_EQ(full.error().code, ErrorCode::kContextLength);
  EXPECT_TRUE(same_bits(kept, session->logits()));
}

}  // namespace
}  // namespace lacuna
