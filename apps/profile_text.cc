// SPDX-License-Identifier: Apache-2.0
#include "profile_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace lacuna {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kNone = "–";
constexpr std::size_t kColumns = 100;

// A file may give a model any name; a terminal must not obey it.
std::string printable(std::string text) {
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
  return text;
}

// Lines of at most kColumns bytes, where words allow it.
std::string wrapped(const std::string& text) {
  std::string out;
  std::size_t column = 0;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t end = std::min(text.find(' ', at), text.size());
    if (text.compare(end, 2, " %") == 0) end = std::min(text.find(' ', end + 1), text.size());
    const std::size_t length = end - at;
    if (column > 0 && column + 1 + length > kColumns) {
      out += '\n';
      column = 0;
    }
    if (column > 0) out += ' ';
    column += length + (column > 0);
    out += text.substr(at, length);
    at = end + 1;
  }
  return out + "\n";
}

template <class Value, class Format>
std::string or_none(const std::optional<Value>& value, const Format& format) {
  return value ? format(*value) : kNone;
}

std::string number_of_percent(double share) { return fmt::format("{:.1f}", 100 * share); }

double longest(const PhaseReport& phase) {
  double seconds = 0;
  for (const LayerCost& layer : phase.layers)
    seconds = std::max({seconds, layer.cost.sparse_seconds, layer.cost.dense_seconds});
  return seconds;
}

double largest(const PhaseReport& phase) {
  double bytes = 0;
  for (const LayerCost& layer : phase.layers)
    bytes = std::max(bytes, layer.cost.weight_bytes_dense);
  return bytes;
}

std::string head(const ProfileReport& r) {
  return wrapped(printable(fmt::format("{} ({}), {}, {} threads, {} kernels, {}", r.model,
                                       r.architecture, r.cpu, r.threads, r.isa, r.precision))) +
         wrapped(
             printable(fmt::format("{}: {} prompt tokens x {}, {} decoded tokens; medians", r.text,
                                   r.prompt.tokens, r.prompt.samples, r.decode.samples))) +
         "\n";
}

std::string layer_table(const ProfileReport& r) {
  const Unit decode = time_unit(longest(r.decode));
  const Unit prompt = time_unit(longest(r.prompt));
  const Unit bytes = byte_unit(largest(r.decode));
  std::string table = fmt::format("{:5}  {:9}  {:^15}  {:^17}  {:^17}  {:^17}  {:>6}\n", "", "",
                                  "live %", fmt::format("{} of weights", bytes.name),
                                  fmt::format("decode step, {}", decode.name),
                                  fmt::format("prompt, {}", prompt.name), "needed");
  table += fmt::format("{:>5}  {:9}  {:>7} {:>7}  {:>8} {:>8}  {:>8} {:>8}  {:>8} {:>8}  {:>6}\n",
                       "layer", "kind", "routed", "shared", "read", "dense", "sparse", "dense",
                       "sparse", "dense", "rows %");
  for (std::size_t i = 0; i < r.decode.layers.size(); ++i) {
    const LayerCost& d = r.decode.layers[i];
    const LayerCost& p = r.prompt.layers[i];
    const auto mean = [](const LiveShare& s) { return number_of_percent(s.mean); };
    table += fmt::format("{:>5}  {:9}  {:>7} {:>7}  {:>8} {:>8}  {:>8} {:>8}  {:>8} {:>8}  {:>6}\n",
                         d.layer, d.kind, or_none(d.routed, mean), or_none(d.shared, mean),
                         bytes.number(d.cost.weight_bytes), bytes.number(d.cost.weight_bytes_dense),
                         decode.number(d.cost.sparse_seconds), decode.number(d.cost.dense_seconds),
                         prompt.number(p.cost.sparse_seconds), prompt.number(p.cost.dense_seconds),
                         or_none(p.rows_needed, number_of_percent));
  }
  return table + "\n";
}

// "in_proj 80.1, scan 50.2, …", the longest first, as far as the line has room.
std::string part_list(std::vector<PartCost> parts, const Unit& unit, std::size_t room) {
  std::stable_sort(parts.begin(), parts.end(), [](const PartCost& a, const PartCost& b) {
    return a.cost.sparse_seconds > b.cost.sparse_seconds;
  });
  std::string list;
  for (const PartCost& part : parts) {
    const std::string item = fmt::format("{}{} {}", list.empty() ? "" : ", ", part.part,
                                         unit.number(part.cost.sparse_seconds));
    if (list.size() + item.size() > room) break;
    list += item;
  }
  return list;
}

std::string kind_table(const PhaseReport& decode) {
  const Unit unit = time_unit(decode.whole.cost.sparse_seconds);
  const Unit bytes = byte_unit(largest(decode));
  std::string table =
      fmt::format("decode step by kind of layer, {} and {}: mean of a layer, then all of them\n",
                  bytes.name, unit.name);
  const auto row = [&](const std::string& kind, int n, const Cost& cost,
                       const std::vector<PartCost>& parts) {
    std::string line =
        fmt::format("{:>5} {:10} {:>8} {:>8} {:>9} {:>8}   ", n > 0 ? fmt::format("{} x", n) : "",
                    kind, n > 0 ? bytes.number(cost.weight_bytes / n) : "",
                    n > 0 ? unit.number(cost.sparse_seconds / n) : "",
                    bytes.number(cost.weight_bytes), unit.number(cost.sparse_seconds));
    return line + part_list(parts, unit, kColumns - line.size()) + "\n";
  };
  for (const KindCost& kind : by_kind(decode))
    table += row(kind.kind, kind.layers, kind.cost, kind.parts);
  return table + row("outside", 0, decode.outside.cost, decode.outside.parts) + "\n";
}

std::string sentence_reading(const PhaseReport& decode) {
  const Cost& all = decode.whole.cost;
  const Unit unit = byte_unit(all.weight_bytes_dense);
  const SkippingParts skipping = skipping_parts(decode);
  if (skipping.names.empty()) {
    return fmt::format("A decode step reads {} of weights; no part of this model leaves rows out.",
                       unit.text(all.weight_bytes));
  }
  return fmt::format(
      "A decode step reads {} of {} of weights, {} less than with all rows; the rows are left out "
      "in {}, which reads {} of {}.",
      unit.number(all.weight_bytes), unit.text(all.weight_bytes_dense),
      percent(ratio(all.skipped_bytes(), all.weight_bytes_dense)),
      fmt::join(skipping.names, " and "), unit.number(skipping.cost.weight_bytes),
      unit.text(skipping.cost.weight_bytes_dense));
}

// Empty when the model has no ReLU² neurons.
std::string sentence_live(const PhaseReport& decode) {
  const LayerCost* low = nullptr;
  const LayerCost* high = nullptr;
  for (const LayerCost& layer : decode.layers) {
    if (!layer.routed) continue;
    if (low == nullptr || layer.routed->mean < low->routed->mean) low = &layer;
    if (high == nullptr || layer.routed->mean > high->routed->mean) high = &layer;
  }
  const auto mean = [](const LiveShare& s) { return percent(s.mean); };
  const std::string shared = decode.whole.shared ? fmt::format("{} of the shared expert's",
                                                               percent(decode.whole.shared->mean))
                                                 : "";
  if (low == nullptr) {
    return shared.empty() ? "" : fmt::format("Of the neurons {} are not exactly 0.", shared);
  }
  const std::string range = low == high ? ""
                                        : fmt::format(" (from {} in layer {} to {} in layer {})",
                                                      percent(low->routed->mean), low->layer,
                                                      percent(high->routed->mean), high->layer);
  return fmt::format("Of the routed experts' neurons {} are not exactly 0{}{}.",
                     or_none(decode.whole.routed, mean), range,
                     shared.empty() ? "" : ", and " + shared);
}

std::string sentence_decode(const PhaseReport& decode) {
  const Cost& cost = decode.whole.cost;
  const Unit unit = time_unit(std::max(cost.sparse_seconds, cost.dense_seconds));
  std::string text =
      skipping_parts(decode).names.empty()
          ? fmt::format("A decode step takes {}", unit.text(cost.sparse_seconds))
          : fmt::format("Leaving rows out takes the step from {} to {} ({:.2f} times as fast)",
                        unit.text(cost.dense_seconds), unit.text(cost.sparse_seconds),
                        ratio(cost.dense_seconds, cost.sparse_seconds));
  const auto& parts = decode.whole.parts;
  const auto most = std::max_element(parts.begin(), parts.end(), [](const auto& a, const auto& b) {
    return a.cost.sparse_seconds < b.cost.sparse_seconds;
  });
  if (most == parts.end()) return text + ".";
  double sum = 0;
  for (const PartCost& part : parts) sum += part.cost.sparse_seconds;
  return text + fmt::format("; its longest part is {}: {}, {} of the sum of parts.", most->part,
                            unit.text(most->cost.sparse_seconds),
                            percent(ratio(most->cost.sparse_seconds, sum)));
}

std::string sentence_prompt(const PhaseReport& prompt) {
  std::string text = fmt::format("The prompt of {} tokens runs at {} tokens/s, with all rows at {}",
                                 prompt.tokens, significant(prompt.sparse_tokens_per_second()),
                                 significant(prompt.dense_tokens_per_second()));
  if (!prompt.whole.rows_needed) return text + ".";
  return text +
         fmt::format("; of the down rows of the experts at work {} are needed by some token.",
                     percent(*prompt.whole.rows_needed));
}

Json seconds_json(const Cost& cost) {
  return {{"sparse", cost.sparse_seconds}, {"dense", cost.dense_seconds}};
}

Json cost_json(const Cost& cost) {
  return {{"seconds", seconds_json(cost)},
          {"weight_bytes", cost.weight_bytes},
          {"weight_bytes_dense", cost.weight_bytes_dense},
          {"state_bytes", cost.state_bytes}};
}

Json live_json(const std::optional<LiveShare>& share) {
  if (!share) return nullptr;
  return {{"mean", share->mean}, {"low", share->low}, {"high", share->high}};
}

Json layer_json(const LayerCost& layer) {
  Json json = cost_json(layer.cost);
  json["live"] = {{"routed", live_json(layer.routed)}, {"shared", live_json(layer.shared)}};
  json["rows_needed"] = layer.rows_needed ? Json(*layer.rows_needed) : Json(nullptr);
  json["parts"] = Json::array();
  for (const PartCost& part : layer.parts) {
    json["parts"].push_back({{"part", part.part}});
    json["parts"].back().update(cost_json(part.cost));
  }
  return json;
}

Json phase_json(const PhaseReport& phase) {
  Json json = {
      {"tokens", phase.tokens},
      {"samples", phase.samples},
      {"tokens_per_second",
       {{"sparse", phase.sparse_tokens_per_second()}, {"dense", phase.dense_tokens_per_second()}}}};
  json.update(layer_json(phase.whole));
  json["outside"] = layer_json(phase.outside);
  json["layers"] = Json::array();
  for (const LayerCost& layer : phase.layers) {
    json["layers"].push_back({{"layer", layer.layer}, {"kind", layer.kind}});
    json["layers"].back().update(layer_json(layer));
  }
  return json;
}

}  // namespace

std::string significant(double value) {
  if (value == 0) return "0";
  int decimals = 2;  // of 1.23
  for (double size = value; size >= 9.995 && decimals > 0; size /= 10) --decimals;
  for (double size = value; size < 0.9995 && decimals < 6; size *= 10) ++decimals;
  return fmt::format("{:.{}f}", value, decimals);
}

std::string percent(double share) { return number_of_percent(share) + " %"; }

Unit time_unit(double largest_seconds) {
  if (largest_seconds >= 1) return {"s", 1};
  return largest_seconds >= 1e-3 ? Unit{"ms", 1e-3} : Unit{"µs", 1e-6};
}

Unit byte_unit(double largest_bytes) {
  return largest_bytes >= 1e6 ? Unit{"MB", 1e6} : Unit{"kB", 1e3};
}

std::vector<std::string> profile_sentences(const ProfileReport& report) {
  std::vector<std::string> sentences = {sentence_reading(report.decode)};
  if (std::string live = sentence_live(report.decode); !live.empty())
    sentences.push_back(std::move(live));
  sentences.push_back(sentence_decode(report.decode));
  sentences.push_back(sentence_prompt(report.prompt));
  return sentences;
}

std::string profile_text(const ProfileReport& report) {
  std::string text = head(report) + layer_table(report) + kind_table(report.decode);
  std::string all;
  for (const std::string& sentence : profile_sentences(report))
    all += (all.empty() ? "" : " ") + sentence;
  return text + wrapped(all);
}

Json profile_json(const ProfileReport& r) {
  Json json = {{"model", r.model},
               {"architecture", r.architecture},
               {"version", r.version},
               {"date", r.date},
               {"cpu", r.cpu},
               {"isa", r.isa},
               {"threads", r.threads},
               {"precision", r.precision},
               {"prefill_chunk", r.prefill_chunk},
               {"text", r.text},
               {"own_tokens", r.own_tokens},
               {"decode", phase_json(r.decode)},
               {"prompt", phase_json(r.prompt)}};
  json["decode"]["timeline"] = Json::array();
  double start = 0;
  for (const TimelineStep& step : r.decode.timeline) {
    json["decode"]["timeline"].push_back(
        {{"layer", step.layer < 0 ? Json(nullptr) : Json(step.layer)},
         {"part", step.part},
         {"start", start},
         {"seconds", step.seconds}});
    start += step.seconds;
  }
  json["sentences"] = profile_sentences(r);
  return json;
}

}  // namespace lacuna
