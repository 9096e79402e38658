// SPDX-License-Identifier: Apache-2.0
// A made-up profile for tests: a mamba layer, an MoE layer, one with a shared expert only.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "profile_report.h"

namespace lacuna::test {

inline Counters part_counters(std::uint64_t read, std::uint64_t dense) {
  Counters c;
  c.weight_bytes = read;
  c.weight_bytes_dense = dense;
  return c;
}

// Of a down projection: `routed` of 100 routed neurons live and `shared` of 50 shared ones.
inline Counters down_counters(std::uint64_t routed, std::uint64_t shared, bool with_routed = true) {
  Counters c = part_counters(with_routed ? 1'000'000 : 500'000, 4'000'000);
  c.neurons = with_routed ? 150 : 50;
  c.live_neurons = routed + shared;
  c.shared_neurons = 50;
  c.shared_live_neurons = shared;
  return c;
}

// One pass whose every part takes `scale` times its usual time; of routed neurons `live` live.
inline ProfileSample sample(double scale, std::uint64_t live = 10) {
  ProfileSample s;
  const auto step = [&](int layer, const char* part, double seconds, const Counters& counters) {
    s.steps.push_back({0, layer, part, s.seconds, seconds * scale, counters});
    s.seconds += seconds * scale;
  };
  step(-1, "embed", 1e-6, part_counters(100, 100));
  step(0, "norm", 1e-6, {});
  step(0, "in_proj", 40e-6, part_counters(2'000'000, 2'000'000));
  step(0, "add", 1e-6, {});
  step(1, "norm", 1e-6, {});
  step(1, "up", 30e-6, part_counters(3'000'000, 3'000'000));
  step(1, "down", 20e-6, down_counters(live, 5));
  step(1, "add", 1e-6, {});
  step(2, "norm", 1e-6, {});
  step(2, "up", 10e-6, part_counters(1'000'000, 1'000'000));
  step(2, "down", 8e-6, down_counters(0, 10, false));
  step(-1, "head", 50e-6, part_counters(5'000'000, 5'000'000));
  return s;
}

inline ProfileReport example_report() {
  const std::vector<std::string> kinds = {"mamba", "moe", "mlp"};
  const std::vector<ProfileSample> sparse = {sample(1, 10), sample(3, 30), sample(1.1, 5)};
  const std::vector<ProfileSample> dense = {sample(2), sample(2.2), sample(9)};
  ProfileSample prompt = sample(100);
  for (TraceStep& step : prompt.steps) {
    if (std::string(step.part) != "down" || step.layer != 1) continue;
    step.counters.expert_rows = 1000;
    step.counters.expert_rows_read = 620;
  }
  const std::vector<ProfileSample> slow = {sample(150)}, fast = {prompt};
  ProfileReport report;
  report.model = "example";
  report.architecture = "nemotron_h";
  report.precision = "bf16";
  report.isa = "avx2";
  report.cpu = "a CPU";
  report.version = "1.2.3";
  report.date = "2026-11-30 12:00 UTC";
  report.text = "prose.txt";
  report.threads = 2;
  report.prefill_chunk = 2048;
  report.prompt = make_phase(fast, slow, 64, kinds);
  report.decode = make_phase(sparse, dense, 1, kinds);
  return report;
}

}  // namespace lacuna::test
