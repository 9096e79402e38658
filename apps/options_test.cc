// SPDX-License-Identifier: Apache-2.0
#include "options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <string>
#include <vector>

#include "line_editor.h"

namespace lacuna {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pair;

// Sets a variable while it lives.
class Environment {
 public:
  Environment(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  ~Environment() { unsetenv(name_); }

 private:
  const char* name_;
};

struct Parsed {
  ModelFlags model;
  AnswerFlags answer;
  std::optional<int> code;
  std::string out, err;
};

Parsed parse(const Arguments& arguments) {
  Parsed parsed;
  CommandLine line("test", "For the test.");
  add_model_flags(line, parsed.model);
  add_answer_flags(line, parsed.answer);
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  parsed.code = line.parse(arguments);
  parsed.out = testing::internal::GetCapturedStdout();
  parsed.err = testing::internal::GetCapturedStderr();
  return parsed;
}

TEST(Options, Defaults) {
  const Parsed p = parse({});
  ASSERT_EQ(p.code, std::nullopt) << p.err;
  EXPECT_EQ(p.model.model, "");
  EXPECT_EQ(p.answer.max_tokens, 256);
  const EngineOptions ours = p.model.engine_options();
  const EngineOptions theirs;
  EXPECT_EQ(ours.precision, theirs.precision);
  EXPECT_EQ(ours.sparse_experts, theirs.sparse_experts);
  EXPECT_EQ(ours.prefill_chunk, theirs.prefill_chunk);
  EXPECT_EQ(ours.context, theirs.context);
}

TEST(Options, EverySpellingOfAFlag) {
  for (const char* flag : {"-m", "--model", "--model-path"})
    EXPECT_EQ(parse({flag, "M"}).model.model, "M") << flag;
  EXPECT_EQ(parse({"M"}).model.model, "M");
  for (const char* flag : {"-n", "--max-tokens", "--predict", "--n-predict"})
    EXPECT_EQ(parse({flag, "7"}).answer.max_tokens, 7) << flag;
  for (const char* flag : {"--temp", "--temperature"})
    EXPECT_EQ(parse({flag, "0.5"}).answer.temperature, 0.5f) << flag;
  for (const char* flag : {"--system", "--system-prompt", "-sys"})
    EXPECT_EQ(parse({flag, "S"}).answer.system, "S") << flag;
  for (const char* flag :
       {"-c", "--ctx-size", "--max-model-len", "--context-length", "--max-kv-size"})
    EXPECT_EQ(parse({flag, "99"}).model.context, 99) << flag;
  for (const char* flag : {"-b", "--prefill-chunk", "-ub", "--batch-size", "--prefill-step-size",
                           "--chunked-prefill-size"})
    EXPECT_EQ(parse({flag, "64"}).model.prefill_chunk, 64) << flag;
  for (const char* flag : {"--repeat-penalty", "--repetition-penalty"})
    EXPECT_EQ(parse({flag, "1.5"}).answer.others.repeat_penalty, 1.5f) << flag;
  for (const char* flag : {"-s", "--seed"})
    EXPECT_EQ(parse({flag, "18446744073709551615"}).answer.others.seed, ~std::uint64_t{0}) << flag;
  for (const char* flag :
       {"--chat-template-kwargs", "--chat-template-args", "--chat-template-config"})
    EXPECT_EQ(parse({flag, "{}"}).answer.template_keywords, "{}") << flag;
}

TEST(Options, SparseExperts) {
  const auto sparse = [](const Arguments& arguments) {
    const Parsed p = parse(arguments);
    EXPECT_EQ(p.code, std::nullopt) << p.err;
    return p.model.engine_options().sparse_experts;
  };
  EXPECT_TRUE(sparse({"--experts", "sparse"}));
  EXPECT_FALSE(sparse({"--experts", "dense"}));
  EXPECT_TRUE(sparse({"--sparse-experts", "on"}));
  EXPECT_FALSE(sparse({"--sparse-experts", "off"}));
  EXPECT_FALSE(sparse({"--sparse-experts=off"}));
  EXPECT_FALSE(sparse({"--no-sparse-experts"}));
  EXPECT_TRUE(sparse({"--no-sparse-experts", "--sparse-experts"}));
  EXPECT_EQ(parse({"--sparse-experts", "M"}).model.model, "M");
}

TEST(Options, ValuesMayLookLikeAnything) {
  EXPECT_EQ(parse({"--system", "-n"}).answer.system, "-n");
  EXPECT_EQ(parse({"--system", "--help"}).answer.system, "--help");
  EXPECT_EQ(parse({"--system=[a, b]"}).answer.system, "[a, b]");
  EXPECT_THAT(parse({"--stop", "[a,b]", "--stop", "-x", "--stop", "\n\n"}).answer.stops,
              ElementsAre("[a,b]", "-x", "\n\n"));
  const Parsed p = parse({"--stop", "s", "M"});
  EXPECT_THAT(p.answer.stops, ElementsAre("s"));
  EXPECT_EQ(p.model.model, "M");
}

TEST(Options, LastOneCounts) {
  EXPECT_EQ(parse({"--temp", "1", "--temp", "0"}).answer.temperature, 0.0f);
  EXPECT_EQ(parse({"-q", "-q"}).code, std::nullopt);
}

TEST(Options, EnvironmentBelowTheCommandLine) {
  const Environment tokens("LACUNA_MAX_TOKENS", "9");
  const Environment quiet("LACUNA_QUIET", "on");
  const Environment stop("LACUNA_STOP", "[x,y]");
  EXPECT_EQ(parse({}).answer.max_tokens, 9);
  EXPECT_TRUE(parse({}).model.quiet);
  EXPECT_THAT(parse({}).answer.stops, ElementsAre("[x,y]"));
  EXPECT_EQ(parse({"-n", "3"}).answer.max_tokens, 3);
  const Environment off("LACUNA_QUIET", "0");
  EXPECT_FALSE(parse({}).model.quiet);
}

TEST(Options, BadUsageIsTwoAndOneLine) {
  const std::vector<Arguments> cases = {
      {"--no-such-flag"},       {"--max-tokens", "many"},
      {"--max-tokens", "1.5"},  {"--max-tokens", "-2"},
      {"--max-tokens"},         {"--threads", "-1"},
      {"--temp", "warm"},       {"--precision", "f16"},
      {"--experts", "some"},    {"--seed", "-1"},
      {"--prefill-chunk", "0"}, {"M", "N"},
      {"--top-k", "1e99"},      {"--max-tokens", "99999999999999"}};
  for (const Arguments& arguments : cases) {
    const Parsed p = parse(arguments);
    EXPECT_EQ(p.code, kExitUsage) << arguments[0];
    EXPECT_EQ(p.out, "");
    EXPECT_THAT(p.err, HasSubstr("lacuna test: "));
    EXPECT_EQ(std::count(p.err.begin(), p.err.end(), '\n'), 1) << p.err;
  }
  EXPECT_THAT(parse({"--max-tokens", "many"}).err, HasSubstr("--max-tokens"));
  const Environment threads("LACUNA_THREADS", "few");
  EXPECT_EQ(parse({}).code, kExitUsage);
  EXPECT_THAT(parse({}).err, HasSubstr("few"));
}

TEST(Options, HelpNamesOurSpellingOnly) {
  const Parsed p = parse({"--help"});
  EXPECT_EQ(p.code, kExitDone);
  EXPECT_THAT(p.out, HasSubstr("-n, --max-tokens INT"));
  EXPECT_THAT(p.out, HasSubstr("--temp FLOAT"));
  EXPECT_THAT(p.out, Not(HasSubstr("--n-predict")));
  EXPECT_EQ(p.err, "");
}

TEST(Options, SamplingDefaultsComeFromTheModel) {
  ModelInfo model;
  model.default_temperature = 0.6f;
  model.default_top_p = 0.95f;
  model.default_top_k = 20;
  const auto defaults = AnswerFlags().sampling(model);
  ASSERT_TRUE(defaults.ok());
  EXPECT_EQ(defaults->temperature, 0.6f);
  EXPECT_EQ(defaults->top_p, 0.95f);
  EXPECT_EQ(defaults->top_k, 20);
  const auto flags = parse({"--temp", "0", "--top-p", "1", "--top-k", "0"}).answer.sampling(model);
  ASSERT_TRUE(flags.ok());
  EXPECT_EQ(flags->temperature, 0);
  EXPECT_EQ(flags->top_p, 1);
  EXPECT_EQ(flags->top_k, 0);
}

TEST(Options, LogitBias) {
  const auto biases = [](const std::string& text) {
    const auto parsed = parse_logit_bias(text);
    return parsed.ok() ? *parsed : std::vector<std::pair<int, float>>();
  };
  EXPECT_THAT(biases("5=1.5"), ElementsAre(Pair(5, 1.5f)));
  EXPECT_THAT(biases("5=-100,6=2"), ElementsAre(Pair(5, -100.0f), Pair(6, 2.0f)));
  EXPECT_THAT(biases("5=-inf"), ElementsAre(Pair(5, -INFINITY)));
  for (const char* text : {"", "5", "5=", "=1", "x=1", "5=1,", "5=1x", "5 = 1", ",", "5==1",
                           "99999999999=1", "5=+", "5=+-1"})
    EXPECT_FALSE(parse_logit_bias(text).ok()) << text;
  const auto error = parse({"--logit-bias", "1=2", "--logit-bias", "a"}).answer.sampling({});
  ASSERT_FALSE(error.ok());
  EXPECT_EQ(error.error().what, "--logit-bias: \"a\", want ID=VALUE");
}

TEST(Options, TemplateKeywords) {
  AnswerFlags flags;
  EXPECT_TRUE(flags.keywords()->empty());
  flags.template_keywords = R"({"enable_thinking": false})";
  EXPECT_EQ(flags.keywords()->at("enable_thinking"), false);
  for (const char* text : {"[]", "7", "{", "enable_thinking"}) {
    flags.template_keywords = text;
    EXPECT_FALSE(flags.keywords().ok()) << text;
  }
}

TEST(ExitCodes, AreTheDocumentedOnes) {
  EXPECT_EQ(exit_code(ErrorCode::kIo), 1);
  EXPECT_EQ(exit_code(ErrorCode::kInvalidArgument), 2);
  EXPECT_EQ(exit_code(ErrorCode::kContextLength), 2);
  EXPECT_EQ(exit_code(ErrorCode::kNotFound), 3);
  EXPECT_EQ(exit_code(ErrorCode::kUnsupported), 3);
  EXPECT_EQ(exit_code(ErrorCode::kCorrupt), 3);
  EXPECT_EQ(exit_code(ErrorCode::kOutOfMemory), 4);
  EXPECT_EQ(exit_code(ErrorCode::kCancelled), 130);
}

TEST(HistoryPath, FollowsTheEnvironment) {
  const Environment home("HOME", "/home/a");
  EXPECT_EQ(history_path(), "/home/a/.local/state/lacuna/history");
  const Environment state("XDG_STATE_HOME", "/state");
  EXPECT_EQ(history_path(), "/state/lacuna/history");
}

}  // namespace
}  // namespace lacuna
