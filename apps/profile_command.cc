// SPDX-License-Identifier: Apache-2.0
// lacuna profile: what is live, what is read and where the time goes, layer by layer.
//
// One engine, two timelines: one leaves out the rows of dead neurons, one reads all rows. They take
// turns pass by pass, so that a machine that changes its speed changes it for both.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/cpu.h"
#include "base/output_file.h"
#include "commands.h"
#include "console.h"
#include "decode/conversation.h"
#include "decode/sampler.h"
#include "lacuna/session.h"
#include "lacuna/trace.h"
#include "lacuna/version.h"
#include "open_model.h"
#include "profile_page.h"
#include "profile_report.h"
#include "profile_text.h"
#include "sample_text.h"

namespace lacuna {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

struct ProfileFlags {
  ModelFlags model;
  std::optional<std::string> text, prompt;
  int prompt_tokens = 512;
  int decode_tokens = 32;
  int rounds = 3;
  std::optional<std::string> html;
  bool json = false;
};

// What --text or --prompt names, else the prose beside the bundled model.
Result<SampleText> read_text(const ProfileFlags& flags) {
  if (!flags.prompt) return read_sample_text(flags.text.value_or(""));
  if (flags.text)
    return Error{ErrorCode::kInvalidArgument, "--prompt and --text: want one of them"};
  if (flags.prompt->empty()) return Error{ErrorCode::kInvalidArgument, "the prompt is empty"};
  return SampleText{"--prompt", *flags.prompt};
}

// One of the two settings.
struct Timeline {
  bool sparse = true;
  Trace trace;
  std::unique_ptr<Session> session;
  std::vector<ProfileSample> prompt, decode;
};

class Profiler {
 public:
  Profiler(const Engine& engine, const ProfileFlags& flags, std::vector<int> tokens)
      : engine_(engine),
        flags_(flags),
        text_(std::move(tokens)),
        prompt_tokens_(std::min(flags.prompt_tokens, static_cast<int>(text_.size()))),
        progress_("profile", !flags.model.quiet) {
    dense_.sparse = false;
  }

  Result<void> run() {
    for (int round = 0; round < flags_.rounds; ++round)
      for (Timeline* timeline : {&sparse_, &dense_}) LAC_TRY_VOID(run_prompt(*timeline));
    for (int i = 0; i < flags_.decode_tokens; ++i) {
      const int token = next_token(prompt_tokens_ + i);
      for (Timeline* timeline : {&sparse_, &dense_}) LAC_TRY_VOID(run_step(*timeline, token));
    }
    return {};
  }

  ProfileReport report(const std::string& text_name) const {
    const ModelInfo& info = engine_.info();
    ProfileReport report;
    report.model = info.name;
    report.architecture = info.architecture;
    report.precision = info.precision;
    report.isa = info.isa;
    report.threads = info.threads;
    report.cpu = cpu_model();
    report.version = kVersion;
    report.text = text_name;
    report.prefill_chunk = flags_.model.prefill_chunk;
    const int after_text = prompt_tokens_ + flags_.decode_tokens - static_cast<int>(text_.size());
    report.own_tokens = std::max(0, after_text);
    report.prompt = make_phase(sparse_.prompt, dense_.prompt, prompt_tokens_, info.layer_kinds);
    report.decode = make_phase(sparse_.decode, dense_.decode, 1, info.layer_kinds);
    return report;
  }

 private:
  // The text's, and after its end what the model finds likeliest. Both timelines get the same.
  int next_token(int position) const {
    return position < static_cast<int>(text_.size()) ? text_[position]
                                                     : argmax(sparse_.session->logits());
  }

  template <class Work>
  Result<ProfileSample> measure(Timeline& timeline, const Work& work) {
    if (stopped())
      return Error{ErrorCode::kCancelled,
                   fmt::format("cancelled after {} passes",
                               timeline.prompt.size() + timeline.decode.size())};
    timeline.trace.clear();
    const Clock::time_point start = Clock::now();
    LAC_TRY_VOID(work());
    const std::chrono::duration<double> seconds = Clock::now() - start;
    return ProfileSample{seconds.count(), timeline.trace.steps()};
  }

  Result<void> run_prompt(Timeline& timeline) {
    // A new session, because one that has computed the prompt would reuse it.
    timeline.session.reset();
    LAC_TRY(timeline.session, engine_.new_session({timeline.sparse, &timeline.trace}));
    SyncOptions options;
    options.cancel = &interrupt_.stop_flag();
    LAC_TRY(ProfileSample sample, measure(timeline, [&]() -> Result<void> {
              const auto prompt = std::span<const int>(text_).first(prompt_tokens_);
              LAC_TRY_VOID(timeline.session->sync(prompt, options));
              return {};
            }));
    timeline.prompt.push_back(std::move(sample));
    advance(prompt_tokens_);
    return {};
  }

  Result<void> run_step(Timeline& timeline, int token) {
    LAC_TRY(ProfileSample sample,
            measure(timeline, [&] { return timeline.session->decode(token); }));
    timeline.decode.push_back(std::move(sample));
    advance(1);
    return {};
  }

  bool stopped() const { return interrupt_.stop_flag().load(std::memory_order_relaxed); }

  void advance(int tokens) {
    done_ += tokens;
    progress_.update(done_, 2 * (static_cast<std::uint64_t>(flags_.rounds) * prompt_tokens_ +
                                 flags_.decode_tokens));
  }

  const Engine& engine_;
  const ProfileFlags& flags_;
  std::vector<int> text_;
  int prompt_tokens_;
  Timeline sparse_, dense_;
  InterruptGuard interrupt_;
  ProgressLine progress_;
  std::uint64_t done_ = 0;
};

std::string now_utc() {
  const std::time_t now = std::time(nullptr);
  std::tm parts = {};
  gmtime_r(&now, &parts);
  return fmt::format("{:04}-{:02}-{:02} {:02}:{:02} UTC", parts.tm_year + 1900, parts.tm_mon + 1,
                     parts.tm_mday, parts.tm_hour, parts.tm_min);
}

Result<int> profile(const ProfileFlags& flags) {
  LAC_TRY(const SampleText text, read_text(flags));
  if (flags.html) {
    LAC_TRY(const OutputFile trial, OutputFile::create(*flags.html));
  }
  ModelFlags model = flags.model;
  const int wanted = flags.prompt_tokens + flags.decode_tokens;
  if (model.context == 0) model.context = wanted;  // two timelines: no room that is not needed
  LAC_TRY(const std::unique_ptr<Engine> engine, open_engine(model));
  if (engine->info().context < wanted) {
    return Error{
        ErrorCode::kContextLength,
        fmt::format("--prompt-tokens {} and --max-tokens {} are {} tokens, the context "
                    "holds {}",
                    flags.prompt_tokens, flags.decode_tokens, wanted, engine->info().context)};
  }
  ProfileReport report;
  {
    Profiler profiler(*engine, flags, encode_text(engine->tokenizer(), text.text));
    LAC_TRY_VOID(profiler.run());
    report = profiler.report(text.name);
  }
  report.date = now_utc();
  if (flags.html) {
    LAC_TRY(OutputFile page, OutputFile::create(*flags.html));
    const std::string html = profile_page(report);
    LAC_TRY_VOID(page.write(html.data(), html.size()));
    LAC_TRY_VOID(page.commit());
  }
  const std::string out =
      flags.json ? profile_json(report).dump(-1, ' ', false,
                                             nlohmann::ordered_json::error_handler_t::replace) +
                       "\n"
                 : profile_text(report);
  if (!write_out(out)) return Error{ErrorCode::kIo, "stdout: cannot be written"};
  return kExitDone;
}

}  // namespace

int profile_command(const Arguments& arguments) {
  ProfileFlags flags;
  CommandLine line("profile", "What is live, what is read, and where the time goes.");
  add_model_flags(line, flags.model);
  line.app()
      .add_option("--text,-f,--file", flags.text, "the file to read; without one, prose")
      ->take_last();
  line.app().add_option("-p,--prompt", flags.prompt, "the text itself")->take_last();
  line.option("--prompt-tokens", flags.prompt_tokens, "tokens of the text that are the prompt")
      ->check(CLI::Range(1, 1 << 24));
  // Not from the environment: LACUNA_MAX_TOKENS is about answers.
  line.app()
      .add_option("-n,--max-tokens", flags.decode_tokens, "tokens to decode, along the text")
      ->take_last()
      ->check(CLI::Range(1, 1 << 20));
  line.app()
      .add_option("-r,--repetitions", flags.rounds, "times the prompt is run in each setting")
      ->take_last()
      ->check(CLI::Range(1, 1000));
  line.app().add_option("--html", flags.html, "write a page with plots to this file")->take_last();
  line.flag("--json", flags.json, "one JSON object on stdout");
  if (const auto code = line.parse(arguments)) return *code;
  const Result<int> code = profile(flags);
  return code.ok() ? *code : fail("profile", code.error());
}

}  // namespace lacuna
