// SPDX-License-Identifier: Apache-2.0
// lacuna eval: perplexity of a text, and how far the logits are from another setting's.
//
// Windows are computed slice by slice, so that two models are compared with a few hundred rows of
// logits in memory, whatever the vocabulary.
#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/mmap.h"
#include "commands.h"
#include "console.h"
#include "decode/conversation.h"
#include "decode/eval_math.h"
#include "decode/logits_file.h"
#include "lacuna/session.h"
#include "open_model.h"

namespace lacuna {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr int kSliceRows = 256;
constexpr std::size_t kMaxTextBytes = std::size_t{1} << 30;

struct EvalFlags {
  ModelFlags model;
  std::string text, against, save_logits;
  int window = 2048;
  int max_tokens = 0;
  bool json = false;
};

// Rows of logits, in the order of the windows.
class LogitsSource {
 public:
  virtual ~LogitsSource() = default;
  // Logits [end − begin, V] of the window's inputs begin to end. Slices come in order. The span is
  // valid until the next call.
  virtual Result<std::span<const float>> slice(const EvalWindow& window, int begin, int end) = 0;
};

class ModelSource : public LogitsSource {
 public:
  ModelSource(const Engine& engine, const std::atomic<bool>& cancel)
      : engine_(engine), cancel_(cancel) {}

  Result<std::span<const float>> slice(const EvalWindow& window, int begin, int end) override {
    // A new session a window: rows that a session can reuse have no logits to give.
    if (begin == 0) {
      session_.reset();
      LAC_TRY(session_, engine_.new_session());
    }
    rows_.clear();
    SyncOptions options;
    options.cancel = &cancel_;
    options.on_logits = [this](int, std::span<const float> logits) {
      rows_.insert(rows_.end(), logits.begin(), logits.end());
    };
    LAC_TRY_VOID(session_->sync(window.inputs.first(end), options));
    const std::size_t wanted = static_cast<std::size_t>(end - begin) * engine_.info().vocabulary;
    LAC_CHECK(rows_.size() == wanted, "{} logits, want {}", rows_.size(), wanted);
    return std::span<const float>(rows_);
  }

 private:
  const Engine& engine_;
  const std::atomic<bool>& cancel_;
  std::unique_ptr<Session> session_;
  std::vector<float> rows_;
};

class FileSource : public LogitsSource {
 public:
  explicit FileSource(LogitsFile file) : file_(std::move(file)) {}

  Result<std::span<const float>> slice(const EvalWindow&, int begin, int end) override {
    rows_.clear();
    for (int i = begin; i < end; ++i) {
      const std::vector<float> row = file_.row(next_++);
      rows_.insert(rows_.end(), row.begin(), row.end());
    }
    return std::span<const float>(rows_);
  }

 private:
  LogitsFile file_;
  std::uint64_t next_ = 0;
  std::vector<float> rows_;
};

// What --against names, opened and known to be comparable.
struct Reference {
  std::string kind;  // "dense", "model" or "logits"
  std::unique_ptr<Engine> engine;
  std::unique_ptr<LogitsSource> source;
};

struct Scores {
  Perplexity tested, reference;
  Divergence divergence;
};

// The same text must be the same tokens, or rows say nothing about each other.
Result<void> check_comparable(const Engine& tested, const Engine& other, const std::string& text,
                              int window) {
  const ModelInfo& a = tested.info();
  const ModelInfo& b = other.info();
  const auto different = [&](const std::string& what) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("--against {}: {}", b.name, what)};
  };
  if (a.vocabulary != b.vocabulary)
    return different(fmt::format("vocabulary of {}, want {}", b.vocabulary, a.vocabulary));
  if (b.context < window)
    return different(fmt::format("context of {}, want the window's {}", b.context, window));
  if (encode_text(tested.tokenizer(), text) != encode_text(other.tokenizer(), text))
    return different("its tokenizer gives other tokens for the text");
  return {};
}

struct EvalText {
  std::string text;
  std::vector<int> tokens;
  int window = 0;
  std::vector<EvalWindow> windows;  // into tokens
};

Result<std::optional<Reference>> open_reference(const EvalFlags& flags, const Engine& tested,
                                                const EvalText& text,
                                                const std::atomic<bool>& cancel) {
  if (flags.against.empty()) return std::optional<Reference>();
  std::error_code ignored;
  Reference reference;
  if (fs::is_regular_file(flags.against, ignored)) {
    reference.kind = "logits";
    LAC_TRY(LogitsFile file, LogitsFile::open(flags.against));
    LAC_TRY_VOID(file.check_same(text.windows, text.window, tested.info().vocabulary));
    reference.source = std::make_unique<FileSource>(std::move(file));
    return std::optional<Reference>(std::move(reference));
  }
  ModelFlags other = flags.model;
  other.quiet = true;
  reference.kind = flags.against == "dense" ? "dense" : "model";
  if (flags.against == "dense") {
    other.experts = "dense";
  } else if (fs::is_directory(flags.against, ignored)) {
    other.model = flags.against;
  } else {
    return Error{ErrorCode::kNotFound,
                 fmt::format("--against {}: want \"dense\", a checkpoint folder or a file made by "
                             "--save-logits",
                             flags.against)};
  }
  LAC_TRY(reference.engine, open_engine(other));
  LAC_TRY_VOID(check_comparable(tested, *reference.engine, text.text, text.window));
  reference.source = std::make_unique<ModelSource>(*reference.engine, cancel);
  return std::optional<Reference>(std::move(reference));
}

// `text` must stay where it is: its windows point into its tokens.
Result<void> load_text(const EvalFlags& flags, const Engine& engine, EvalText& text) {
  text.tokens = encode_text(engine.tokenizer(), text.text);
  text.window = std::min(flags.window, engine.info().context);
  text.windows = eval_windows(text.tokens, text.window, flags.max_tokens);
  if (text.windows.empty()) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{}: {} tokens, of which none can be scored: want at least 64 or a "
                             "whole window",
                             flags.text, text.tokens.size())};
  }
  return {};
}

Result<Scores> score(const EvalText& text, int vocabulary, LogitsSource& tested,
                     LogitsSource* reference, LogitsWriter* writer, bool show_progress) {
  Scores scores;
  ProgressLine progress("eval", show_progress);
  std::uint64_t total = 0;
  for (const EvalWindow& window : text.windows) total += window.targets.size();
  for (const EvalWindow& window : text.windows) {
    const int length = static_cast<int>(window.inputs.size());
    for (int begin = 0; begin < length; begin += kSliceRows) {
      const int end = std::min(length, begin + kSliceRows);
      LAC_TRY(const auto rows, tested.slice(window, begin, end));
      std::span<const float> other;
      if (reference != nullptr) {
        LAC_TRY(other, reference->slice(window, begin, end));
      }
      if (writer != nullptr) LAC_TRY_VOID(writer->add(rows));
      for (int i = begin; i < end; ++i) {
        const std::size_t at = static_cast<std::size_t>(i - begin) * vocabulary;
        const auto row = rows.subspan(at, vocabulary);
        scores.tested.add(negative_log_likelihood(row, window.targets[i]));
        if (other.empty()) continue;
        const auto other_row = other.subspan(at, vocabulary);
        scores.reference.add(negative_log_likelihood(other_row, window.targets[i]));
        scores.divergence.add(other_row, row);
      }
      progress.update(scores.tested.count(), total);
    }
  }
  return scores;
}

Json perplexity_json(const Perplexity& perplexity) {
  return {{"loss", perplexity.loss()},
          {"perplexity", perplexity.value()},
          {"perplexity_error", perplexity.error()}};
}

std::string json_report(const EvalFlags& flags, const Engine& engine, const EvalText& text,
                        const Scores& scores, const Reference* reference) {
  Json json = {{"text", flags.text},
               {"model", engine.info().name},
               {"precision", engine.info().precision},
               {"experts", engine.options().sparse_experts ? "sparse" : "dense"},
               {"tokens", scores.tested.count()},
               {"windows", text.windows.size()},
               {"window", text.window}};
  json.update(perplexity_json(scores.tested));
  if (reference != nullptr) {
    const Divergence& d = scores.divergence;
    Json& against = json["against"];
    against = {{"name", flags.against}, {"kind", reference->kind}};
    against.update(perplexity_json(scores.reference));
    against["mean_kl"] = d.mean_kl();
    against["max_kl"] = d.max_kl();
    against["max_kl_row"] = d.max_kl_row();
    against["top1_agreement"] = d.top1_agreement();
    against["bits_equal"] = d.bits_equal();
  }
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string text_report(const EvalFlags& flags, const EvalText& text, const Scores& scores,
                        const Reference* reference) {
  std::string report = fmt::format("{}: {} tokens scored in {} windows of {}\n", flags.text,
                                   scores.tested.count(), text.windows.size(), text.window);
  if (reference != nullptr) {
    const Divergence& d = scores.divergence;
    report += fmt::format("against {}: PPL = {:.4f} +/- {:.4f}\n", flags.against,
                          scores.reference.value(), scores.reference.error());
    report += fmt::format("mean KL {:.3e}, worst {:.3e} at row {}\n", d.mean_kl(), d.max_kl(),
                          d.max_kl_row());
    report += fmt::format("top-1 agreement {:.3f} %, bits of all logits {}\n",
                          100 * d.top1_agreement(), d.bits_equal() ? "equal" : "not equal");
  }
  report += fmt::format("Final estimate: PPL = {:.4f} +/- {:.4f}\n", scores.tested.value(),
                        scores.tested.error());
  return report;
}

Result<int> eval(const EvalFlags& flags) {
  EvalText text;
  auto file = read_text_file(flags.text, kMaxTextBytes);
  if (!file.ok()) return Error{ErrorCode::kInvalidArgument, file.error().what};
  text.text = *std::move(file);
  LAC_TRY(const std::unique_ptr<Engine> engine, open_engine(flags.model));
  LAC_TRY_VOID(load_text(flags, *engine, text));

  InterruptGuard interrupt;
  const std::atomic<bool>& cancel = interrupt.stop_flag();
  LAC_TRY(std::optional<Reference> reference, open_reference(flags, *engine, text, cancel));
  const int vocabulary = engine->info().vocabulary;
  std::optional<LogitsWriter> writer;
  if (!flags.save_logits.empty()) {
    LAC_TRY(LogitsWriter created,
            LogitsWriter::create(flags.save_logits, text.windows, text.window, vocabulary));
    writer.emplace(std::move(created));
  }
  ModelSource tested(*engine, cancel);
  LAC_TRY(const Scores scores,
          score(text, vocabulary, tested, reference ? reference->source.get() : nullptr,
                writer ? &*writer : nullptr, !flags.model.quiet));
  if (writer) LAC_TRY_VOID(writer->commit());
  const Reference* const other = reference ? &*reference : nullptr;
  const std::string report = flags.json ? json_report(flags, *engine, text, scores, other)
                                        : text_report(flags, text, scores, other);
  if (!write_out(report)) return Error{ErrorCode::kIo, "stdout: cannot be written"};
  return kExitDone;
}

}  // namespace

int eval_command(const Arguments& arguments) {
  EvalFlags flags;
  CommandLine line("eval", "Perplexity of a text, and how far two settings are apart.");
  add_model_flags(line, flags.model);
  line.app().add_option("--text", flags.text, "the file to score")->required();
  line.option("--window", flags.window, "tokens that are scored together, fresh at each window")
      ->check(CLI::Range(1, 1 << 24));
  // Not from the environment: LACUNA_MAX_TOKENS is about answers and would cut the text unseen.
  line.app()
      .add_option("-n,--max-tokens", flags.max_tokens, "score at most this many tokens; 0: all")
      ->check(CLI::Range(0, 1 << 30));
  line.app().add_option("--against", flags.against,
                        "dense, a checkpoint folder, or a file of --save-logits");
  line.app().add_option("--save-logits", flags.save_logits, "write all scored logits to this file");
  line.flag("--json", flags.json, "one JSON object on stdout");
  if (const auto code = line.parse(arguments)) return *code;
  const Result<int> code = eval(flags);
  return code.ok() ? *code : fail("eval", code.error());
}

}  // namespace lacuna
