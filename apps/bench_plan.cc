// SPDX-License-Identifier: Apache-2.0
#include "bench_plan.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <optional>
#include <random>
#include <string_view>

#include "decode/draft_control.h"
#include "lacuna/session.h"

namespace lacuna {
namespace {

constexpr int kLargestCount = 1 << 24;  // a sum of four stays an int
constexpr std::size_t kMostTests = 1000;
constexpr std::uint64_t kReplaySeed = 1;

Error wrong(const std::string& flag, std::string_view part, const std::string& want) {
  return {ErrorCode::kInvalidArgument, fmt::format("{}: \"{}\", want {}", flag, part, want)};
}

std::vector<std::string_view> split(std::string_view text) {
  std::vector<std::string_view> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

std::optional<int> count(std::string_view text) {
  int value = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || rest != end || value < 0 || value > kLargestCount) return {};
  return value;
}

// "a-b", "a-b+step", "a-b*factor": from a on, as long as it is at most b.
struct Range {
  int first, last, step = 1;
  bool multiply = false;
};

std::optional<Range> range(std::string_view text) {
  const std::size_t dash = text.find('-');
  if (dash == std::string_view::npos) return {};
  std::string_view last = text.substr(dash + 1);
  Range r{};
  if (const std::size_t sign = last.find_first_of("+*"); sign != std::string_view::npos) {
    const auto step = count(last.substr(sign + 1));
    r.multiply = last[sign] == '*';
    if (!step || *step < (r.multiply ? 2 : 1)) return {};
    r.step = *step;
    last = last.substr(0, sign);
  }
  const auto a = count(text.substr(0, dash)), b = count(last);
  if (!a || !b || *a > *b || (r.multiply && *a == 0)) return {};
  r.first = *a;
  r.last = *b;
  return r;
}

Result<BenchTest> parse_pair(const std::string& text) {
  const auto parts = split(text);
  const auto prompt = parts.size() == 2 ? count(parts[0]) : std::nullopt;
  const auto gen = parts.size() == 2 ? count(parts[1]) : std::nullopt;
  if (!prompt || !gen || *prompt == 0 || *gen == 0) return wrong("-pg", text, "PROMPT,GEN");
  return BenchTest{*prompt, *gen, 0};
}

}  // namespace

std::string BenchTest::label() const {
  std::string text;
  if (prompt > 0) text = fmt::format("pp{}", prompt);
  if (gen > 0) text += fmt::format("{}tg{}", text.empty() ? "" : "+", gen);
  if (depth > 0) text += fmt::format(" @ d{}", depth);
  return text;
}

Result<std::vector<int>> parse_counts(const std::string& flag, const std::string& text) {
  std::vector<int> counts;
  for (const std::string_view part : split(text)) {
    if (const auto one = count(part)) {
      counts.push_back(*one);
    } else if (const auto r = range(part)) {
      const std::size_t before = counts.size();
      for (std::int64_t n = r->first; n <= r->last; n = r->multiply ? n * r->step : n + r->step) {
        if (counts.size() - before == kMostTests)
          return wrong(flag, part, fmt::format("at most {} counts", kMostTests));
        counts.push_back(static_cast<int>(n));
      }
    } else {
      return wrong(
          flag, part,
          fmt::format("counts up to {} such as 512 or 128,512 or 128-512+128", kLargestCount));
    }
  }
  return counts;
}

Result<std::vector<BenchTest>> BenchPlan::tests() const {
  LAC_TRY(const std::vector<int> prompt_counts, parse_counts("-p", prompts));
  LAC_TRY(const std::vector<int> gen_counts, parse_counts("-n", gens));
  LAC_TRY(const std::vector<int> depth_counts, parse_counts("-d", depths));
  std::vector<BenchTest> shapes;
  for (const int n : prompt_counts)
    if (n > 0) shapes.push_back({n, 0, 0});
  for (const int n : gen_counts)
    if (n > 0) shapes.push_back({0, n, 0});
  for (const std::string& pair : pairs) {
    LAC_TRY(const BenchTest both, parse_pair(pair));
    shapes.push_back(both);
  }
  if (shapes.empty()) {
    return Error{ErrorCode::kInvalidArgument,
                 "no test is left: -p and -n are 0 and there is no -pg"};
  }
  if (shapes.size() * depth_counts.size() >= kMostTests) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{} tests at {} depths, want fewer than {} in all", shapes.size(),
                             depth_counts.size(), kMostTests)};
  }
  std::vector<BenchTest> all;
  for (const int depth : depth_counts)
    for (const BenchTest& shape : shapes) all.push_back({shape.prompt, shape.gen, depth});
  return all;
}

Result<std::vector<bool>> parse_experts(const std::string& text) {
  std::vector<bool> settings;
  for (const std::string_view part : split(text)) {
    const bool sparse = part == "sparse" || part == "on" || part == "auto";
    if (!sparse && part != "dense" && part != "off")
      return wrong("--experts", part, "sparse, dense or sparse,dense");
    if (std::find(settings.begin(), settings.end(), sparse) != settings.end())
      return wrong("--experts", text, "each setting once");
    settings.push_back(sparse);
  }
  return settings;
}

Result<std::vector<std::string>> parse_drafts(const std::string& text) {
  std::vector<std::string> drafts;
  for (const std::string_view part : split(text)) {
    const auto policy = parse_draft_policy(part, kMostDrafts);
    if (!policy.ok()) {
      return Error{ErrorCode::kInvalidArgument, fmt::format("--draft: {}", policy.error().what)};
    }
    const int fixed = policy->fixed.value_or(0);
    drafts.push_back(fixed > 0 ? std::to_string(fixed) : policy->fixed ? "off" : "auto");
    if (std::find(drafts.begin(), drafts.end() - 1, drafts.back()) != drafts.end() - 1)
      return wrong("--draft", text, "each setting once");
  }
  return drafts;
}

std::vector<std::string> drafts_of(const BenchTest& test, const std::vector<std::string>& drafts) {
  if (test.gen > 0) return drafts;
  const bool off = std::find(drafts.begin(), drafts.end(), "off") != drafts.end();
  return {off ? "off" : drafts.front()};
}

std::vector<bool> replayed_drafts(double accept, int count) {
  const double chance = (std::sqrt(1 + 4 * accept) - 1) / 2;  // p + p² = accept
  std::mt19937_64 generator(kReplaySeed);
  std::vector<bool> right(count);
  for (int i = 0; i < count; ++i)
    right[i] = std::ldexp(static_cast<double>(generator() >> 11), -53) < chance;
  return right;
}

}  // namespace lacuna
