// SPDX-License-Identifier: Apache-2.0
// lacuna bench: how fast prompts are read and tokens decoded, with rows skipped and with all read,
// with drafts and without.
//
// In every round each test runs in every setting, one after the other, so that a machine that
// changes its speed changes it for all; the memory's read speed is measured before and after each
// sample. Decoding is forced along the text: every setting decodes the same tokens.
#include <fmt/chrono.h>
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "bandwidth.h"
#include "base/cpu.h"
#include "base/mmap.h"
#include "bench_plan.h"
#include "bench_report.h"
#include "commands.h"
#include "console.h"
#include "decode/conversation.h"
#include "decode/draft_control.h"
#include "lacuna/session.h"
#include "open_model.h"
#include "sample_text.h"

namespace lacuna {
namespace {

constexpr std::uint64_t kRandomSeed = 1;

using Clock = std::chrono::steady_clock;

double seconds(Clock::duration d) { return std::chrono::duration<double>(d).count(); }

struct BenchFlags {
  ModelFlags model;
  BenchPlan plan;
  std::string experts = "sparse,dense", drafts = "off";
  std::optional<double> accept;  // of two drafts, whatever the head guessed
  int rounds = 5;
  std::string output = "md";
  std::string text;
  bool random = false;
  bool no_warmup = false;
  bool progress = false;
};

// Not getrusage, whose number may be that of the program which started this one. 0: unknown.
std::uint64_t peak_rss_bytes() {
  std::ifstream status("/proc/self/status");
  std::string name;
  std::uint64_t kib = 0;
  for (std::string line; std::getline(status, line);)
    if (std::istringstream words(line); words >> name >> kib && name == "VmHWM:") return kib << 10;
  return 0;
}

std::string time_now() {
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)));
}

// What config.json of a checkpoint made for measuring says of itself.
std::string synthetic_note(const std::filesystem::path& folder) {
  const auto text = read_text_file(folder / "config.json");
  if (!text.ok()) return "";
  const auto config = nlohmann::json::parse(*text, nullptr, /*allow_exceptions=*/false);
  const auto note = config.is_object() ? config.find("lacuna_synthetic") : config.end();
  return note != config.end() && note->is_string() ? note->get<std::string>() : "";
}

// `count` ids: the text's, again from its start when it is short, or drawn at random.
Result<std::vector<int>> bench_tokens(const Engine& engine, const SampleText& sample, bool random,
                                      int count) {
  std::vector<int> tokens(count);
  if (random) {
    std::mt19937_64 generator(kRandomSeed);
    for (int& id : tokens) id = static_cast<int>(generator() % engine.info().vocabulary);
    return tokens;
  }
  const std::vector<int> text = encode_text(engine.tokenizer(), sample.text);
  if (text.empty()) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{}: the tokenizer makes no token of it", sample.name)};
  }
  for (int i = 0; i < count; ++i) tokens[i] = text[i % text.size()];
  return tokens;
}

// One way to read experts and to draft, with the timelines it needs. A test at depth 0 starts a
// timeline anew and so forgets what was kept; the deep ones have another, which goes back to each
// depth.
struct Setting {
  bool sparse;
  std::string draft;
  DraftPolicy policy;
  std::unique_ptr<Session> fresh, deep;

  Session& session(const BenchTest& test) const { return test.depth > 0 ? *deep : *fresh; }
  std::string label() const {
    const char* const experts = sparse ? "sparse" : "dense";
    return draft == "off" ? experts : fmt::format("{} drafts {}", experts, draft);
  }
};

// A row in the making, and what its samples have learned of drafting.
struct RowRun {
  const Setting& setting;
  BenchRow row;
  DraftControl control;

  Session& session() const { return setting.session(row.test); }
};

class Bench {
 public:
  // `right`, unless it is empty, says for each of `tokens` whether a draft of it is right.
  Bench(const Engine& engine, std::vector<int> tokens, std::vector<bool> right,
        const std::atomic<bool>& cancel)
      : engine_(engine),
        tokens_(std::move(tokens)),
        right_(std::move(right)),
        probe_(engine.info().threads) {
    sync_options_.cancel = &cancel;
  }

  Result<void> add_setting(bool sparse, const std::string& draft, bool deep) {
    Setting setting{sparse, draft, {}, nullptr, nullptr};
    LAC_TRY(setting.policy, parse_draft_policy(draft, kMostDrafts));
    SessionOptions options;
    options.sparse_experts = sparse;
    options.drafts = draft != "off";
    LAC_TRY(setting.fresh, engine_.new_session(options));
    if (deep) {
      LAC_TRY(setting.deep, engine_.new_session(options));
    }
    settings_.push_back(std::move(setting));
    return {};
  }

  // Test by test, each in its settings. They refer to the settings, which must all be there.
  std::vector<RowRun> rows(const std::vector<BenchTest>& tests,
                           const std::vector<std::string>& drafts) const {
    std::vector<RowRun> rows;
    for (const BenchTest& test : tests) {
      const std::vector<std::string> own = drafts_of(test, drafts);
      for (const Setting& s : settings_) {
        if (std::find(own.begin(), own.end(), s.draft) == own.end()) continue;
        BenchRow row;
        row.test = test;
        row.sparse = s.sparse;
        row.draft = s.draft;
        rows.push_back({s, std::move(row), DraftControl(s.policy)});
      }
    }
    return rows;
  }

  std::size_t probe_bytes() const { return probe_.bytes(); }

  // The work of a sample, not counted.
  Result<void> warm_up(RowRun& run) {
    LAC_TRY_VOID(prepare(run.session(), run.row.test));
    return work(run);
  }

  // Adds a sample and what it read to the row.
  Result<void> sample(RowRun& run) {
    Session& session = run.session();
    BenchRow& row = run.row;
    LAC_TRY_VOID(prepare(session, row.test));
    BenchSample sample;
    if (row.test_time.empty()) row.test_time = time_now();
    sample.peak_before = probe_.measure();
    const Counters before = session.counters();
    const auto start = Clock::now();
    LAC_TRY_VOID(work(run));
    const auto taken = std::chrono::nanoseconds(Clock::now() - start);
    sample.ns = static_cast<std::uint64_t>(std::max<std::int64_t>(1, taken.count()));
    row.counters = row.counters + (session.counters() - before);
    const DraftReport drafts = run.control.report();
    row.draft_steps += static_cast<std::uint64_t>(drafts.steps);
    row.draft_offered += static_cast<std::uint64_t>(drafts.offered);
    row.draft_accepted += static_cast<std::uint64_t>(drafts.accepted);
    sample.peak_after = probe_.measure();
    row.samples.push_back(sample);
    return {};
  }

 private:
  // The timeline before the clock starts.
  Result<void> prepare(Session& session, const BenchTest& test) {
    const int prefix = test.prefix();
    // A timeline has at least one token: one that differs from the text's first leaves nothing that
    // the text could reuse.
    const int other = (tokens_[0] + 1) % engine_.info().vocabulary;
    const std::span<const int> wanted =
        prefix == 0 ? std::span(&other, 1) : std::span(tokens_).first(prefix);
    const auto report = session.sync(wanted, sync_options_);
    return report.ok() ? Result<void>() : Result<void>(report.error());
  }

  Result<void> work(RowRun& run) {
    Session& session = run.session();
    const BenchTest& test = run.row.test;
    const int begin = test.prefix() + test.prompt;
    if (test.prompt > 0) {
      const auto report = session.sync(std::span(tokens_).first(begin), sync_options_);
      if (!report.ok()) return report.error();
    }
    run.control.start_answer();
    for (int at = begin; at < begin + test.gen;) {
      if (sync_options_.cancel->load(std::memory_order_relaxed))
        return Error{ErrorCode::kCancelled, "cancelled"};
      LAC_TRY(const int kept, step(session, run.control, at, begin + test.gen - at));
      at += kept;
    }
    return {};
  }

  // Runs the text's token `at`, one of `left` that are wanted, and what is drafted after it; keeps
  // and counts what agrees with the text.
  Result<int> step(Session& session, DraftControl& control, int at, int left) const {
    const auto start = Clock::now();
    std::vector<int> batch{tokens_[at]};
    if (const int depth = std::min(control.depth(), left - 1); depth > 0) {
      LAC_TRY(const std::vector<int> guesses,
              session.draft(tokens_[at], depth, [&](std::span<const float> logits, int ahead) {
                return guess(logits, at + ahead);
              }));
      batch.insert(batch.end(), guesses.begin(), guesses.end());
    }
    const auto drafted = Clock::now();
    LAC_TRY_VOID(session.decode(batch));
    const auto verified = Clock::now();
    const auto differ = std::mismatch(batch.begin(), batch.end(), tokens_.begin() + at);
    const int kept = static_cast<int>(differ.first - batch.begin());
    session.accept(kept);
    control.step(static_cast<int>(batch.size()) - 1, kept - 1, seconds(drafted - start),
                 seconds(verified - drafted));
    return kept;
  }

  // What is drafted for the text's token `place`. A replay looks for the head's choice too, so that
  // it takes as long.
  int guess(std::span<const float> logits, int place) const {
    const int best =
        static_cast<int>(std::max_element(logits.begin(), logits.end()) - logits.begin());
    if (right_.empty()) return best;
    const int token = tokens_[place];
    if (right_[place]) return token;
    return best != token ? best : (token + 1) % engine_.info().vocabulary;
  }

  const Engine& engine_;
  std::vector<int> tokens_;
  std::vector<bool> right_;
  SyncOptions sync_options_;
  BandwidthProbe probe_;
  std::vector<Setting> settings_;
};

// Every test in every setting, a round after the other; the first round may be one that is not
// counted.
Result<std::vector<BenchRow>> run_rounds(Bench& bench, std::vector<RowRun> runs,
                                         const BenchFlags& flags) {
  const int first = flags.no_warmup ? 1 : 0;
  const std::size_t total = runs.size() * (flags.rounds + 1 - first);
  std::size_t done = 0;
  ProgressLine progress("bench", !flags.model.quiet && !flags.progress);
  for (int round = first; round <= flags.rounds; ++round) {
    for (RowRun& run : runs) {
      if (flags.progress) {
        tell(fmt::format("{}: {} {}", round == 0 ? "warm-up" : fmt::format("round {}", round),
                         run.row.test.label(), run.setting.label()));
      }
      const auto sampled = round == 0 ? bench.warm_up(run) : bench.sample(run);
      if (!sampled.ok() && sampled.error().code == ErrorCode::kCancelled) {
        return Error{ErrorCode::kCancelled,
                     fmt::format("interrupted after {} of {} samples", done, total)};
      }
      LAC_TRY_VOID(sampled);
      progress.update(++done, total);
    }
  }
  std::vector<BenchRow> rows;
  for (RowRun& run : runs) rows.push_back(std::move(run.row));
  return rows;
}

std::string write_report(const std::string& format, const BenchRun& run) {
  if (format == "json") return bench_json(run);
  if (format == "jsonl") return bench_jsonl(run);
  if (format == "csv") return bench_csv(run);
  if (format == "sql") return bench_sql(run);
  return bench_markdown(run);
}

Result<void> check_context(const std::vector<BenchTest>& tests, int context) {
  for (const BenchTest& test : tests) {
    if (test.timeline() <= context) continue;
    return Error{ErrorCode::kContextLength, fmt::format("{}: {} tokens, the context holds {}",
                                                        test.label(), test.timeline(), context)};
  }
  return {};
}

Result<void> check_drafts(const std::vector<std::string>& drafts, const BenchFlags& flags) {
  const auto& accept = flags.accept;
  if (accept && !(*accept >= 0 && *accept <= 2))
    return Error{ErrorCode::kInvalidArgument, fmt::format("--accept: {}, want 0 to 2", *accept)};
  if (accept && drafts == std::vector<std::string>{"off"}) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("--accept: {}, but --draft is off", *accept)};
  }
  return {};
}

Result<void> check_head(const std::vector<std::string>& drafts, const ModelInfo& model) {
  for (const std::string& draft : drafts) {
    if (draft == "off" || model.head_parameters > 0) continue;
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("--draft: \"{}\", but the model has no drafting head", draft)};
  }
  return {};
}

Result<int> bench(const BenchFlags& flags) {
  LAC_TRY(const std::vector<BenchTest> tests, flags.plan.tests());
  LAC_TRY(const std::vector<bool> experts, parse_experts(flags.experts));
  LAC_TRY(const std::vector<std::string> drafts, parse_drafts(flags.drafts));
  LAC_TRY_VOID(check_drafts(drafts, flags));
  if (flags.random && !flags.text.empty())
    return Error{ErrorCode::kInvalidArgument, "--random and --text: want one of them"};
  SampleText text{"random", ""};
  if (!flags.random) {
    LAC_TRY(text, read_sample_text(flags.text));
  }
  LAC_TRY(const std::filesystem::path folder, find_model(flags.model.model));
  LAC_TRY(const std::unique_ptr<Engine> engine, open_engine(flags.model));
  LAC_TRY_VOID(check_context(tests, engine->info().context));
  LAC_TRY_VOID(check_head(drafts, engine->info()));
  const auto longest = std::max_element(
      tests.begin(), tests.end(),
      [](const BenchTest& a, const BenchTest& b) { return a.timeline() < b.timeline(); });
  LAC_TRY(std::vector<int> tokens, bench_tokens(*engine, text, flags.random, longest->timeline()));

  InterruptGuard interrupt;
  const std::uint64_t rss_before = peak_rss_bytes();
  std::vector<bool> right;
  if (flags.accept) right = replayed_drafts(*flags.accept, longest->timeline());
  Bench bench(*engine, std::move(tokens), std::move(right), interrupt.stop_flag());
  const bool deep =
      std::any_of(tests.begin(), tests.end(), [](const BenchTest& test) { return test.depth > 0; });
  for (const bool sparse : experts)
    for (const std::string& draft : drafts) LAC_TRY_VOID(bench.add_setting(sparse, draft, deep));
  BenchRun run;
  LAC_TRY(run.rows, run_rounds(bench, bench.rows(tests, drafts), flags));
  run.accept = flags.accept;
  run.model = engine->info();
  run.model_path = folder.string();
  run.synthetic = synthetic_note(folder);
  run.text = text.name;
  run.cpu = cpu_model();
  run.build_commit = LACUNA_BUILD_COMMIT;
  run.build_number = LACUNA_BUILD_NUMBER;
  run.batch = flags.model.prefill_chunk;
  // From its making on the probe's memory is always there; what came before it had none.
  const std::uint64_t rss = peak_rss_bytes();
  run.peak_rss = std::max(rss_before, rss - std::min<std::uint64_t>(rss, bench.probe_bytes()));
  if (!write_out(write_report(flags.output, run)))
    return Error{ErrorCode::kIo, "stdout: cannot be written"};
  return kExitDone;
}

void add_bench_flags(CommandLine& line, BenchFlags& flags) {
  line.option("-p,--n-prompt", flags.plan.prompts,
              "prompt tokens: 512, or a list 128,512, or a range 128-512+128; 0: none");
  line.option("-n,--n-gen", flags.plan.gens, "tokens to decode, likewise; 128");
  line.list("--prompt-gen", flags.plan.pairs,
            "PP,TG, also -pg: prompt and decoding on one clock; repeatable");
  line.option("-d,--n-depth", flags.plan.depths, "tokens there before the clock starts; 0");
  line.option("--draft", flags.drafts, "off, a number, auto, or a list to run in turn; off");
  line.option("--accept", flags.accept,
              "so many drafts of 2 are right in the mean, whatever the head guesses");
  line.option("-r,--repetitions", flags.rounds, "rounds; 5")->check(CLI::Range(1, 10000));
  line.option("-o,--output", flags.output, "md, csv, json, jsonl or sql")
      ->check(CLI::IsMember({"md", "csv", "json", "jsonl", "sql"}));
  line.app().add_option("--text", flags.text, "the file to read; without it bundled prose");
  line.flag("--random", flags.random, "random tokens instead of a text");
  line.flag("--no-warmup", flags.no_warmup, "no round before those that count");
  line.flag("--progress", flags.progress, "a line on stderr for each sample");
}

}  // namespace

int bench_command(const Arguments& arguments) {
  BenchFlags flags;
  CommandLine line("bench", "Measures prompts and decoding, sparse and dense in turn.");
  add_model_flags(line, flags.model);
  line.app().remove_option(line.app().get_option("--experts"));  // here it takes both
  line.option("--experts,--sparse-experts", flags.experts,
              "sparse, dense, or both as sparse,dense");
  add_bench_flags(line, flags);
  Arguments spelled = arguments;  // CLI11 would read -pg as -p g
  std::replace(spelled.begin(), spelled.end(), std::string("-pg"), std::string("--prompt-gen"));
  if (const auto code = line.parse(spelled)) return *code;
  const Result<int> code = bench(flags);
  return code.ok() ? *code : fail("bench", code.error());
}

}  // namespace lacuna
