// SPDX-License-Identifier: Apache-2.0
// What a bench found, and how it is written: llama-bench's columns and keys, then ours.
//
// Plain data and text; nothing here runs a model.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench_plan.h"
#include "lacuna/counters.h"
#include "lacuna/engine.h"

namespace lacuna {

struct BenchSample {
  std::uint64_t ns = 0;                    // more than 0
  double peak_before = 0, peak_after = 0;  // GB/s of the probes beside it; 0: not measured
};

// One test in one setting.
struct BenchRow {
  BenchTest test;
  bool sparse = true;
  std::string draft = "off";         // or a number, or "auto"
  std::string test_time;             // when its first sample began: "2026-11-30T18:00:00Z"
  std::vector<BenchSample> samples;  // one a round, at least one
  // Of all samples together. A decode step emits one token more than it has drafts accepted.
  Counters counters;
  std::uint64_t draft_steps = 0, draft_offered = 0, draft_accepted = 0;

  bool drafts() const { return draft != "off"; }
};

struct BenchRun {
  ModelInfo model;
  std::string model_path;
  std::string synthetic;  // what a checkpoint without trained weights says of itself; else empty
  std::string text;       // the file that was read, or "random"
  std::string cpu, build_commit;
  int build_number = 0;        // commits up to that one; 0: unknown
  int batch = 0;               // prompt tokens per forward pass
  std::uint64_t peak_rss = 0;  // bytes, without the probe's own
  // Drafts that were made right or wrong by chance: accepted ones of two, in the mean. Empty: the
  // head's own guesses counted.
  std::optional<double> accept;
  std::vector<BenchRow> rows;  // at least one
};

struct Spread {
  double median = 0, min = 0, max = 0;
};
// All 0 for no values. The median of an even number is the mean of the middle two.
Spread spread_of(std::vector<double> values);
double mean_of(const std::vector<double>& values);
double deviation_of(const std::vector<double>& values);  // of a sample (n - 1); 0 for one value

// What the formats show of a row. GB/s counts weights and state; a share is of 0 to 1. Empty: not
// known, or it would say nothing.
struct RowStats {
  std::vector<double> ns, tokens_per_second, peaks;
  Spread speed;     // of tokens_per_second
  double gb_s = 0;  // bytes of a sample over its median time
  double bytes_per_token = 0, bytes_per_token_dense = 0, state_bytes_per_token = 0;
  std::optional<double> peak_gb_s;  // median of peaks
  // Only where memory is the limit: a prompt's rows share what is read.
  std::optional<double> fraction_of_peak;
  std::optional<double> live, live_shared;
};
RowStats row_stats(const BenchRow& row);

// The speed of a row over that of the same test in another setting, round by round.
struct Gain {
  std::string label;  // "sparse/dense tg128", "drafts 2/off tg128 sparse"
  Spread ratio;
};
// Sparse over dense of the same drafts, then drafts over off of the same experts, where both ran.
std::vector<Gain> gains(const std::vector<BenchRow>& rows);

// A table and the lines below it; `columns` are those docs/cli.md lists.
std::string bench_markdown(const BenchRun& run);
std::string bench_json(const BenchRun& run);   // an array, an object a row
std::string bench_jsonl(const BenchRun& run);  // an object a line
// The same keys flat; lists are joined by ';'.
std::string bench_csv(const BenchRun& run);
std::string bench_sql(const BenchRun& run);

}  // namespace lacuna
