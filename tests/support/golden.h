// SPDX-License-Identifier: Apache-2.0
// The bundled model and its golden data, opened once per test program.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/mmap.h"
#include "checkpoint/safetensors.h"
#include "lacuna/engine.h"
#include "lacuna/session.h"

namespace lacuna {

inline const char* const kTinyNemotron = "models/tiny-nemotron-h/mlx-4bit";

// Golden tensors by name; a missing file or name fails the test that asks.
class Golden {
 public:
  explicit Golden(const std::string& file) {
    auto mapped = MappedFile::open(file);
    if (!mapped.ok()) ADD_FAILURE() << mapped.error().what;
    if (!mapped.ok()) return;
    mapping_ = *std::move(mapped);
    auto parsed = parse_safetensors(mapping_.bytes(), file);
    if (!parsed.ok()) ADD_FAILURE() << parsed.error().what;
    if (parsed.ok()) parsed_ = *std::move(parsed);
  }
  template <class T>
  std::vector<T> get(const std::string& name) const {
    for (const TensorView& t : parsed_.tensors) {
      if (t.name != name) continue;
      std::vector<T> v(t.bytes / sizeof(T));
      std::memcpy(v.data(), t.data, t.bytes);
      return v;
    }
    ADD_FAILURE() << "no golden tensor " << name;
    return {};
  }

 private:
  MappedFile mapping_;
  SafetensorsFile parsed_;
};

inline Golden tiny_golden() {
  return Golden("models/tiny-nemotron-h/golden/golden_mlx4.safetensors");
}

// Tests keep packed weights out of the user's cache folder.
inline EngineOptions test_options(Precision precision = Precision::kF32) {
  EngineOptions o;
  o.precision = precision;
  o.threads = 2;
  o.cache_dir = std::filesystem::path(testing::TempDir()) / "lacuna-test-cache";
  return o;
}

inline std::unique_ptr<Engine> open_tiny(const EngineOptions& options) {
  auto engine = Engine::open(kTinyNemotron, options);
  if (!engine.ok()) ADD_FAILURE() << engine.error().what;
  return engine.ok() ? *std::move(engine) : nullptr;
}

inline std::unique_ptr<Session> start(const Engine& engine, const SessionOptions& options = {}) {
  auto session = engine.new_session(options);
  if (!session.ok()) ADD_FAILURE() << session.error().what;
  return session.ok() ? *std::move(session) : nullptr;
}

inline std::unique_ptr<Session> start_drafting(const Engine& engine) {
  SessionOptions options;
  options.drafts = true;
  return start(engine, options);
}

inline int argmax(std::span<const float> logits) {
  std::size_t best = 0;
  for (std::size_t i = 1; i < logits.size(); ++i) {
    if (logits[i] > logits[best]) best = i;
  }
  return static_cast<int>(best);
}

inline double log_sum_exp(std::span<const float> x) {
  double top = x[0];
  for (const float v : x) top = std::max<double>(top, v);
  double sum = 0;
  for (const float v : x) sum += std::exp(v - top);
  return top + std::log(sum);
}

// Of `got` from `want`, both logits.
inline double kl(std::span<const float> want, std::span<const float> got) {
  const double lw = log_sum_exp(want);
  const double lg = log_sum_exp(got);
  double sum = 0;
  for (std::size_t i = 0; i < want.size(); ++i)
    sum += std::exp(want[i] - lw) * ((want[i] - lw) - (got[i] - lg));
  return sum;
}

// Logits of every position of `tokens`, one row after the other.
inline std::vector<float> all_logits(Session& session, std::span<const int> tokens) {
  std::vector<float> all;
  SyncOptions options;
  options.on_logits = [&](int, std::span<const float> rows) {
    all.insert(all.end(), rows.begin(), rows.end());
  };
  const auto done = session.sync(tokens, options);
  if (!done.ok()) ADD_FAILURE() << done.error().what;
  return all;
}

// `count` greedy tokens after `prompt`, by single decode steps.
inline std::vector<int> greedy(Session& session, std::span<const int> prompt, int count) {
  std::vector<int> out;
  const auto synced = session.sync(prompt);
  if (!synced.ok()) ADD_FAILURE() << synced.error().what;
  for (int i = 0; i < count && synced.ok(); ++i) {
    out.push_back(argmax(session.logits()));
    if (i + 1 == count) break;
    const auto step = session.decode(out.back());
    if (!step.ok()) ADD_FAILURE() << step.error().what;
  }
  return out;
}

}  // namespace lacuna
