// SPDX-License-Identifier: Apache-2.0
#include "bench_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

namespace lacuna {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kUnknown = "–";
constexpr int kDraftColumns = 8;  // where they go when there are any: behind experts

double ratio(double a, double b) { return b > 0 ? a / b : 0; }

Json or_null(const std::optional<double>& value) { return value ? Json(*value) : Json(nullptr); }

std::uint64_t rounded(double value) { return static_cast<std::uint64_t>(std::llround(value)); }

std::string dump(const Json& json, int indent = -1) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

const char* experts(const BenchRow& row) { return row.sparse ? "sparse" : "dense"; }

bool any_drafts(const BenchRun& run) {
  return std::any_of(run.rows.begin(), run.rows.end(),
                     [](const BenchRow& r) { return r.drafts(); });
}

Json row_json(const BenchRun& run, const BenchRow& row) {
  const RowStats s = row_stats(row);
  Json samples_ns = Json::array();
  for (const BenchSample& sample : row.samples) samples_ns.push_back(sample.ns);
  const char* const cache = run.model.precision == "f32" ? "f32" : "bf16";
  const Json replayed = row.drafts() ? or_null(run.accept) : Json(nullptr);
  return {{"build_commit", run.build_commit},
          {"build_number", run.build_number},
          {"cpu_info", run.cpu},
          {"gpu_info", ""},
          {"backends", "CPU"},
          {"model_filename", run.model_path},
          {"model_type", run.model.name},
          {"model_size", run.model.weight_bytes},
          {"model_n_params", run.model.parameters},
          {"n_batch", run.batch},
          {"n_ubatch", run.batch},
          {"n_threads", run.model.threads},
          {"type_k", cache},
          {"type_v", cache},
          {"n_prompt", row.test.prompt},
          {"n_gen", row.test.gen},
          {"n_depth", row.test.depth},
          {"test_time", row.test_time},
          {"avg_ns", rounded(mean_of(s.ns))},
          {"stddev_ns", rounded(deviation_of(s.ns))},
          {"avg_ts", mean_of(s.tokens_per_second)},
          {"stddev_ts", deviation_of(s.tokens_per_second)},
          {"samples_ns", samples_ns},
          {"samples_ts", s.tokens_per_second},
          {"experts", experts(row)},
          {"precision", run.model.precision},
          {"isa", run.model.isa},
          {"synthetic", run.synthetic},
          {"text", run.text},
          {"live_fraction", or_null(s.live)},
          {"live_fraction_shared", or_null(s.live_shared)},
          {"bytes_per_token", s.bytes_per_token},
          {"bytes_per_token_dense", s.bytes_per_token_dense},
          {"state_bytes_per_token", s.state_bytes_per_token},
          {"gb_s", s.gb_s},
          {"peak_gb_s", or_null(s.peak_gb_s)},
          {"peak_gb_s_samples", s.peaks},
          {"fraction_of_peak", or_null(s.fraction_of_peak)},
          {"draft", row.draft},
          {"draft_steps", row.draft_steps},
          {"draft_offered", row.draft_offered},
          {"draft_accept", row.draft_accepted},
          {"draft_replayed", replayed},
          {"peak_rss", run.peak_rss}};
}

std::vector<Json> rows_json(const BenchRun& run) {
  std::vector<Json> rows;
  for (const BenchRow& row : run.rows) rows.push_back(row_json(run, row));
  return rows;
}

// `quote` around, and twice where the text has one: what CSV and SQL agree on.
std::string quoted(const std::string& text, char quote) {
  std::string result(1, quote);
  for (const char c : text) {
    result += c;
    if (c == quote) result += quote;
  }
  return result + quote;
}

// A list becomes one text, its numbers joined by ';'.
Json flat(const Json& value) {
  if (!value.is_array()) return value;
  std::string text;
  for (const Json& element : value) text += (text.empty() ? "" : ";") + dump(element);
  return text;
}

// A value without quotes and escapes; nothing for null.
std::string plain(const Json& value) {
  if (value.is_null()) return "";
  return value.is_string() ? value.get<std::string>() : dump(value);
}

const char* sql_type(const Json& value) {
  if (value.is_string() || value.is_array()) return "TEXT";
  return value.is_number_integer() ? "INTEGER" : "REAL";  // null stands for a number
}

std::string speed_cell(const RowStats& s) {
  return fmt::format("{:.2f} ± {:.2f}", mean_of(s.tokens_per_second),
                     deviation_of(s.tokens_per_second));
}

std::string spread_cell(const Spread& s, int digits) {
  return fmt::format("{:.{}f} ({:.{}f}–{:.{}f})", s.median, digits, s.min, digits, s.max, digits);
}

std::string percent_cell(const std::optional<double>& share) {
  return share ? fmt::format("{:.1f}", 100 * *share) : kUnknown;
}

std::string size_cell(std::uint64_t bytes) {
  const double mib = static_cast<double>(bytes) / (1 << 20);
  return mib < 1024 ? fmt::format("{:.2f} MiB", mib) : fmt::format("{:.2f} GiB", mib / 1024);
}

std::string count_cell(std::uint64_t count) {
  const double millions = static_cast<double>(count) / 1e6;
  return millions < 1000 ? fmt::format("{:.2f} M", millions)
                         : fmt::format("{:.2f} B", millions / 1000);
}

// A name may hold what would end a cell or a line.
std::string text_cell(const std::string& text) {
  std::string cell;
  for (const char c : text) {
    if (c == '|') cell += '\\';
    cell += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? ' ' : c;
  }
  return cell;
}

std::string accepted_cell(const BenchRow& row) {
  if (!row.drafts() || row.draft_steps == 0) return kUnknown;
  const double steps = static_cast<double>(row.draft_steps);
  return fmt::format("{:.2f} of {:.2f}", static_cast<double>(row.draft_accepted) / steps,
                     static_cast<double>(row.draft_offered) / steps);
}

using Cells = std::vector<std::string>;

Cells header_cells(const BenchRun& run) {
  Cells cells = {"model",
                 "size",
                 "params",
                 "backend",
                 "threads",
                 "test",
                 "t/s",
                 "experts",
                 "t/s median (min–max)",
                 "live %",
                 "MB/token (of dense)",
                 "GB/s",
                 "peak GB/s",
                 "% of peak"};
  if (any_drafts(run)) cells.insert(cells.begin() + kDraftColumns, {"drafts", "accepted a step"});
  return cells;
}

Cells row_cells(const BenchRun& run, const BenchRow& row) {
  const RowStats s = row_stats(row);
  Cells cells = {
      text_cell(run.model.name),
      size_cell(run.model.weight_bytes),
      count_cell(run.model.parameters),
      "CPU",
      std::to_string(run.model.threads),
      row.test.label(),
      speed_cell(s),
      experts(row),
      spread_cell(s.speed, 2),
      percent_cell(s.live),
      fmt::format("{:.2f} of {:.2f}", s.bytes_per_token / 1e6, s.bytes_per_token_dense / 1e6),
      fmt::format("{:.2f}", s.gb_s),
      s.peak_gb_s ? fmt::format("{:.2f}", *s.peak_gb_s) : kUnknown,
      percent_cell(s.fraction_of_peak)};
  if (any_drafts(run)) cells.insert(cells.begin() + kDraftColumns, {row.draft, accepted_cell(row)});
  return cells;
}

// Characters as a terminal shows them: one for each byte that begins one.
std::size_t width(const std::string& text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

// The first column to the left, all others to the right.
std::string table(const std::vector<Cells>& rows) {
  std::vector<std::size_t> widths(rows[0].size(), 4);
  for (const Cells& cells : rows)
    for (std::size_t i = 0; i < cells.size(); ++i) widths[i] = std::max(widths[i], width(cells[i]));
  const auto line = [&](const Cells& cells) {
    std::string text = "|";
    for (std::size_t i = 0; i < cells.size(); ++i) {
      const std::string room(widths[i] - width(cells[i]), ' ');
      text += i == 0 ? " " + cells[i] + room + " |" : " " + room + cells[i] + " |";
    }
    return text + "\n";
  };
  Cells rule;
  for (std::size_t i = 0; i < widths.size(); ++i)
    rule.push_back(std::string(widths[i] - 1, '-') + (i == 0 ? "-" : ":"));
  std::string text = line(rows[0]) + line(rule);
  for (std::size_t i = 1; i < rows.size(); ++i) text += line(rows[i]);
  return text;
}

// The row over that of the same test in another setting; nothing where that did not run.
std::optional<Spread> gain_over(const std::vector<BenchRow>& rows, const BenchRow& row, bool sparse,
                                const std::string& draft) {
  const auto other = std::find_if(rows.begin(), rows.end(), [&](const BenchRow& r) {
    return r.test == row.test && r.sparse == sparse && r.draft == draft;
  });
  if (other == rows.end()) return {};
  std::vector<double> ratios;
  for (std::size_t r = 0; r < std::min(row.samples.size(), other->samples.size()); ++r) {
    ratios.push_back(
        ratio(static_cast<double>(other->samples[r].ns), static_cast<double>(row.samples[r].ns)));
  }
  return spread_of(ratios);
}

std::string probe_line(const BenchRun& run) {
  std::vector<double> peaks;
  for (const BenchRow& row : run.rows) {
    const RowStats s = row_stats(row);
    peaks.insert(peaks.end(), s.peaks.begin(), s.peaks.end());
  }
  if (peaks.empty()) return "- memory read: not measured, too little memory is free\n";
  return fmt::format("- memory read: {} GB/s, {} probes around the samples\n",
                     spread_cell(spread_of(peaks), 1), peaks.size());
}

std::string lines_below(const BenchRun& run) {
  const std::size_t rounds = run.rows[0].samples.size();
  std::string text = fmt::format("- machine: {}, {} threads, {}, {}\n", run.cpu, run.model.threads,
                                 run.model.isa, run.model.precision);
  text += fmt::format("- rounds: {}, every test and setting in turn; text: {}\n", rounds, run.text);
  text += probe_line(run);
  for (const Gain& gain : gains(run.rows))
    text += fmt::format("- {}: {}\n", gain.label, spread_cell(gain.ratio, 3));
  if (any_drafts(run) && run.accept) {
    text += fmt::format(
        "- drafts: acceptance replayed, {} of 2 right in the mean; the head's guesses only cost "
        "time\n",
        *run.accept);
  }
  text +=
      fmt::format("- peak resident memory: {:.1f} MB\n", static_cast<double>(run.peak_rss) / 1e6);
  if (!run.synthetic.empty()) {
    text +=
        fmt::format("- checkpoint: synthetic, no trained weights: {}\n", text_cell(run.synthetic));
  }
  text += fmt::format("- build: {} ({})\n", run.build_commit, run.build_number);
  return text;
}

}  // namespace

Spread spread_of(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  const double median =
      values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
  return {median, values.front(), values.back()};
}

double mean_of(const std::vector<double>& values) {
  return ratio(std::accumulate(values.begin(), values.end(), 0.0),
               static_cast<double>(values.size()));
}

double deviation_of(const std::vector<double>& values) {
  if (values.size() < 2) return 0;
  const double mean = mean_of(values);
  double squares = 0;
  for (const double v : values) squares += (v - mean) * (v - mean);
  return std::sqrt(squares / static_cast<double>(values.size() - 1));
}

RowStats row_stats(const BenchRow& row) {
  RowStats s;
  for (const BenchSample& sample : row.samples) {
    const double ns = static_cast<double>(sample.ns);
    s.ns.push_back(ns);
    s.tokens_per_second.push_back(ratio(row.test.tokens() * 1e9, ns));
    for (const double peak : {sample.peak_before, sample.peak_after})
      if (peak > 0) s.peaks.push_back(peak);
  }
  s.speed = spread_of(s.tokens_per_second);
  const Counters& c = row.counters;
  const double samples = static_cast<double>(row.samples.size());
  const double tokens = samples * row.test.tokens();
  s.bytes_per_token = ratio(static_cast<double>(c.weight_bytes), tokens);
  s.bytes_per_token_dense = ratio(static_cast<double>(c.weight_bytes_dense), tokens);
  s.state_bytes_per_token = ratio(static_cast<double>(c.state_bytes), tokens);
  const double bytes = static_cast<double>(c.weight_bytes + c.state_bytes);
  s.gb_s = ratio(bytes / samples, spread_of(s.ns).median);  // bytes per ns
  if (!s.peaks.empty()) s.peak_gb_s = spread_of(s.peaks).median;
  if (s.peak_gb_s && row.test.prompt == 0) s.fraction_of_peak = s.gb_s / *s.peak_gb_s;
  const auto share = [](std::uint64_t part, std::uint64_t whole) {
    return static_cast<double>(part) / static_cast<double>(whole);
  };
  if (c.neurons > 0) s.live = share(c.live_neurons, c.neurons);
  if (c.shared_neurons > 0) s.live_shared = share(c.shared_live_neurons, c.shared_neurons);
  return s;
}

std::vector<Gain> gains(const std::vector<BenchRow>& rows) {
  std::vector<Gain> gains;
  for (const BenchRow& row : rows) {
    if (!row.sparse) continue;
    const std::string drafts = row.drafts() ? fmt::format(" drafts {}", row.draft) : "";
    if (const auto ratio = gain_over(rows, row, false, row.draft))
      gains.push_back({fmt::format("sparse/dense {}{}", row.test.label(), drafts), *ratio});
  }
  for (const BenchRow& row : rows) {
    if (!row.drafts()) continue;
    if (const auto ratio = gain_over(rows, row, row.sparse, "off")) {
      gains.push_back(
          {fmt::format("drafts {}/off {} {}", row.draft, row.test.label(), experts(row)), *ratio});
    }
  }
  return gains;
}

std::string bench_markdown(const BenchRun& run) {
  std::vector<Cells> rows = {header_cells(run)};
  for (const BenchRow& row : run.rows) rows.push_back(row_cells(run, row));
  return table(rows) + "\n" + lines_below(run);
}

std::string bench_json(const BenchRun& run) { return dump(Json(rows_json(run)), 2) + "\n"; }

std::string bench_jsonl(const BenchRun& run) {
  std::string text;
  for (const Json& row : rows_json(run)) text += dump(row) + "\n";
  return text;
}

std::string bench_csv(const BenchRun& run) {
  std::string text;
  for (const Json& row : rows_json(run)) {
    Cells names, values;
    for (const auto& [name, value] : row.items()) {
      names.push_back(name);
      values.push_back(quoted(plain(flat(value)), '"'));
    }
    if (text.empty()) text = fmt::format("{}\n", fmt::join(names, ","));
    text += fmt::format("{}\n", fmt::join(values, ","));
  }
  return text;
}

std::string bench_sql(const BenchRun& run) {
  std::string text;
  for (const Json& row : rows_json(run)) {
    Cells columns, names, values;
    for (const auto& [name, value] : row.items()) {
      columns.push_back(fmt::format("  {} {}", name, sql_type(value)));
      names.push_back(name);
      const Json one = flat(value);
      values.push_back(one.is_string() ? quoted(one.get<std::string>(), '\'')
                                       : (one.is_null() ? "NULL" : dump(one)));
    }
    if (text.empty()) {
      text = fmt::format("CREATE TABLE IF NOT EXISTS lacuna_bench (\n{}\n);\n",
                         fmt::join(columns, ",\n"));
    }
    text += fmt::format("INSERT INTO lacuna_bench ({}) VALUES ({});\n", fmt::join(names, ", "),
                        fmt::join(values, ", "));
  }
  return text;
}

}  // namespace lacuna
