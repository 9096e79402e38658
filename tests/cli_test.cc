// SPDX-License-Identifier: Apache-2.0
// The program from end to end: what it prints where, and how it exits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/cli_program.h"
#include "tests/support/convert_source.h"

namespace lacuna {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using test::Arguments;
using test::Child;
using test::Outcome;
using test::run;
using test::scratch;
using test::TerminalChild;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

constexpr const char* kQuestion = "What is a compiler?";

Arguments plus(Arguments arguments, const Arguments& more) {
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

// `lacuna run --json` with these flags; a failure shows as null.
Json answer(const Arguments& flags) {
  const Outcome o = run(plus({"run", "--json", "-p", kQuestion}, flags));
  EXPECT_EQ(o.code, 0) << o.err;
  return Json::parse(o.out, nullptr, false);
}

void expect_error(const Outcome& o, int code, const std::string& text) {
  EXPECT_EQ(o.code, code) << o.err;
  EXPECT_THAT(o.out, IsEmpty());
  EXPECT_THAT(o.err, StartsWith("lacuna"));
  EXPECT_THAT(o.err, HasSubstr(text));
  EXPECT_EQ(std::count(o.err.begin(), o.err.end(), '\n'), 1) << o.err;
}

TEST(Cli, HelpAndVersion) {
  EXPECT_THAT(run({"--version"}).out, ContainsRegex("^lacuna [0-9]+\\.[0-9]+\\.[0-9]+\n$"));
  const Outcome help = run({"--help"});
  EXPECT_EQ(help.code, 0);
  for (const char* command : {"run", "chat", "eval", "bench", "profile", "inspect"}) {
    EXPECT_THAT(help.out, HasSubstr(command));
    const Outcome own = run({command, "--help"});
    EXPECT_EQ(own.code, 0);
    EXPECT_THAT(own.out, HasSubstr("--model"));
    EXPECT_THAT(own.err, IsEmpty());
  }
}

TEST(Cli, UsageErrors) {
  expect_error(run({}), 2, "no command");
  expect_error(run({"fly"}), 2, "no command \"fly\"");
  expect_error(run({"run", "--fly"}), 2, "--fly");
  expect_error(run({"run", "-p", "x", "-f", "y"}), 2, "--prompt and --file");
  expect_error(run({"run", "-p", ""}), 2, "the prompt is empty");
  expect_error(run({"run"}), 2, "the prompt is empty");
  expect_error(run({"run", "-f", "no/such/prompt"}), 2, "no/such/prompt");
  expect_error(run({"run", "-q", "-p", "x", "--temp", "-1"}), 2, "temperature: -1");
  expect_error(run({"run", "-q", "-p", "x", "--stop", ""}), 2, "stop");
  expect_error(run({"run", "-q", "-p", "x", "--logit-bias", "99999=1"}), 2, "token 99999");
  expect_error(run({"run", "-q", "-p", "x", "--chat-template-kwargs", "[]"}), 2, "JSON object");
  expect_error(run({"run", "-q", "-p", "x", "--raw", "--system", "s"}), 2, "--raw");
  expect_error(run({"eval"}), 2, "--text");
  expect_error(run({"eval", "--text", "no/such/text"}), 2, "no/such/text");
}

TEST(Cli, ModelErrors) {
  expect_error(run({"run", "-p", "x", "-m", "no/such/model"}), 3, "model no/such/model");
  expect_error(run({"run", "-p", "x", "-m", "models/val_prose.txt"}), 3, "not a folder");
  expect_error(run({"inspect", "no/such/model"}), 3, "no/such/model");
  expect_error(run({"chat", "tests"}), 3, "config.json");
}

TEST(Cli, ACutCheckpointIsRefused) {
  const test::TempFolder folder;
  fs::copy("models/tiny-nemotron-h/mlx-4bit", folder.path());
  fs::resize_file(folder.path() / "model.safetensors", 13'000'000);
  expect_error(run({"run", "-p", "x", "-m", folder.path().string()}), 3, "model.safetensors");
}

TEST(Cli, PromptLongerThanTheContext) {
  const Outcome o = run({"run", "-q", "-c", "8", "-p", kQuestion});
  expect_error(o, 2, "8");
  EXPECT_THAT(o.err, ContainsRegex("[0-9]+[^0-9]+8"));
}

TEST(CliRun, TextOnStdoutFactsOnStderr) {
  const Outcome o = run({"run", "-p", kQuestion, "-n", "8", "--draft", "2"});
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(o.out, answer({"-n", "8"})["text"].get<std::string>() + "\n");
  EXPECT_THAT(o.err, HasSubstr("tokens/s"));
  EXPECT_THAT(o.err, HasSubstr(" drafts accepted"));
  EXPECT_THAT(o.err, HasSubstr("MB/token"));
  EXPECT_THAT(o.err, HasSubstr("measured"));
  EXPECT_THAT(o.err, Not(HasSubstr("\x1b")));
  EXPECT_THAT(o.err, Not(HasSubstr("\r")));
  EXPECT_THAT(run({"run", "-q", "-p", kQuestion, "-n", "8"}).err, IsEmpty());
}

TEST(CliRun, JsonObject) {
  const Json json = answer({"-n", "8"});
  ASSERT_TRUE(json.is_object());
  EXPECT_FALSE(json["text"].get<std::string>().empty());
  EXPECT_LE(json["tokens"].size(), 8u);
  EXPECT_GT(json["prompt_tokens"], 5);
  const Json& stats = json["stats"];
  EXPECT_EQ(stats["cache"]["computed_tokens"], json["prompt_tokens"]);
  EXPECT_GE(stats["drafts"]["offered"], stats["drafts"]["accepted"]);
  EXPECT_GT(stats["decode"]["tokens_per_second"], 0);
  EXPECT_GT(stats["decode"]["neurons_skipped"], 0);
  EXPECT_LT(stats["decode"]["weight_bytes"], stats["decode"]["weight_bytes_dense"]);
  EXPECT_TRUE(stats["peak_gb_per_second"].is_null());
  EXPECT_GT(answer({"-n", "1", "--probe"})["stats"]["peak_gb_per_second"], 0);
}

// The text does not hang on what is drafted; the facts say what came of it.
TEST(CliRun, Drafts) {
  const Arguments greedy = {"--raw", "--ignore-eos", "-n", "60"};
  const Json off = answer(plus(greedy, {"--draft", "off"}));
  EXPECT_EQ(off["stats"]["drafts"]["offered"], 0);
  EXPECT_EQ(off["stats"]["drafts"]["why"], "switched off");
  for (const char* draft : {"auto", "1", "2", "3", "5"}) {
    const Json json = answer(plus(greedy, {"--draft", draft}));
    EXPECT_EQ(json["tokens"], off["tokens"]) << draft;
    const Json& drafts = json["stats"]["drafts"];
    int offered = 0, accepted = 0;
    for (const Json& position : drafts["by_position"]) {
      offered += position["offered"].get<int>();
      accepted += position["accepted"].get<int>();
    }
    EXPECT_EQ(drafts["offered"], offered);
    EXPECT_EQ(drafts["accepted"], accepted);
    if (std::string_view(draft) == "auto") continue;
    EXPECT_GT(accepted, 10) << draft;
    EXPECT_EQ(drafts["why"], "");
  }
  const Arguments drawn = {"--temp", "0.7", "-s", "4", "--raw", "--ignore-eos", "-n", "60"};
  const Json sampled = answer(plus(drawn, {"--draft", "2"}));
  EXPECT_EQ(sampled["tokens"], answer(plus(drawn, {"--draft", "off"}))["tokens"]);
  EXPECT_GT(sampled["stats"]["drafts"]["accepted"], 0);
  expect_error(run({"run", "-p", "x", "--draft", "9"}), 2, "--draft: \"9\"");
  expect_error(run({"run", "-p", "x", "--draft", "some"}), 2, "want auto, off or a number");
}

// The bundled model's own greedy answer, as recorded in its golden data.
TEST(CliRun, GoldenAnswer) {
  const Json json = answer({"--precision", "f32", "--system", "You are a helpful assistant."});
  EXPECT_EQ(json["text"], "A compiler is a compiler that compiles and compiles.");
  EXPECT_EQ(json["finish_reason"], "stop");
  EXPECT_EQ(json["prompt_tokens"], 24);
}

TEST(CliRun, PromptFromAnywhere) {
  const Arguments flags = {"run", "-q", "-n", "8"};
  const std::string wanted = run(plus(flags, {"-p", kQuestion})).out;
  scratch().write("prompt.txt", std::string(kQuestion));
  EXPECT_EQ(run(plus(flags, {"-f", (scratch().path() / "prompt.txt").string()})).out, wanted);
  EXPECT_EQ(run(plus(flags, {"-p", "-"}), kQuestion).out, wanted);
  EXPECT_EQ(run(flags, kQuestion).out, wanted);
}

TEST(CliRun, Limits) {
  const Json cut = answer({"-n", "3"});
  EXPECT_EQ(cut["tokens"].size(), 3u);
  EXPECT_EQ(cut["finish_reason"], "length");
  EXPECT_EQ(answer({"-n", "0"})["text"], "");
  const Json full = answer({"-n", "-1", "--ignore-eos", "-c", "40"});
  EXPECT_EQ(full["tokens"].size() + full["prompt_tokens"].get<std::size_t>(), 40u);
  EXPECT_EQ(full["finish_reason"], "length");
}

TEST(CliRun, StopString) {
  const std::string whole = answer({})["text"];
  const std::string stop = whole.substr(2, 4);
  const Json cut = answer({"--stop", stop});
  EXPECT_EQ(cut["text"], whole.substr(0, whole.find(stop)));
  EXPECT_EQ(cut["finish_reason"], "stop");
  EXPECT_EQ(run({"run", "-q", "-p", kQuestion, "--stop", stop}).out,
            whole.substr(0, whole.find(stop)) + "\n");
}

TEST(CliRun, SeedsRepeat) {
  const Arguments flags = {"-n", "24", "--temp", "1.5", "--ignore-eos"};
  const Json first = answer(plus(flags, {"--seed", "5"}));
  EXPECT_EQ(answer(plus(flags, {"--seed", "5"}))["tokens"], first["tokens"]);
  EXPECT_EQ(first["stats"]["seed"], 5);
  EXPECT_NE(answer(plus(flags, {"--seed", "6"}))["tokens"], first["tokens"]);
}

// What must never change the text.
TEST(CliRun, SameTokensHoweverItIsComputed) {
  const Arguments flags = {"-n", "24", "--ignore-eos"};
  const Json sparse = answer(flags);
  for (const Arguments& other :
       {Arguments{"--experts", "dense"}, Arguments{"--threads", "1"},
        Arguments{"--prefill-chunk", "3"}, Arguments{"--ctx-size", "64"}}) {
    EXPECT_EQ(answer(plus(flags, other))["tokens"], sparse["tokens"]) << other[0];
  }
  const Json dense = answer(plus(flags, {"--experts", "dense"}));
  EXPECT_EQ(dense["stats"]["experts"], "dense");
  EXPECT_EQ(dense["stats"]["decode"]["weight_bytes"],
            dense["stats"]["decode"]["weight_bytes_dense"]);
}

TEST(CliRun, EnvironmentBelowFlags) {
  const Outcome o =
      run({"run", "-p", kQuestion}, "", {"LACUNA_JSON=1", "LACUNA_MAX_TOKENS=2", "LACUNA_QUIET=1"});
  EXPECT_EQ(Json::parse(o.out, nullptr, false)["tokens"].size(), 2u) << o.err;
  expect_error(run({"run", "-p", "x"}, "", {"LACUNA_MODEL=no/such"}), 3, "no/such");
}

TEST(CliRun, CtrlCStopsAndKeepsTheText) {
  fs::remove(scratch().path() / "stdout");
  const Child child({"run", "-p", kQuestion, "-n", "-1", "--ignore-eos"}, "", {});
  child.await_output();
  child.send(SIGINT);
  const Outcome o = child.wait();
  EXPECT_EQ(o.code, 130) << o.err;
  EXPECT_THAT(o.out, Not(IsEmpty()));
  EXPECT_THAT(o.err, HasSubstr("tokens/s"));
}

TEST(CliRun, AFullDiskIsAnError) {
  for (const char* json : {"--json", "--raw"}) {
    const Outcome o =
        Child({"run", "-q", json, "-p", kQuestion, "--ignore-eos"}, "", {}, "/dev/full").wait();
    EXPECT_EQ(o.code, 1);
    EXPECT_EQ(o.err, "lacuna run: stdout: cannot be written\n");
  }
}

TEST(CliChat, TurnsOfAPipeShareTheirPrefix) {
  const Outcome o = run({"chat", "-n", "16"}, "What is a compiler?\n\nAnd a bed?\n/stats\n");
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_GE(std::count(o.out.begin(), o.out.end(), '\n'), 2);
  EXPECT_THAT(o.err, ContainsRegex("prompt [0-9]+ tokens \\([0-9]+ reused\\)"));
}

TEST(CliChat, Commands) {
  const Outcome o =
      run({"chat", "-q", "-n", "4"},
          "/help\n/stats\n/fly\n/system Be brief.\nHi\n/reset\nHi\n/quit\nnever read\n");
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_THAT(o.err, HasSubstr("/reset"));
  EXPECT_THAT(o.err, HasSubstr("no answer yet"));
  EXPECT_THAT(o.err, HasSubstr("no command /fly"));
  const std::string half = o.out.substr(0, o.out.size() / 2);
  EXPECT_EQ(o.out, half + half);  // the same first turn twice
}

TEST(CliChat, AFullContextEndsAPipeWithTwo) {
  const Outcome o =
      run({"chat", "-q", "-c", "40", "-n", "2"},
          "Hi\nThis is a question of so many words that it does not fit into forty "
          "tokens of context, whatever the tokenizer makes of it and of its words.\n");
  EXPECT_EQ(o.code, 2);
  EXPECT_THAT(o.out, Not(IsEmpty()));
  EXPECT_THAT(o.err, HasSubstr("40"));
}

TEST(CliChat, OnATerminal) {
  TerminalChild chat({"chat", "-n", "-1", "--ignore-eos"});
  chat.await("> ");
  chat.type("What is a compiler?\n");
  chat.await("\n");  // the echo of the line, then text of an answer that would not end
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  chat.type("\x03");
  chat.await("(stopped)");
  chat.await("> ");
  chat.type("/stats\n");
  chat.await("tokens/s");
  chat.type("/quit\n");
  EXPECT_EQ(chat.wait(), 0);
  EXPECT_THAT(test::read_file(scratch().path() / "lacuna" / "history"), HasSubstr("compiler"));
}

TEST(CliChat, CtrlCAndCtrlDAtThePromptLeave) {
  for (const char* key : {"\x03", "\x04"}) {
    TerminalChild chat({"chat"});
    chat.await("> ");
    chat.type(key);
    EXPECT_EQ(chat.wait(), 0);
  }
}

Json eval(const Arguments& flags) {
  const Outcome o = run(plus({"eval", "--json", "--text", "models/val_prose.txt"}, flags));
  EXPECT_EQ(o.code, 0) << o.err;
  return Json::parse(o.out, nullptr, false);
}

// The recorded loss of the 4-bit weights on the first 8192 tokens, given to four places.
TEST(CliEval, GoldenLoss) {
  const Json json = eval({"--precision", "f32", "--max-tokens", "8192"});
  EXPECT_EQ(json["tokens"], 8192);
  EXPECT_EQ(json["windows"], 4);
  EXPECT_NEAR(json["loss"].get<double>(), 2.4408, 2e-4);
  EXPECT_GT(json["perplexity_error"], 0.1);
}

TEST(CliEval, SparseIsDense) {
  const Json json = eval({"--max-tokens", "600", "--window", "300", "--against", "dense"});
  EXPECT_EQ(json["against"]["kind"], "dense");
  EXPECT_EQ(json["against"]["bits_equal"], true);
  EXPECT_EQ(json["against"]["max_kl"], 0);
  EXPECT_EQ(json["against"]["top1_agreement"], 1);
  EXPECT_EQ(json["against"]["loss"], json["loss"]);
}

TEST(CliEval, SavedLogits) {
  const std::string file = (scratch().path() / "saved.safetensors").string();
  const Arguments text = {"--max-tokens", "400", "--window", "200"};
  const Json saved = eval(plus(text, {"--save-logits", file}));
  const Json same = eval(plus(text, {"--against", file}));
  EXPECT_EQ(same["against"]["kind"], "logits");
  EXPECT_EQ(same["against"]["bits_equal"], true);
  EXPECT_EQ(same["against"]["loss"], saved["loss"]);
  const Json other = eval(plus(text, {"--against", file, "--precision", "f32"}));
  EXPECT_EQ(other["against"]["bits_equal"], false);
  EXPECT_GT(other["against"]["mean_kl"], 0);
  EXPECT_LT(other["against"]["mean_kl"], 0.01);
  EXPECT_GT(other["against"]["top1_agreement"], 0.9);
  expect_error(run({"eval", "-q", "--text", "models/val_prose.txt", "--max-tokens", "400",
                    "--window", "100", "--against", file}),
               2, "windows of 200, want 100");
}

TEST(CliEval, AgainstAModel) {
  const Json json = eval({"--max-tokens", "100", "--against", "models/tiny-nemotron-h/mlx-4bit"});
  EXPECT_EQ(json["against"]["kind"], "model");
  EXPECT_EQ(json["against"]["bits_equal"], true);
}

TEST(CliEval, Errors) {
  const Arguments text = {"eval", "-q", "--text", "models/val_prose.txt", "--max-tokens", "100"};
  expect_error(run(plus(text, {"--against", "no/such"})), 3, "no/such");
  expect_error(run(plus(text, {"--against", "models/README.md"})), 3, "models/README.md");
  expect_error(run(plus(text, {"--save-logits", "no/such/file"})), 1, "no/such/file");
  scratch().write("short.txt", std::string("Too short."));
  expect_error(run({"eval", "-q", "--text", (scratch().path() / "short.txt").string()}), 2,
               "none can be scored");
}

TEST(CliEval, LastLineIsTheEstimate) {
  const Outcome o = run({"eval", "-q", "--text", "models/val_code.txt", "--max-tokens", "100"});
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_THAT(o.out, ContainsRegex("\nFinal estimate: PPL = [0-9.]+ \\+/- [0-9.]+\n$"));
}

// Two tests in two settings, as short as they can be.
const Arguments kBench = {"bench", "-q", "-p", "16", "-n", "4", "-r", "1", "--no-warmup"};

Json bench(const Arguments& flags) {
  const Outcome o = run(plus(plus(kBench, {"-o", "json"}), flags));
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_THAT(o.err, IsEmpty());
  return Json::parse(o.out, nullptr, false);
}

TEST(CliBench, RowsOfBothSettings) {
  const Json rows = bench({});
  ASSERT_EQ(rows.size(), 4u);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Json& row = rows[i];
    EXPECT_EQ(row["n_prompt"], i < 2 ? 16 : 0);
    EXPECT_EQ(row["n_gen"], i < 2 ? 0 : 4);
    EXPECT_EQ(row["experts"], i % 2 == 0 ? "sparse" : "dense");
    EXPECT_EQ(row["samples_ns"].size(), 1u);
    EXPECT_GT(row["avg_ts"], 0);
    EXPECT_GT(row["live_fraction"], 0.01);
    EXPECT_GT(row["peak_rss"], 10'000'000);
    EXPECT_EQ(row["fraction_of_peak"].is_null(), i < 2);
  }
  // The same work: what is live, and what reading all of it takes, are the same numbers.
  EXPECT_EQ(rows[2]["live_fraction"], rows[3]["live_fraction"]);
  EXPECT_EQ(rows[2]["bytes_per_token_dense"], rows[3]["bytes_per_token_dense"]);
  EXPECT_EQ(rows[3]["bytes_per_token"], rows[3]["bytes_per_token_dense"]);
  EXPECT_LT(rows[2]["bytes_per_token"], rows[3]["bytes_per_token"]);
}

TEST(CliBench, DepthsPairsAndRounds) {
  const Json rows = bench(
      {"-p", "8,16", "-n", "0", "-pg", "8,2", "-d", "0-32+16", "-r", "2", "--experts", "sparse"});
  ASSERT_EQ(rows.size(), 9u);
  EXPECT_EQ(rows[8]["n_prompt"], 8);
  EXPECT_EQ(rows[8]["n_gen"], 2);
  EXPECT_EQ(rows[8]["n_depth"], 32);
  EXPECT_EQ(rows[8]["samples_ts"].size(), 2u);
  // A deeper start reads more keys, so the depth was really there.
  EXPECT_GT(rows[8]["state_bytes_per_token"], rows[5]["state_bytes_per_token"]);
  EXPECT_GT(rows[5]["state_bytes_per_token"], rows[2]["state_bytes_per_token"]);
}

// What is live shows which tokens were read.
TEST(CliBench, TheTextIsRead) {
  const Arguments decode = {"-p", "0", "-n", "16", "--experts", "sparse"};
  const Json prose = bench(decode)[0];
  EXPECT_EQ(prose["text"], "val_prose.txt");
  EXPECT_EQ(bench(plus(decode, {"--text", "models/val_prose.txt"}))[0]["live_fraction"],
            prose["live_fraction"]);
  scratch().write("tiny.txt", std::string("Again. "));  // shorter than what is asked for
  const Json tiny = bench(plus(decode, {"--text", (scratch().path() / "tiny.txt").string()}))[0];
  EXPECT_NE(tiny["live_fraction"], prose["live_fraction"]);
  const Json random = bench(plus(decode, {"--random"}))[0];
  EXPECT_EQ(random["text"], "random");
  EXPECT_EQ(bench(plus(decode, {"--random"}))[0]["live_fraction"], random["live_fraction"]);
}

TEST(CliBench, EveryOutput) {
  const auto output = [](const Arguments& flags) {
    const Outcome o = run(plus(kBench, flags));
    EXPECT_EQ(o.code, 0) << o.err;
    return o.out;
  };
  const auto lines = [](const std::string& text) {
    return std::count(text.begin(), text.end(), '\n');
  };
  const std::string markdown = output({});
  EXPECT_THAT(markdown, StartsWith("| model "));
  for (const char* part : {"| pp16 |", "|  tg4 |", "- memory read: ", "- sparse/dense tg4: "})
    EXPECT_THAT(markdown, HasSubstr(part));
  const Arguments one_setting = {"--experts", "dense", "-o"};
  const std::string jsonl = output(plus(one_setting, {"jsonl"}));
  EXPECT_EQ(lines(jsonl), 2);
  EXPECT_EQ(Json::parse(jsonl.substr(0, jsonl.find('\n')), nullptr, false)["n_prompt"], 16);
  const std::string csv = output(plus(one_setting, {"csv"}));
  EXPECT_EQ(lines(csv), 3);
  EXPECT_THAT(csv, StartsWith("build_commit,build_number,"));
  const std::string sql = output(plus(one_setting, {"sql"}));
  EXPECT_THAT(sql, StartsWith("CREATE TABLE IF NOT EXISTS lacuna_bench ("));
  EXPECT_THAT(sql, HasSubstr(");\nINSERT INTO lacuna_bench ("));
}

// Every setting decodes the same tokens, and drafts that are replayed are right in the same places.
TEST(CliBench, DraftsInTurn) {
  const Json rows = bench({"-n", "24", "--draft", "off,2,auto", "--accept", "1.3"});
  ASSERT_EQ(rows.size(), 8u);  // the prompt drafts nothing, and runs once with each of --experts
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Json& row = rows[i];
    EXPECT_EQ(row["n_gen"], i < 2 ? 0 : 24);
    EXPECT_EQ(row["draft"], i < 2 ? "off" : Json({"off", "2", "auto"})[(i - 2) % 3]);
    EXPECT_EQ(row["draft_steps"].get<int>() + row["draft_accept"].get<int>(), row["n_gen"]);
    EXPECT_EQ(row["draft_replayed"].is_null(), row["draft"] == "off");
  }
  EXPECT_EQ(rows[2]["draft_offered"], 0);
  EXPECT_GT(rows[3]["draft_accept"], 6);
  EXPECT_GT(rows[3]["draft_offered"], rows[3]["draft_accept"]);
  for (const char* key : {"draft_steps", "draft_offered", "draft_accept"})
    EXPECT_EQ(rows[3][key], rows[6][key]);  // sparse and dense
}

TEST(CliBench, TheHeadsOwnDrafts) {
  const Arguments decode = {"-p", "0", "-n", "64", "--experts", "sparse", "--draft"};
  const Json own = bench(plus(decode, {"2"}))[0];
  EXPECT_TRUE(own["draft_replayed"].is_null());
  EXPECT_GT(own["draft_accept"], 0);  // the head is trained
  EXPECT_LT(own["draft_accept"], own["draft_offered"]);
  EXPECT_EQ(bench(plus(decode, {"2", "--accept", "0"}))[0]["draft_accept"], 0);
  const Json all = bench(plus(decode, {"2", "--accept", "2"}))[0];
  EXPECT_EQ(all["draft_steps"], 22);  // 21 of three tokens, and the last
  EXPECT_EQ(all["draft_accept"], all["draft_offered"]);
  const Json prompt = bench({"-n", "0", "--experts", "sparse", "--draft", "auto,2"});
  ASSERT_EQ(prompt.size(), 1u);
  EXPECT_EQ(prompt[0]["draft"], "auto");
}

TEST(CliBench, DraftsInTheTable) {
  const Outcome o = run(plus(kBench, {"--draft", "off,2", "--accept", "1.3"}));
  EXPECT_EQ(o.code, 0) << o.err;
  for (const char* part : {"| drafts | accepted a step |",
                           "- drafts 2/off tg4 sparse: ", "- sparse/dense tg4 drafts 2: ",
                           "- drafts: acceptance replayed, 1.3 of 2 right in the mean"})
    EXPECT_THAT(o.out, HasSubstr(part));
}

TEST(CliBench, EnvironmentAndProgress) {
  const Outcome o = run({"bench", "-p", "4", "--progress"}, "",
                        {"LACUNA_N_GEN=0", "LACUNA_REPETITIONS=1", "LACUNA_OUTPUT=jsonl",
                         "LACUNA_EXPERTS=dense", "LACUNA_PRECISION=f32"});
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(o.err, "warm-up: pp4 dense\nround 1: pp4 dense\n");
  EXPECT_EQ(Json::parse(o.out, nullptr, false)["precision"], "f32");
}

TEST(CliBench, Errors) {
  expect_error(run({"bench", "-p", "0", "-n", "0"}), 2, "no test is left");
  expect_error(run({"bench", "-p", "many"}), 2, "-p: \"many\"");
  expect_error(run({"bench", "-pg", "5"}), 2, "PROMPT,GEN");
  expect_error(run({"bench", "-o", "xml"}), 2, "xml");
  expect_error(run({"bench", "-r", "0"}), 2, "0");
  expect_error(run({"bench", "--experts", "most"}), 2, "--experts: \"most\"");
  expect_error(run({"bench", "--draft", "2,most"}), 2, "--draft: \"most\"");
  expect_error(run({"bench", "--accept", "1.3"}), 2, "--accept: 1.3, but --draft is off");
  expect_error(run({"bench", "--draft", "2", "--accept", "2.5"}), 2, "--accept: 2.5, want 0 to 2");
  expect_error(run({"bench", "--text", "no/such/text"}), 2, "no/such/text");
  expect_error(run({"bench", "--text", "README.md", "--random"}), 2, "--random and --text");
  scratch().write("empty.txt", std::string());
  expect_error(run({"bench", "--text", (scratch().path() / "empty.txt").string()}), 2, "empty");
  expect_error(run({"bench", "no/such/model"}), 3, "model no/such/model");
  expect_error(run({"bench", "-q", "-c", "40", "-d", "20"}), 2,
               "pp512 @ d20: 532 tokens, the context holds 40");
}

TEST(CliBench, DraftsNeedAHead) {
  const test::TempFolder folder;
  const std::string model = (folder.path() / "model").string();
  const Outcome made = run({"synth", "-q", "--shape", "models/tiny-nemotron-h/mlx-4bit/config.json",
                            "--layers", "2", model});
  EXPECT_EQ(made.code, 0) << made.err;
  expect_error(run({"bench", "-q", model, "--draft", "off,2"}), 2,
               "--draft: \"2\", but the model has no drafting head");
}

TEST(CliBench, CtrlCPrintsNothing) {
  TerminalChild bench({"bench", "--progress", "-p", "0", "-n", "1000"});
  bench.await("warm-up: tg1000 sparse");
  bench.type("\x03");
  EXPECT_THAT(bench.await("lacuna bench: interrupted after "), Not(HasSubstr("| model")));
  EXPECT_EQ(bench.wait(), 130);
}

const Arguments kProfile = {"profile", "-q", "--prompt-tokens", "32", "-n", "4", "-r", "1"};

Json profile(const Arguments& flags) {
  const Outcome o = run(plus(kProfile, plus({"--json"}, flags)));
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_THAT(o.err, IsEmpty());
  return Json::parse(o.out, nullptr, false);
}

TEST(CliProfile, JsonObject) {
  const Json json = profile({});
  EXPECT_EQ(json["text"], "val_prose.txt");
  EXPECT_EQ(json["own_tokens"], 0);
  EXPECT_EQ(json["prompt"]["tokens"], 32);
  EXPECT_EQ(json["decode"]["samples"], 4);
  EXPECT_LT(json["decode"]["weight_bytes"], json["decode"]["weight_bytes_dense"]);
  ASSERT_EQ(json["decode"]["layers"].size(), 12u);
  double bytes = json["decode"]["outside"]["weight_bytes"];
  for (const Json& layer : json["decode"]["layers"]) {
    const bool moe = layer["kind"] == "moe";
    EXPECT_EQ(layer["live"]["routed"].is_object(), moe);
    EXPECT_EQ(layer["live"]["shared"].is_object(), moe);
    EXPECT_EQ(layer["weight_bytes"] < layer["weight_bytes_dense"], moe);
    EXPECT_GT(layer["seconds"]["sparse"], 0);
    EXPECT_GT(layer["seconds"]["dense"], 0);
    EXPECT_FALSE(layer["parts"].empty());
    bytes += layer["weight_bytes"].get<double>();
  }
  EXPECT_DOUBLE_EQ(bytes, json["decode"]["weight_bytes"]);
  EXPECT_GT(json["prompt"]["layers"][1]["rows_needed"], 0);
}

// A text that ends early goes on with the model's own tokens.
TEST(CliProfile, TextPromptAndOwnTokens) {
  scratch().write("short.txt", std::string("What is a compiler?"));
  const Json file = profile({"-f", (scratch().path() / "short.txt").string()});
  const Json prompt = profile({"-p", "What is a compiler?"});
  EXPECT_EQ(file["own_tokens"], 4);
  EXPECT_LT(file["prompt"]["tokens"], 32);
  EXPECT_EQ(file["prompt"]["tokens"], prompt["prompt"]["tokens"]);
  EXPECT_EQ(file["decode"]["weight_bytes"], prompt["decode"]["weight_bytes"]);
  EXPECT_EQ(prompt["text"], "--prompt");
}

TEST(CliProfile, TableAndPage) {
  const fs::path page = scratch().path() / "page.html";
  const Outcome o = run(plus(kProfile, {"--html", page.string()}));
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_THAT(o.out, ContainsRegex("\n   11  moe "));
  EXPECT_THAT(o.out, HasSubstr("A decode step reads"));
  EXPECT_THAT(o.out, Not(HasSubstr("\x1b")));
  const std::string html = test::read_file(page);
  EXPECT_THAT(html, StartsWith("<!DOCTYPE html>"));
  EXPECT_THAT(html, HasSubstr("tiny-nemotron-h"));
  EXPECT_THAT(html, ::testing::EndsWith("</html>\n"));
}

TEST(CliProfile, Errors) {
  expect_error(run({"profile", "-p", "x", "--text", "README.md"}), 2, "--prompt and --text");
  expect_error(run({"profile", "-p", ""}), 2, "the prompt is empty");
  expect_error(run({"profile", "--text", "no/such/text"}), 2, "no/such/text");
  expect_error(run({"profile", "-n", "0"}), 2, "--max-tokens");
  expect_error(run({"profile", "no/such/model"}), 3, "model no/such/model");
  expect_error(run({"profile", "-q", "-c", "40"}), 2, "544 tokens, the context holds 40");
  expect_error(run({"profile", "--html", "no/such/page.html"}), 1, "no/such/page.html");
  expect_error(run({"profile", "--html", "tests"}), 1, "tests: not a regular file");
}

TEST(CliProfile, CtrlCLeavesNoPage) {
  const test::TempFolder folder;
  TerminalChild profile({"profile", "--prompt-tokens", "64", "-n", "8000", "--html",
                         (folder.path() / "page.html").string()});
  profile.await("profile ");  // the progress line
  profile.type("\x03");
  profile.await("lacuna profile: cancelled");
  EXPECT_EQ(profile.wait(), 130);
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

TEST(CliSynth, WritesAModelThatRuns) {
  const test::TempFolder folder;
  const std::string model = (folder.path() / "model").string();
  const Arguments synth = {"synth",    "--shape", "models/tiny-nemotron-h/mlx-4bit/config.json",
                           "--layers", "5",       "--mtp",
                           "-s",       "3",       model};
  const Outcome written = run(synth);
  EXPECT_EQ(written.code, 0) << written.err;
  EXPECT_THAT(written.out, IsEmpty());
  EXPECT_THAT(written.err, HasSubstr("5 layers MEMEM, 16 routed experts, live published, seed 3"));
  EXPECT_EQ(answer({"-m", model, "-n", "3", "--ignore-eos", "-q"})["tokens"].size(), 3u);
  EXPECT_THAT(run({"inspect", model}).out, HasSubstr("\nsynthetic     synthetic weights"));

  expect_error(run(synth), 2, "wanted --force");
  EXPECT_THAT(run(plus(synth, {"--force", "-q"})).err, IsEmpty());
}

TEST(CliSynth, Errors) {
  expect_error(run({"synth"}), 2, "folder");
  expect_error(run({"synth", "--layers", "0", "x"}), 2, "--layers");
  expect_error(run({"synth", "--shape", "thunder", "no/folder"}), 2, "--shape: thunder");
  expect_error(run({"synth", "--shape", "README.md", "no/folder"}), 3, "README.md");
  expect_error(run({"synth", "README.md"}), 2, "README.md: is no folder");
}

TEST(CliInspect, TextAndJson) {
  const Outcome text = run({"inspect", "models/tiny-nemotron-h/mlx-4bit"});
  EXPECT_EQ(text.code, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("nemotron_h"));
  const Outcome tensors = run({"inspect", "--tensors"});
  EXPECT_GT(tensors.out.size(), text.out.size());
  const Json json = Json::parse(run({"inspect", "--json"}).out, nullptr, false);
  EXPECT_EQ(json["architecture"], "nemotron_h");
  // A model this build does not run is still described.
  EXPECT_EQ(run({"inspect", "models/tiny-glm-dsa/mlx-4bit"}).code, 0);
}

// The bundled model is what a conversion gives, so it serves as what is no source.
TEST(CliConvert, UsageAndModelErrors) {
  const std::string out = (scratch().path() / "converted").string();
  const std::string bundled = "models/tiny-nemotron-h/mlx-4bit";
  expect_error(run({"convert"}), 2, "source");
  expect_error(run({"convert", bundled, out, "--bits", "7"}), 2, "--bits");
  expect_error(run({"convert", bundled, out, "--mtp", "maybe"}), 2, "--mtp");
  expect_error(run({"convert", bundled, out, "--rules", "no/such/rules"}), 2, "no/such/rules");
  expect_error(run({"convert", "no/such/model", out}), 3, "no/such/model");
  expect_error(run({"convert", bundled, out}), 3, "quantised by MLX already");
  expect_error(run({"convert", bundled, bundled}), 2, "is the source itself");
  EXPECT_FALSE(fs::exists(out));
}

TEST(CliConvert, ConvertsAndExtracts) {
  const test::TempFolder folder;
  const std::string source = (folder.path() / "source").string();
  const std::string out = (folder.path() / "out").string();
  fs::create_directories(source);
  test::TestTensors tensors = test::tiny_tensors(false);
  test::add_tiny_head(tensors);
  test::generate_weights(tensors);
  Json config = test::tiny_config();
  config["num_nextn_predict_layers"] = 1;
  folder.write("source/config.json", config.dump());
  folder.write("source/model.safetensors", tensors);

  Outcome o = run({"convert", source, out, "--mtp", "off", "--bits", "8"});
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_THAT(o.out, IsEmpty());
  EXPECT_THAT(o.err, ContainsRegex("out: [0-9]+ modules quantised, [0-9]+ tensors, .* 1 file\n$"));
  expect_error(run({"convert", source, out, "--bits", "8"}), 2, "--force");
  expect_error(run({"convert", source, out, "--mtp", "only"}), 2, "8 bits in groups of 64");
  o = run({"convert", source, out, "--mtp", "only", "--bits", "8", "-q"});
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_THAT(o.err, IsEmpty());
  o = run({"inspect", out, "--json"});
  EXPECT_EQ(o.code, 0) << o.err;
  const Json seen = Json::parse(o.out, nullptr, false);
  EXPECT_TRUE(seen["problem"].is_null() || seen["problem"] == "") << seen["problem"];
  EXPECT_THAT(o.out, HasSubstr("mtp.safetensors"));
}

}  // namespace
}  // namespace lacuna
