// SPDX-License-Identifier: Apache-2.0
// The bundled model end to end: skipping on and off, both precisions, in turn in one run.
//
//   engine_bench [MODEL [TEXT]]   a checkpoint folder and a text to read; the bundled ones by
//   default
//
// Greedy decode of 128 tokens after 64, and prompts of 512 tokens of real text; median of the
// rounds with their 10th and 90th percentile.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "base/cpu.h"
#include "base/mmap.h"
#include "lacuna/engine.h"
#include "lacuna/session.h"
#include "text/tokenizer.h"

namespace {

using namespace lacuna;

constexpr int kRounds = 11;
constexpr int kDecode = 128;
constexpr int kPrompt = 512;

template <class T>
T must(Result<T> result) {
  if (!result.ok()) {
    fmt::print(stderr, "engine_bench: {}\n", result.error().what);
    std::exit(1);
  }
  return *std::move(result);
}

void must_run(const Result<void>& result) {
  if (result.ok()) return;
  fmt::print(stderr, "engine_bench: {}\n", result.error().what);
  std::exit(1);
}

struct Setting {
  const char* name;
  Precision precision;
  bool sparse;
  std::unique_ptr<Engine> engine;
  std::vector<double> prefill, decode;  // tokens per second
  double bytes = 0;                     // read per decoded token
};

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void round_of(Setting& s, std::span<const int> text) {
  const auto session = must(s.engine->new_session());
  auto start = std::chrono::steady_clock::now();
  must(session->sync(text.first(kPrompt)));
  s.prefill.push_back(kPrompt / seconds_since(start));
  must(session->sync(text.first(64)));
  const Counters before = session->counters();
  start = std::chrono::steady_clock::now();
  for (int i = 0; i < kDecode; ++i) {
    const auto logits = session->logits();
    must_run(session->decode(
        static_cast<int>(std::max_element(logits.begin(), logits.end()) - logits.begin())));
  }
  s.decode.push_back(kDecode / seconds_since(start));
  s.bytes = static_cast<double>((session->counters() - before).weight_bytes) / kDecode;
}

std::string spread(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return fmt::format("{:6.0f} ({:.0f}-{:.0f})", v[v.size() / 2], v[v.size() / 10],
                     v[v.size() * 9 / 10]);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string model = argc > 1 ? argv[1] : "models/tiny-nemotron-h/mlx-4bit";
  const std::string text_file = argc > 2 ? argv[2] : "models/val_prose.txt";
  Setting settings[] = {{"bf16 sparse", Precision::kBf16, true, nullptr, {}, {}},
                        {"bf16 dense", Precision::kBf16, false, nullptr, {}, {}},
                        {"f32 sparse", Precision::kF32, true, nullptr, {}, {}},
                        {"f32 dense", Precision::kF32, false, nullptr, {}, {}}};
  for (Setting& s : settings) {
    EngineOptions options;
    options.precision = s.precision;
    options.sparse_experts = s.sparse;
    s.engine = must(Engine::open(model, options));
  }
  const std::string text = must(read_text_file(text_file));
  const std::vector<int> tokens = settings[0].engine->tokenizer().encode(text);
  if (tokens.size() < kPrompt) {
    fmt::print(stderr, "engine_bench: {}: {} tokens, want {}\n", text_file, tokens.size(), kPrompt);
    return 1;
  }
  for (int r = 0; r < kRounds; ++r) {
    for (Setting& s : settings) round_of(s, tokens);
  }
  const ModelInfo& info = settings[0].engine->info();
  fmt::print("{}, {} threads, {}; {} rounds in turn\n", cpu_model(), info.threads, info.isa,
             kRounds);
  fmt::print("{:<12} {:>24} {:>24} {:>14}\n", "", "decode tokens/s", "prompt 512 tokens/s",
             "MB/token");
  for (const Setting& s : settings) {
    fmt::print("{:<12} {:>24} {:>24} {:>14.2f}\n", s.name, spread(s.decode), spread(s.prefill),
               s.bytes / 1e6);
  }
}
