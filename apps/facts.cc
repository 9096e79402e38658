// SPDX-License-Identifier: Apache-2.0
#include "facts.h"

#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include "console.h"

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
          {"queries_gathered", c.gathered_queries},
          {"queries_masked", c.masked_queries},
          {"gb_per_second", read_gb_s(phase)}};
}

// Why nothing was drafted; empty when something was.
std::string drafts_off(const ModelInfo& model, const DraftPolicy& policy,
                       const GenerateResult& result) {
  if (result.drafts.offered > 0) return "";
  if (model.head_parameters == 0) return "the model has no drafting head";
  if (policy.fixed == 0) return "switched off";
  return result.drafts.steps > 0 && result.drafts.parked ? "they do not pay here at present"
                                                         : "the answer was too short";
}

Json drafts_json(const ModelInfo& model, const DraftPolicy& policy, const GenerateResult& result) {
  const DraftReport& d = result.drafts;
  Json json = {{"offered", d.offered}, {"accepted", d.accepted}};
  Json by_position = Json::array();
  for (int i = 0; i < kMostDrafts && d.offered_at[i] > 0; ++i)
    by_position.push_back({{"offered", d.offered_at[i]}, {"accepted", d.accepted_at[i]}});
  json["by_position"] = std::move(by_position);
  Json depths = Json::object();
  for (int depth = 0; depth <= kMostDrafts; ++depth)
    if (d.steps_of_depth[depth] > 0) depths[std::to_string(depth)] = d.steps_of_depth[depth];
  json["steps_by_depth"] = std::move(depths);
  json["gain"] = d.gain ? Json(*d.gain) : Json(nullptr);
  json["why"] = drafts_off(model, policy, result);
  return json;
}

std::string drafts_text(const ModelInfo& model, const DraftPolicy& policy,
                        const GenerateResult& result) {
  const DraftReport& d = result.drafts;
  if (const std::string why = drafts_off(model, policy, result); !why.empty())
    return "drafts off: " + why;
  std::string text = fmt::format("{} of {} drafts accepted", d.accepted, d.offered);
  if (d.gain) text += fmt::format(", {:.2f} times as fast", *d.gain);
  return text;
}

std::string megabytes(std::uint64_t bytes, int tokens) {
  return fmt::format("{:.3g}", ratio(static_cast<double>(bytes) / 1e6, tokens));
}

}  // namespace

bool can_draft(const ModelInfo& model, const DraftPolicy& policy) {
  return model.head_parameters > 0 && policy.fixed != 0;
}

void warn_of_drafts(const DraftReport& drafts) {
  if (!drafts.none_accepted) return;
  tell(
      fmt::format("warning: none of the last {} drafts was accepted; is the drafting head this "
                  "model's own? --draft off does without",
                  drafts.rejected_in_a_row));
}

Json stats_json(const ModelInfo& model, bool sparse_experts, const DraftPolicy& policy,
                const GenerateResult& result, double peak_gb_s) {
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
  stats["drafts"] = drafts_json(model, policy, result);
  stats["experts"] = sparse_experts ? "sparse" : "dense";
  stats["prefill"] = phase_json(result.prefill);
  stats["decode"] = phase_json(result.decode);
  stats["peak_gb_per_second"] = peak_gb_s > 0 ? Json(peak_gb_s) : Json(nullptr);
  stats["notes"] = model.notes;
  return stats;
}

std::string facts_line(const ModelInfo& model, const DraftPolicy& policy,
                       const GenerateResult& result, double peak_gb_s) {
  std::vector<std::string> parts;
  const Phase& prefill = result.prefill;
  const Phase& decode = result.decode;
  const std::string reused =
      result.sync.reused > 0 ? fmt::format(" ({} reused)", result.sync.reused) : "";
  parts.push_back(fmt::format("prompt {} tokens{}, {:.1f} tokens/s", result.prompt_tokens, reused,
                              per_second(prefill)));
  parts.push_back(
      fmt::format("answer {} tokens, {:.1f} tokens/s", result.tokens.size(), per_second(decode)));
  parts.push_back(drafts_text(model, policy, result));
  const Counters& c = decode.counters;
  const Counters both = prefill.counters + c;
  if (both.gathered_queries + both.masked_queries > 0) {
    parts.push_back(fmt::format("keys skipped for {} of {} queries past the indexer's limit",
                                both.gathered_queries,
                                both.gathered_queries + both.masked_queries));
  }
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
