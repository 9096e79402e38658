// SPDX-License-Identifier: Apache-2.0
// The numbers a bench makes of its samples, and every format to the letter.
#include "bench_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

namespace lacuna {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr std::uint64_t kSecond = 1'000'000'000;

// Decoding 10 tokens: in 1 s and 2 s when sparse, in 2 s and 2.5 s when dense.
BenchRow decode_row(bool sparse) {
  BenchRow row;
  row.test = {0, 10, 0};
  row.sparse = sparse;
  row.test_time = "2026-11-30T18:00:00Z";
  row.samples = sparse ? std::vector<BenchSample>{{kSecond, 10, 20}, {2 * kSecond, 20, 30}}
                       : std::vector<BenchSample>{{2 * kSecond, 10, 20}, {5 * kSecond / 2, 20, 0}};
  row.counters.tokens = 20;
  row.counters.weight_bytes = sparse ? 20'000'000'000 : 40'000'000'000;
  row.counters.weight_bytes_dense = 40'000'000'000;
  row.counters.state_bytes = 1'000'000'000;
  row.counters.neurons = 1000;
  row.counters.live_neurons = 50;
  row.counters.shared_neurons = 200;
  row.counters.shared_live_neurons = 20;
  return row;
}

BenchRow prompt_row(bool sparse) {
  BenchRow row;
  row.test = {500, 0, 64};
  row.sparse = sparse;
  row.test_time = "2026-11-30T18:00:09Z";
  row.samples = {{kSecond / (sparse ? 2 : 1), 0, 0}};
  row.counters.weight_bytes = row.counters.weight_bytes_dense = 500'000'000;
  return row;
}

// decode_row, two drafts a step: both samples take 4 steps, half a second and 1 s.
BenchRow drafted_row(bool sparse, const std::string& draft = "2") {
  BenchRow row = decode_row(sparse);
  row.draft = draft;
  row.samples = {{kSecond / 2, 10, 20}, {kSecond, 20, 20}};
  row.draft_steps = 8;
  row.draft_offered = 15;
  row.draft_accepted = 12;
  return row;
}

BenchRun run_of(std::vector<BenchRow> rows) {
  BenchRun run;
  run.model.name = "a-model";
  run.model.weight_bytes = std::uint64_t{3} << 29;
  run.model.parameters = 2'500'000'000;
  run.model.threads = 2;
  run.model.isa = "avx2";
  run.model.precision = "bf16";
  run.model_path = "models/it's \"one\"";
  run.text = "val_prose.txt";
  run.cpu = "A CPU";
  run.build_commit = "abc1234";
  run.build_number = 42;
  run.batch = 2048;
  run.peak_rss = 1'700'000'000;
  run.rows = std::move(rows);
  return run;
}

TEST(BenchNumbers, MeanDeviationSpread) {
  EXPECT_EQ(mean_of({}), 0);
  EXPECT_EQ(mean_of({1, 2, 6}), 3);
  EXPECT_EQ(deviation_of({5}), 0);
  EXPECT_DOUBLE_EQ(deviation_of({2, 4, 4, 4, 5, 5, 7, 9}), std::sqrt(32.0 / 7));
  const Spread odd = spread_of({9, 1, 4}), even = spread_of({9, 1, 4, 5}), none = spread_of({});
  EXPECT_EQ(odd.median, 4);
  EXPECT_EQ(odd.min, 1);
  EXPECT_EQ(odd.max, 9);
  EXPECT_EQ(even.median, 4.5);
  EXPECT_EQ(none.max, 0);
}

TEST(RowStats, OfDecoding) {
  const RowStats s = row_stats(decode_row(true));
  EXPECT_THAT(s.tokens_per_second, ElementsAre(10, 5));
  EXPECT_EQ(s.speed.median, 7.5);
  EXPECT_EQ(s.bytes_per_token, 1e9);
  EXPECT_EQ(s.bytes_per_token_dense, 2e9);
  EXPECT_EQ(s.state_bytes_per_token, 5e7);
  EXPECT_DOUBLE_EQ(s.gb_s, 7);  // 10.5 GB in 1.5 s
  EXPECT_THAT(s.peaks, ElementsAre(10, 20, 20, 30));
  EXPECT_EQ(s.peak_gb_s, 20);
  EXPECT_DOUBLE_EQ(*s.fraction_of_peak, 0.35);
  EXPECT_EQ(s.live, 0.05);
  EXPECT_EQ(s.live_shared, 0.1);
}

TEST(RowStats, WhatIsNotKnownIsLeftOut) {
  EXPECT_THAT(row_stats(decode_row(false)).peaks, ElementsAre(10, 20, 20));
  BenchRow row = prompt_row(true);
  RowStats s = row_stats(row);
  EXPECT_EQ(s.peak_gb_s, std::nullopt);
  EXPECT_EQ(s.fraction_of_peak, std::nullopt);
  EXPECT_EQ(s.live, std::nullopt);
  EXPECT_EQ(s.live_shared, std::nullopt);
  row.samples[0].peak_before = 10;
  s = row_stats(row);
  EXPECT_EQ(s.peak_gb_s, 10);
  EXPECT_EQ(s.fraction_of_peak, std::nullopt);  // prompts are not bound by memory
}

// MB/token counts what is kept, whatever the passes computed.
TEST(RowStats, OfDrafts) {
  BenchRow row = drafted_row(true);
  row.counters.tokens = 23;
  const RowStats s = row_stats(row);
  EXPECT_THAT(s.tokens_per_second, ElementsAre(20, 10));
  EXPECT_EQ(s.bytes_per_token, 1e9);
}

TEST(Gains, RoundByRound) {
  const auto found = gains({decode_row(true), decode_row(false), prompt_row(true)});
  ASSERT_EQ(found.size(), 1u);  // the prompt ran in one setting only
  EXPECT_EQ(found[0].label, "sparse/dense tg10");
  EXPECT_DOUBLE_EQ(found[0].ratio.median, 1.625);
  EXPECT_DOUBLE_EQ(found[0].ratio.min, 1.25);
  EXPECT_DOUBLE_EQ(found[0].ratio.max, 2);
  EXPECT_THAT(gains({decode_row(false)}), IsEmpty());
}

TEST(Gains, OnlyOneThingDiffers) {
  const auto found = gains({decode_row(true), drafted_row(true), drafted_row(true, "auto"),
                            decode_row(false), drafted_row(false)});
  std::vector<std::string> labels;
  for (const Gain& gain : found) labels.push_back(gain.label);
  EXPECT_THAT(labels, ElementsAre("sparse/dense tg10", "sparse/dense tg10 drafts 2",
                                  "drafts 2/off tg10 sparse", "drafts auto/off tg10 sparse",
                                  "drafts 2/off tg10 dense"));
  EXPECT_DOUBLE_EQ(found[1].ratio.max, 1);
  EXPECT_DOUBLE_EQ(found[2].ratio.median, 2);  // of 1 s and 2 s
  EXPECT_DOUBLE_EQ(found[4].ratio.min, 2.5);   // of 2.5 s
  EXPECT_DOUBLE_EQ(found[4].ratio.median, 3.25);
  EXPECT_DOUBLE_EQ(found[4].ratio.max, 4);  // of 2 s
  BenchRow other = drafted_row(true);
  other.test.depth = 64;
  EXPECT_THAT(gains({decode_row(true), other, drafted_row(false)}), IsEmpty());
}

TEST(BenchFormats, Markdown) {
  EXPECT_EQ(
      bench_markdown(run_of({decode_row(true), decode_row(false), prompt_row(true)})),
      R"(| model   |     size | params | backend | threads |        test |            t/s | experts |      t/s median (min–max) | live % | MB/token (of dense) | GB/s | peak GB/s | % of peak |
| ------- | -------: | -----: | ------: | ------: | ----------: | -------------: | ------: | ------------------------: | -----: | ------------------: | ---: | --------: | --------: |
| a-model | 1.50 GiB | 2.50 B |     CPU |       2 |        tg10 |    7.50 ± 3.54 |  sparse |         7.50 (5.00–10.00) |    5.0 |  1000.00 of 2000.00 | 7.00 |     20.00 |      35.0 |
| a-model | 1.50 GiB | 2.50 B |     CPU |       2 |        tg10 |    4.50 ± 0.71 |   dense |          4.50 (4.00–5.00) |    5.0 |  2000.00 of 2000.00 | 9.11 |     20.00 |      45.6 |
| a-model | 1.50 GiB | 2.50 B |     CPU |       2 | pp500 @ d64 | 1000.00 ± 0.00 |  sparse | 1000.00 (1000.00–1000.00) |      – |        1.00 of 1.00 | 1.00 |         – |         – |

- machine: A CPU, 2 threads, avx2, bf16
- rounds: 2, every test and setting in turn; text: val_prose.txt
- memory read: 20.0 (10.0–30.0) GB/s, 7 probes around the samples
- sparse/dense tg10: 1.625 (1.250–2.000)
- peak resident memory: 1700.0 MB
- build: abc1234 (42)
)");
}

TEST(BenchFormats, MarkdownOfDrafts) {
  BenchRun run = run_of({decode_row(true), drafted_row(true), prompt_row(true)});
  EXPECT_EQ(
      bench_markdown(run),
      R"(| model   |     size | params | backend | threads |        test |            t/s | experts | drafts | accepted a step |      t/s median (min–max) | live % | MB/token (of dense) |  GB/s | peak GB/s | % of peak |
| ------- | -------: | -----: | ------: | ------: | ----------: | -------------: | ------: | -----: | --------------: | ------------------------: | -----: | ------------------: | ----: | --------: | --------: |
| a-model | 1.50 GiB | 2.50 B |     CPU |       2 |        tg10 |    7.50 ± 3.54 |  sparse |    off |               – |         7.50 (5.00–10.00) |    5.0 |  1000.00 of 2000.00 |  7.00 |     20.00 |      35.0 |
| a-model | 1.50 GiB | 2.50 B |     CPU |       2 |        tg10 |   15.00 ± 7.07 |  sparse |      2 |    1.50 of 1.88 |       15.00 (10.00–20.00) |    5.0 |  1000.00 of 2000.00 | 14.00 |     20.00 |      70.0 |
| a-model | 1.50 GiB | 2.50 B |     CPU |       2 | pp500 @ d64 | 1000.00 ± 0.00 |  sparse |    off |               – | 1000.00 (1000.00–1000.00) |      – |        1.00 of 1.00 |  1.00 |         – |         – |

- machine: A CPU, 2 threads, avx2, bf16
- rounds: 2, every test and setting in turn; text: val_prose.txt
- memory read: 20.0 (10.0–30.0) GB/s, 8 probes around the samples
- drafts 2/off tg10 sparse: 2.000 (2.000–2.000)
- peak resident memory: 1700.0 MB
- build: abc1234 (42)
)");
  run.accept = 1.3;
  EXPECT_THAT(bench_markdown(run), HasSubstr("\n- drafts: acceptance replayed, 1.3 of 2 right in "
                                             "the mean; the head's guesses only cost time\n"));
  run.rows.erase(run.rows.begin() + 1);
  EXPECT_THAT(bench_markdown(run), Not(HasSubstr("draft")));
}

// A prompt runs with drafts only where nothing else was asked for.
TEST(BenchFormats, MarkdownOfAPromptWithDrafts) {
  BenchRow row = prompt_row(true);
  row.draft = "auto";
  EXPECT_THAT(bench_markdown(run_of({row})), HasSubstr("|  sparse |   auto |               – |"));
}

TEST(BenchFormats, MarkdownOfOddNames) {
  BenchRun run = run_of({prompt_row(true)});
  run.model.name = "a|b\nc";
  run.synthetic = "seed 1\x1b[31m";
  const std::string text = bench_markdown(run);
  EXPECT_THAT(text, HasSubstr("| a\\|b c |"));
  EXPECT_THAT(text, HasSubstr("\n- checkpoint: synthetic, no trained weights: seed 1 [31m\n"));
  EXPECT_THAT(text, HasSubstr("\n- memory read: not measured, too little memory is free\n"));
  EXPECT_THAT(text, Not(HasSubstr("sparse/dense")));
}

TEST(BenchFormats, Json) {
  const Json rows = Json::parse(bench_json(run_of({decode_row(true), prompt_row(false)})));
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].dump(),
            R"({"build_commit":"abc1234","build_number":42,"cpu_info":"A CPU","gpu_info":"",)"
            R"("backends":"CPU","model_filename":"models/it's \"one\"","model_type":"a-model",)"
            R"("model_size":1610612736,"model_n_params":2500000000,"n_batch":2048,)"
            R"("n_ubatch":2048,"n_threads":2,"type_k":"bf16","type_v":"bf16","n_prompt":0,)"
            R"("n_gen":10,"n_depth":0,"test_time":"2026-11-30T18:00:00Z","avg_ns":1500000000,)"
            R"("stddev_ns":707106781,"avg_ts":7.5,"stddev_ts":3.5355339059327378,)"
            R"("samples_ns":[1000000000,2000000000],"samples_ts":[10.0,5.0],)"
            R"("experts":"sparse","precision":"bf16","isa":"avx2","synthetic":"",)"
            R"("text":"val_prose.txt","live_fraction":0.05,"live_fraction_shared":0.1,)"
            R"("bytes_per_token":1000000000.0,"bytes_per_token_dense":2000000000.0,)"
            R"("state_bytes_per_token":50000000.0,"gb_s":7.0,"peak_gb_s":20.0,)"
            R"("peak_gb_s_samples":[10.0,20.0,20.0,30.0],"fraction_of_peak":0.35,)"
            R"("draft":"off","draft_steps":0,"draft_offered":0,"draft_accept":0,)"
            R"("draft_replayed":null,"peak_rss":1700000000})");
  EXPECT_EQ(rows[1]["n_depth"], 64);
  EXPECT_EQ(rows[1]["experts"], "dense");
  EXPECT_TRUE(rows[1]["fraction_of_peak"].is_null());
  EXPECT_TRUE(rows[1]["live_fraction"].is_null());
}

TEST(BenchFormats, DraftsInJson) {
  BenchRun run = run_of({decode_row(true), drafted_row(true), drafted_row(true, "auto")});
  const auto drafts = [&](int row) {
    Json found = Json::object();
    const Json json = Json::parse(bench_json(run))[row];
    for (const auto& [key, value] : json.items())
      if (key.starts_with("draft")) found[key] = value;
    return found.dump();
  };
  const std::string counts = R"("draft_steps":8,"draft_offered":15,"draft_accept":12,)";
  EXPECT_EQ(drafts(1), R"({"draft":"2",)" + counts + R"("draft_replayed":null})");
  run.accept = 1.25;
  EXPECT_EQ(drafts(2), R"({"draft":"auto",)" + counts + R"("draft_replayed":1.25})");
  EXPECT_THAT(drafts(0), HasSubstr(R"("draft_replayed":null})"));  // nothing was replayed here
}

TEST(BenchFormats, DraftsFlat) {
  BenchRun run = run_of({drafted_row(true)});
  run.accept = 1.25;
  EXPECT_THAT(bench_csv(run), HasSubstr(R"("0.7","2","8","15","12","1.25","1700000000")"));
  const std::string sql = bench_sql(run);
  EXPECT_THAT(sql, HasSubstr("\n  draft TEXT,\n  draft_steps INTEGER,\n  draft_offered INTEGER,\n"
                             "  draft_accept INTEGER,\n  draft_replayed REAL,\n"));
  EXPECT_THAT(sql, HasSubstr(", 0.7, '2', 8, 15, 12, 1.25, 1700000000);\n"));
}

TEST(BenchFormats, TheCacheIsAsWideAsActivations) {
  BenchRun run = run_of({prompt_row(true)});
  run.model.precision = "f32";
  EXPECT_EQ(Json::parse(bench_jsonl(run))["type_k"], "f32");
}

TEST(BenchFormats, JsonlHasTheSameObjects) {
  const BenchRun run = run_of({decode_row(true), prompt_row(false)});
  const std::string text = bench_jsonl(run);
  const std::size_t end = text.find('\n');
  Json rows = {Json::parse(text.substr(0, end)), Json::parse(text.substr(end))};
  EXPECT_EQ(rows, Json::parse(bench_json(run)));
}

TEST(BenchFormats, NamesThatAreNotUtf8) {
  BenchRun run = run_of({prompt_row(true)});
  run.model_path = "\xff";
  EXPECT_EQ(Json::parse(bench_json(run))[0]["model_filename"], "\xef\xbf\xbd");
  EXPECT_THAT(bench_csv(run), HasSubstr("\xff"));
}

TEST(BenchFormats, Csv) {
  EXPECT_EQ(
      bench_csv(run_of({decode_row(true), prompt_row(false)})),
      "build_commit,build_number,cpu_info,gpu_info,backends,model_filename,model_type,model_size,"
      "model_n_params,n_batch,n_ubatch,n_threads,type_k,type_v,n_prompt,n_gen,n_depth,test_time,"
      "avg_ns,stddev_ns,avg_ts,stddev_ts,samples_ns,samples_ts,experts,precision,isa,synthetic,"
      "text,live_fraction,live_fraction_shared,bytes_per_token,bytes_per_token_dense,"
      "state_bytes_per_token,gb_s,peak_gb_s,peak_gb_s_samples,fraction_of_peak,draft,"
      "draft_steps,draft_offered,draft_accept,draft_replayed,peak_rss\n"
      R"("abc1234","42","A CPU","","CPU","models/it's ""one""","a-model","1610612736",)"
      R"("2500000000","2048","2048","2","bf16","bf16","0","10","0","2026-11-30T18:00:00Z",)"
      R"("1500000000","707106781","7.5","3.5355339059327378","1000000000;2000000000",)"
      R"("10.0;5.0","sparse","bf16","avx2","","val_prose.txt","0.05","0.1","1000000000.0",)"
      R"("2000000000.0","50000000.0","7.0","20.0","10.0;20.0;20.0;30.0","0.35","off","0","0",)"
      R"("0","","1700000000")"
      "\n"
      R"("abc1234","42","A CPU","","CPU","models/it's ""one""","a-model","1610612736",)"
      R"("2500000000","2048","2048","2","bf16","bf16","500","0","64","2026-11-30T18:00:09Z",)"
      R"("1000000000","0","500.0","0.0","1000000000","500.0","dense","bf16","avx2","",)"
      R"("val_prose.txt","","","1000000.0","1000000.0","0.0","0.5","","","","off","0","0","0","",)"
      R"("1700000000")"
      "\n");
}

TEST(BenchFormats, Sql) {
  const std::string text = bench_sql(run_of({prompt_row(false), decode_row(true)}));
  EXPECT_EQ(text.find("CREATE TABLE IF NOT EXISTS lacuna_bench (\n  build_commit TEXT,\n"), 0u);
  for (const char* column : {"model_size INTEGER", "avg_ts REAL", "samples_ns TEXT",
                             "peak_gb_s_samples TEXT", "fraction_of_peak REAL", "gb_s REAL",
                             "live_fraction REAL", "test_time TEXT", "peak_rss INTEGER\n"})
    EXPECT_THAT(text, HasSubstr(std::string("\n  ") + column));
  EXPECT_THAT(text, HasSubstr("\n);\nINSERT INTO lacuna_bench (build_commit, build_number,"));
  EXPECT_THAT(text, HasSubstr("peak_rss) VALUES ('abc1234', 42, 'A CPU', '', 'CPU', "
                              "'models/it''s \"one\"', 'a-model', 1610612736,"));
  EXPECT_THAT(text, HasSubstr("'2026-11-30T18:00:09Z', 1000000000, 0, 500.0, 0.0, '1000000000', "
                              "'500.0', 'dense',"));
  EXPECT_THAT(text, HasSubstr("NULL, '', NULL, 'off', 0, 0, 0, NULL, 1700000000);\nINSERT"));
  EXPECT_THAT(text, HasSubstr("'1000000000;2000000000', '10.0;5.0', 'sparse'"));
  EXPECT_THAT(text,
              HasSubstr("20.0, '10.0;20.0;20.0;30.0', 0.35, 'off', 0, 0, 0, NULL, 1700000000);\n"));
}

}  // namespace
}  // namespace lacuna
