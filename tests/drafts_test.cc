// SPDX-License-Identifier: Apache-2.0
// Drafts change no bit: whatever was guessed, taken back and kept, logits and text are those of
// decoding one token after the other.
#include <gtest/gtest.h>

#include <filesystem>
#include <random>

#include "tests/support/golden.h"
#include "tests/support/kernels.h"
#include "tests/support/safetensors_writer.h"

namespace lacuna {
namespace {

class Drafts : public testing::TestWithParam<Precision> {
 protected:
  EngineOptions options() const { return test_options(GetParam()); }
  std::vector<int> prompt(const std::string& name, std::size_t size) const {
    auto ids = tiny_golden().get<int>(name + ".ids");
    ids.resize(std::min(size, ids.size()));
    return ids;
  }
};

INSTANTIATE_TEST_SUITE_P(Precisions, Drafts, testing::Values(Precision::kF32, Precision::kBf16),
                         [](const auto& p) { return p.param == Precision::kF32 ? "f32" : "bf16"; });

int pick_best(std::span<const float> logits, int) { return argmax(logits); }

// P1, P3, P4, P5: any number of drafts, any number of them accepted, a thousand times over. The
// convolution's window is shorter than most of these guesses.
TEST_P(Drafts, AnyAcceptanceIsDecodingTokenByToken) {
  const auto engine = open_tiny(options());
  ASSERT_NE(engine, nullptr);
  const auto plain = start(*engine);
  const auto session = start(*engine);
  const std::vector<int> ids = prompt("prose", 20);
  ASSERT_TRUE(plain->sync(ids).ok());
  ASSERT_TRUE(session->sync(ids).ok());
  std::mt19937 random(5);
  const auto any = [&](int most) {
    return static_cast<int>(random() % static_cast<unsigned>(most + 1));
  };
  for (int step = 0; step < (kSanitized ? 40 : 1000); ++step) {
    std::vector<int> batch(static_cast<std::size_t>(1 + any(kMostDrafts)));
    for (int& id : batch) id = any(engine->info().vocabulary - 1);
    ASSERT_TRUE(session->decode(batch).ok());
    const int kept = 1 + any(static_cast<int>(batch.size()) - 1);
    for (int i = 0; i < kept; ++i) {
      ASSERT_TRUE(plain->decode(batch[static_cast<std::size_t>(i)]).ok());
      ASSERT_TRUE(same_bits(plain->logits(), session->logits(i)))
          << "step " << step << " row " << i;
    }
    // Left alone now and then: all of them stay.
    if (kept < static_cast<int>(batch.size()) || any(1) == 0) session->accept(kept);
    ASSERT_TRUE(same_bits(plain->logits(), session->logits())) << "step " << step;
    ASSERT_EQ(plain->tokens().size(), session->tokens().size());
  }
  // A prompt behind drafts takes in what is left of them, and a snapshot holds it.
  const auto fresh = start(*engine);
  std::vector<int> all(session->tokens().begin(), session->tokens().end());
  ASSERT_TRUE(session->decode(std::vector<int>{7, 8, 9, 10}).ok());
  session->accept(3);
  all.insert(all.end(), {7, 8, 9});
  const std::size_t short_of = all.size();
  all.insert(all.end(), ids.begin(), ids.end());
  ASSERT_TRUE(session->sync(all).ok());
  ASSERT_TRUE(fresh->sync(all).ok());
  EXPECT_TRUE(same_bits(fresh->logits(), session->logits()));
  all.resize(short_of);
  all.push_back(11);
  ASSERT_TRUE(session->sync(all).ok());
  ASSERT_TRUE(fresh->sync(all).ok());
  EXPECT_TRUE(same_bits(fresh->logits(), session->logits()));
}

// Decodes `count` greedy tokens with `depth` drafts a step from the model's head.
std::vector<int> drafted(Session& session, std::span<const int> prompt, int count, int depth,
                         int* accepted = nullptr) {
  std::vector<int> out;
  const auto synced = session.sync(prompt);
  if (!synced.ok()) ADD_FAILURE() << synced.error().what;
  out.push_back(argmax(session.logits()));
  while (static_cast<int>(out.size()) < count) {
    auto guess = session.draft(out.back(), depth, pick_best);
    if (!guess.ok()) ADD_FAILURE() << guess.error().what;
    std::vector<int> batch{out.back()};
    batch.insert(batch.end(), guess->begin(), guess->end());
    if (!session.decode(batch).ok()) ADD_FAILURE() << "decode";
    int kept = 1;
    for (;; ++kept) {
      out.push_back(argmax(session.logits(kept - 1)));
      if (kept == static_cast<int>(batch.size()) || out.back() != batch[kept]) break;
    }
    session.accept(kept);
    if (accepted != nullptr) *accepted += kept - 1;
  }
  out.resize(static_cast<std::size_t>(count));
  return out;
}

TEST_P(Drafts, TextIsTheSameWithAnyDepthAndAnyNumberOfThreads) {
  const Golden golden = tiny_golden();
  for (const int threads : kSanitized ? std::vector{3} : std::vector{1, 2, 3}) {
    EngineOptions o = options();
    o.threads = threads;
    const auto engine = open_tiny(o);
    ASSERT_NE(engine, nullptr);
    const auto plain = start(*engine);
    for (const std::string p : {"chat", "prose", "code"}) {
      if (kSanitized && p != "chat") continue;
      const std::vector<int> ids = prompt(p, 100);
      const std::vector<int> want = greedy(*plain, ids, 48);
      for (const int depth : {1, 2, 3, 5, kMostDrafts}) {
        int accepted = 0;
        const auto session = start_drafting(*engine);
        EXPECT_EQ(want, drafted(*session, ids, 48, depth, &accepted)) << p << ", " << depth;
        EXPECT_GT(accepted, 8) << p << ", depth " << depth << ": the head is trained";
      }
    }
  }
}

// The head's own state follows wherever the timeline goes: after any history its logits are the
// bits of a session that has just read the text.
TEST_P(Drafts, GuessesDependOnTheTextAlone) {
  const auto engine = open_tiny(options());
  ASSERT_NE(engine, nullptr);
  const std::vector<int> ids = prompt("prose", 90);
  std::vector<int> guessed;
  const auto logits_of_draft = [&](Session& session, int token) {
    std::vector<float> rows;
    const auto found = session.draft(token, 3, [&](std::span<const float> row, int) {
      rows.insert(rows.end(), row.begin(), row.end());
      return argmax(row);
    });
    if (!found.ok()) ADD_FAILURE() << found.error().what;
    guessed = *found;
    return rows;
  };
  const auto guess = [&](Session& session, std::span<const int> text) {
    const auto synced = session.sync(text.first(text.size() - 1));
    if (!synced.ok()) ADD_FAILURE() << synced.error().what;
    return logits_of_draft(session, text.back());
  };
  const std::vector<float> want = guess(*start_drafting(*engine), ids);
  ASSERT_EQ(want.size(), 3u * static_cast<std::size_t>(engine->info().vocabulary));
  const std::vector<int> best = guessed;
  const auto session = start_drafting(*engine);
  EXPECT_TRUE(same_bits(want, guess(*session, ids))) << "fresh";
  EXPECT_TRUE(same_bits(want, guess(*session, ids))) << "asked again";
  logits_of_draft(*session, 17);
  EXPECT_TRUE(same_bits(want, guess(*session, ids))) << "another token was expected";
  ASSERT_TRUE(session->decode(std::vector<int>{ids.back(), best[0], 5, 6}).ok());
  session->accept(2);
  EXPECT_TRUE(same_bits(want, guess(*session, ids))) << "text was taken back";
  std::vector<int> other = ids;
  other[40] = 9;
  guess(*session, other);
  EXPECT_TRUE(same_bits(want, guess(*session, ids))) << "another text";
  // By decoding: one by one, then with drafts of which some stay.
  ASSERT_TRUE(session->sync(std::span(ids).first(50)).ok());
  for (std::size_t t = 50; t < 60; ++t) ASSERT_TRUE(session->decode(ids[t]).ok());
  for (std::size_t t = 60; t + 1 < ids.size();) {
    logits_of_draft(*session, ids[t]);
    const std::vector<int> batch{ids[t], t + 2 < ids.size() ? ids[t + 1] : 3, 4};
    ASSERT_TRUE(session->decode(batch).ok());
    const int kept = t + 2 < ids.size() ? 2 : 1;
    session->accept(kept);
    t += static_cast<std::size_t>(kept);
  }
  EXPECT_TRUE(same_bits(want, logits_of_draft(*session, ids.back()))) << "decoded";
}

TEST(DraftLimits, WhatCannotBeDraftedIsNot) {
  EngineOptions o = test_options();
  o.context = 40;
  const auto engine = open_tiny(o);
  ASSERT_NE(engine, nullptr);
  EXPECT_GT(engine->info().head_parameters, 0u);
  const auto ids = tiny_golden().get<int>("prose.ids");
  const auto without = start(*engine);
  ASSERT_TRUE(without->sync(std::span(ids).first(30)).ok());
  EXPECT_TRUE(without->draft(1, 3, pick_best)->empty()) << "the session keeps nothing for a head";
  const auto session = start_drafting(*engine);
  EXPECT_TRUE(session->draft(1, 3, pick_best)->empty()) << "no text yet";
  ASSERT_TRUE(session->sync(std::span(ids).first(37)).ok());
  EXPECT_EQ(session->draft(1, 3, pick_best)->size(), 2u) << "the context ends";
  EXPECT_FALSE(session->draft(engine->info().vocabulary, 1, pick_best).ok());
  EXPECT_FALSE(session->decode(std::vector<int>(4, 1)).ok());
  EXPECT_FALSE(session->decode(std::vector<int>()).ok());
  EXPECT_FALSE(session->decode(std::vector<int>(kMostDrafts + 2, 1)).ok());
  ASSERT_TRUE(session->decode(std::vector<int>(3, 1)).ok());
  EXPECT_TRUE(session->draft(1, 3, pick_best)->empty());
}

// A head that does not fit, or a side file that is none, costs the head and nothing else.
TEST(DraftLimits, TheModelRunsWithoutAHeadThatDoesNotFit) {
  const auto ids = tiny_golden().get<int>("chat.ids");
  std::vector<int> want = greedy(*start(*open_tiny(test_options())), ids, 8);
  test::TestTensors strange;
  strange["mtp.layers.0.eh_proj.weight"] = test::filled(Dtype::kBf16, {384, 384}, 1.0f);
  for (const bool cut : {false, true}) {
    const test::TempFolder folder;
    for (const auto& file : std::filesystem::directory_iterator(kTinyNemotron)) {
      if (file.path().filename() == "mtp.safetensors") continue;
      std::filesystem::create_symlink(std::filesystem::absolute(file.path()),
                                      folder.path() / file.path().filename());
    }
    if (cut) {
      folder.write("mtp.safetensors", std::string("{}"));
    } else {
      folder.write("mtp.safetensors", strange);
    }
    const auto engine = Engine::open(folder.path(), test_options());
    ASSERT_TRUE(engine.ok()) << engine.error().what;
    EXPECT_EQ((*engine)->info().head_parameters, 0u);
    std::string notes;
    for (const std::string& note : (*engine)->info().notes) notes += note + "\n";
    EXPECT_NE(notes.find(cut ? "left out: mtp.safetensors: 2 bytes"
                             : "drafting head left out: mtp.layers.0.enorm.weight: missing"),
              std::string::npos)
        << notes;
    const auto session = start_drafting(**engine);
    EXPECT_EQ(want, greedy(*session, ids, 8));
    EXPECT_TRUE(session->draft(1, 2, pick_best)->empty());
  }
}

}  // namespace
}  // namespace lacuna
