// SPDX-License-Identifier: Apache-2.0
// What `lacuna profile` found out, as plain data: traces of passes made into medians and shares.
//
// Every pass ran twice, once leaving out the rows of dead neurons ("sparse") and once reading all
// rows ("dense"). Bytes and live shares are those of the sparse passes.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lacuna/trace.h"

namespace lacuna {

// One measurement: the passes of one decode step or of one prompt, and how long they took in all.
struct ProfileSample {
  double seconds = 0;
  std::vector<TraceStep> steps;
};

// Of one sample: seconds are medians over the samples, bytes are means.
struct Cost {
  double sparse_seconds = 0;
  double dense_seconds = 0;
  double weight_bytes = 0;
  double weight_bytes_dense = 0;
  double state_bytes = 0;

  double skipped_bytes() const { return weight_bytes_dense - weight_bytes; }
};

struct PartCost {
  std::string part;  // as the trace names it
  Cost cost;
};

// The part of neurons that were not exactly 0, from 0 to 1: over all samples, and in the samples
// with fewest and most.
struct LiveShare {
  double mean = 0, low = 0, high = 0;
};

struct LayerCost {
  int layer = -1;               // -1: what runs outside the layers
  std::string kind;             // as in ModelInfo::layer_kinds
  Cost cost;                    // its seconds are medians of whole layers, not sums of medians
  std::vector<PartCost> parts;  // in the order they ran
  std::optional<LiveShare> routed, shared;  // none where there are no such neurons
  // Of the down rows of the experts at work in a pass, the share that some token needed.
  std::optional<double> rows_needed;
};

// One part of one layer in the order it first ran.
struct TimelineStep {
  int layer = -1;
  std::string part;
  double seconds = 0;  // sparse, median
};

struct PhaseReport {
  int tokens = 0;   // of one sample
  int samples = 0;  // of each setting
  LayerCost whole;  // all passes together; its seconds are wall time, its parts sums over layers
  LayerCost outside;
  std::vector<LayerCost> layers;  // all of them, by number
  std::vector<TimelineStep> timeline;

  double sparse_tokens_per_second() const;
  double dense_tokens_per_second() const;
};

// The middle value, or the mean of the two in the middle; 0 of none.
double median(std::vector<double> values);

// a / b, and 0 when b is 0.
double ratio(double a, double b);

// Samples of both settings; `kinds` has a name per layer. A part that occurs several times in a
// sample counts with its sum, one that is missing from a sample counts as 0 there.
PhaseReport make_phase(std::span<const ProfileSample> sparse, std::span<const ProfileSample> dense,
                       int tokens, const std::vector<std::string>& kinds);

// The layers of one kind taken together.
struct KindCost {
  std::string kind;
  int layers = 0;
  Cost cost;  // sums
  std::vector<PartCost> parts;
};
std::vector<KindCost> by_kind(const PhaseReport& phase);  // kinds in order of appearance

// The parts from which rows were left out, over all layers; no seconds or bytes when there is none.
struct SkippingParts {
  std::vector<std::string> names;
  Cost cost;
};
SkippingParts skipping_parts(const PhaseReport& phase);

struct ProfileReport {
  std::string model, architecture, precision, isa, cpu;
  std::string version, date;  // of the program, of the run
  std::string text;           // what was read: a file, or "--prompt"
  int threads = 0;
  int prefill_chunk = 0;
  int own_tokens = 0;  // of the decoded tokens, those the model chose after the text had ended
  PhaseReport prompt, decode;
};

}  // namespace lacuna
