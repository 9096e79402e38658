// SPDX-License-Identifier: Apache-2.0
#include "facts.h"

#include <fmt/format.h>

#include <vector>

namespace lacuna {
namespace {

using Json = nlohmann::ordered_json;

double ratio(double a, double b) { return b > 0 ? a / b : 0; }

double per_second(const Phase& phase) { return ratio(phase.tokens, phase.seconds); }

double read_gb_s(const Phase& phase) {
  const Counters& c = phase.counters;
  return ratio(static_cast<double>(c.weight_bytes + c.state_bytes) / 1e9, phase.seconds);
}

Json phase_json(const Phase& phase) {
  const Counters& c = phase.counters;
  return {{"tokens", phase.tokens},
          {"seconds", phase.seconds},
          {"tokens_per_second", per_second(phase)},
          {"passes", c.passes},
          {"neurons", c.neurons},
          {"neurons_skipped", c.neurons - c.live_neurons},
          {"weight_bytes", c.weight_bytes},
          {"weight_bytes_dense", c.weight_bytes_dense},
          {"state_bytes", c.state_bytes},
          {"gb_per_second", read_gb_s(phase)}};
}

std::string megabytes(std::uint64_t bytes, int tokens) {
  return fmt::format("{:.3g}", ratio(static_cast<double>(bytes) / 1e6, tokens));
}

}  // namespace

Json stats_json(const ModelInfo& model, bool sparse_experts, const GenerateResult& result,
                double peak_gb_s) {
  Json stats;
  stats["model"] = model.name;
  stats["precision"] = model.precision;
  stats["isa"] = model.isa;
  stats["threads"] = model.threads;
  stats["context"] = model.context;
  stats["seed"] = result.seed;
  stats["cache"] = {{"reused_tokens", result.sync.reused},
                    {"computed_tokens", result.sync.computed},
                    {"why", result.sync.why}};
  stats["drafts"] = {{"offered", 0}, {"accepted", 0}, {"why", kDraftsOff}};
  stats["experts"] = sparse_experts ? "sparse" : "dense";
  stats["prefill"] = phase_json(result.prefill);
  stats["decode"] = phase_json(result.decode);
  stats["peak_gb_per_second"] = peak_gb_s > 0 ? Json(peak_gb_s) : Json(nullptr);
  stats["notes"] = model.notes;
  return stats;
}

std::string facts_line(const GenerateResult& result, double peak_gb_s) {
  std::vector<std::string> parts;
  const Phase& prefill = result.prefill;
  const Phase& decode = result.decode;
  const std::string reused =
      result.sync.reused > 0 ? fmt::format(" ({} reused)", result.sync.reused) : "";
  parts.push_back(fmt::format("prompt {} tokens{}, {:.1f} tokens/s", result.prompt_tokens, reused,
                              per_second(prefill)));
  parts.push_back(
      fmt::format("answer {} tokens, {:.1f} tokens/s", result.tokens.size(), per_second(decode)));
  parts.push_back(fmt::format("drafts off: {}", kDraftsOff));
  const Counters& c = decode.counters;
  if (c.neurons > 0) {
    const double live = ratio(static_cast<double>(c.live_neurons), static_cast<double>(c.neurons));
    parts.push_back(fmt::format("{:.1f} % of neurons live", 100 * live));
  }
  if (decode.tokens > 0) {
    parts.push_back(fmt::format("{} of {} MB/token", megabytes(c.weight_bytes, decode.tokens),
                                megabytes(c.weight_bytes_dense, decode.tokens)));
    std::string speed = fmt::format("{:.1f} GB/s", read_gb_s(decode));
    if (peak_gb_s > 0) speed += fmt::format(" of {:.1f} measured", peak_gb_s);
    parts.push_back(speed);
  }
  return fmt::format("{}", fmt::join(parts, " | "));
}

}  // namespace lacuna
