// SPDX-License-Identifier: Apache-2.0
#include "profile_report.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <numeric>
#include <utility>

namespace lacuna {
namespace {

// One part of one layer in all samples.
struct Slot {
  int layer = -1;
  std::string part;
  std::vector<double> sparse, dense;  // seconds, by sample
  std::vector<Counters> counters;     // of the sparse samples
};

class Slots {
 public:
  Slots(std::span<const ProfileSample> sparse, std::span<const ProfileSample> dense)
      : sparse_samples_(sparse.size()), dense_samples_(dense.size()) {
    for (std::size_t i = 0; i < sparse.size(); ++i) {
      for (const TraceStep& step : sparse[i].steps) {
        Slot& slot = find(step);
        slot.sparse[i] += step.seconds;
        slot.counters[i] = slot.counters[i] + step.counters;
      }
    }
    for (std::size_t i = 0; i < dense.size(); ++i)
      for (const TraceStep& step : dense[i].steps) find(step).dense[i] += step.seconds;
  }

  const std::vector<Slot>& all() const { return slots_; }

 private:
  Slot& find(const TraceStep& step) {
    const auto [at, is_new] = index_.try_emplace({step.layer, step.part}, slots_.size());
    if (is_new) {
      slots_.push_back({step.layer, step.part, std::vector<double>(sparse_samples_),
                        std::vector<double>(dense_samples_),
                        std::vector<Counters>(sparse_samples_)});
    }
    return slots_[at->second];
  }

  std::size_t sparse_samples_, dense_samples_;
  std::vector<Slot> slots_;  // in order of appearance
  std::map<std::pair<int, std::string>, std::size_t> index_;
};

// Several slots added up sample by sample.
Slot sum_of(std::span<const Slot* const> slots) {
  Slot sum;
  for (const Slot* slot : slots) {
    sum.sparse.resize(slot->sparse.size());
    sum.dense.resize(slot->dense.size());
    sum.counters.resize(slot->counters.size());
    for (std::size_t i = 0; i < sum.sparse.size(); ++i) {
      sum.sparse[i] += slot->sparse[i];
      sum.counters[i] = sum.counters[i] + slot->counters[i];
    }
    for (std::size_t i = 0; i < sum.dense.size(); ++i) sum.dense[i] += slot->dense[i];
  }
  return sum;
}

Counters total(const std::vector<Counters>& counters) {
  return std::accumulate(counters.begin(), counters.end(), Counters());
}

Cost cost_of(const Slot& slot) {
  const Counters sum = total(slot.counters);
  const auto mean = [&](std::uint64_t bytes) {
    return ratio(static_cast<double>(bytes), static_cast<double>(slot.counters.size()));
  };
  return {median(slot.sparse), median(slot.dense), mean(sum.weight_bytes),
          mean(sum.weight_bytes_dense), mean(sum.state_bytes)};
}

double share(std::uint64_t part, std::uint64_t whole) {
  return ratio(static_cast<double>(part), static_cast<double>(whole));
}

// `count` gives live and all neurons of a Counters.
template <class Count>
std::optional<LiveShare> live_share(const std::vector<Counters>& samples, const Count& count) {
  const auto [live, all] = count(total(samples));
  if (all == 0) return std::nullopt;
  LiveShare result{share(live, all), 1, 0};
  for (const Counters& c : samples) {
    const auto [sample_live, sample_all] = count(c);
    if (sample_all == 0) continue;
    result.low = std::min(result.low, share(sample_live, sample_all));
    result.high = std::max(result.high, share(sample_live, sample_all));
  }
  return result;
}

LayerCost layer_cost(int layer, const std::string& kind, std::span<const Slot* const> slots) {
  const Slot sum = sum_of(slots);
  LayerCost result;
  result.layer = layer;
  result.kind = kind;
  result.cost = cost_of(sum);
  using Pair = std::pair<std::uint64_t, std::uint64_t>;
  result.routed = live_share(sum.counters, [](const Counters& c) {
    return Pair(c.live_neurons - c.shared_live_neurons, c.neurons - c.shared_neurons);
  });
  result.shared = live_share(sum.counters, [](const Counters& c) {
    return Pair(c.shared_live_neurons, c.shared_neurons);
  });
  const Counters all = total(sum.counters);
  if (all.expert_rows > 0) result.rows_needed = share(all.expert_rows_read, all.expert_rows);
  return result;
}

void add_part(std::vector<PartCost>& parts, const std::string& name, const Cost& cost) {
  const auto at =
      std::find_if(parts.begin(), parts.end(), [&](const PartCost& p) { return p.part == name; });
  Cost& to = at != parts.end() ? at->cost : parts.emplace_back(PartCost{name, {}}).cost;
  to.sparse_seconds += cost.sparse_seconds;
  to.dense_seconds += cost.dense_seconds;
  to.weight_bytes += cost.weight_bytes;
  to.weight_bytes_dense += cost.weight_bytes_dense;
  to.state_bytes += cost.state_bytes;
}

double median_seconds(std::span<const ProfileSample> samples) {
  std::vector<double> seconds;
  for (const ProfileSample& sample : samples) seconds.push_back(sample.seconds);
  return median(std::move(seconds));
}

}  // namespace

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 != 0 ? values[half] : (values[half - 1] + values[half]) / 2;
}

double ratio(double a, double b) { return b > 0 ? a / b : 0; }

double PhaseReport::sparse_tokens_per_second() const {
  return ratio(tokens, whole.cost.sparse_seconds);
}

double PhaseReport::dense_tokens_per_second() const {
  return ratio(tokens, whole.cost.dense_seconds);
}

PhaseReport make_phase(std::span<const ProfileSample> sparse, std::span<const ProfileSample> dense,
                       int tokens, const std::vector<std::string>& kinds) {
  const Slots slots(sparse, dense);
  const int layers = static_cast<int>(kinds.size());
  std::vector<const Slot*> every, outside;
  std::vector<std::vector<const Slot*>> by_layer(kinds.size());
  for (const Slot& slot : slots.all()) {
    every.push_back(&slot);
    const bool inside = slot.layer >= 0 && slot.layer < layers;
    (inside ? by_layer[slot.layer] : outside).push_back(&slot);
  }

  PhaseReport phase;
  phase.tokens = tokens;
  phase.samples = static_cast<int>(sparse.size());
  phase.whole = layer_cost(-1, "", every);
  phase.whole.cost.sparse_seconds = median_seconds(sparse);
  phase.whole.cost.dense_seconds = median_seconds(dense);
  phase.outside = layer_cost(-1, "", outside);
  for (int i = 0; i < layers; ++i) phase.layers.push_back(layer_cost(i, kinds[i], by_layer[i]));
  for (const Slot& slot : slots.all()) {
    const bool inside = slot.layer >= 0 && slot.layer < layers;
    const Cost cost = cost_of(slot);
    add_part(inside ? phase.layers[slot.layer].parts : phase.outside.parts, slot.part, cost);
    add_part(phase.whole.parts, slot.part, cost);
    phase.timeline.push_back({inside ? slot.layer : -1, slot.part, cost.sparse_seconds});
  }
  return phase;
}

std::vector<KindCost> by_kind(const PhaseReport& phase) {
  std::vector<KindCost> kinds;
  std::vector<PartCost> sums;  // whole layers, named by their kind
  for (const LayerCost& layer : phase.layers) {
    auto at = std::find_if(kinds.begin(), kinds.end(),
                           [&](const KindCost& k) { return k.kind == layer.kind; });
    if (at == kinds.end()) at = kinds.insert(kinds.end(), KindCost{layer.kind, 0, {}, {}});
    ++at->layers;
    for (const PartCost& part : layer.parts) add_part(at->parts, part.part, part.cost);
    add_part(sums, layer.kind, layer.cost);
  }
  for (std::size_t i = 0; i < kinds.size(); ++i) kinds[i].cost = sums[i].cost;
  return kinds;
}

SkippingParts skipping_parts(const PhaseReport& phase) {
  SkippingParts result;
  std::vector<PartCost> sum;
  for (const PartCost& part : phase.whole.parts) {
    if (part.cost.skipped_bytes() <= 0) continue;
    result.names.push_back(part.part);
    add_part(sum, "", part.cost);
  }
  if (!sum.empty()) result.cost = sum[0].cost;
  return result;
}

}  // namespace lacuna
