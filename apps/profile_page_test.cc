// SPDX-License-Identifier: Apache-2.0
// What a profile looks like: terminal, JSON, page.
#include "profile_page.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cctype>
#include <sstream>

#include "profile_example.h"
#include "profile_plots.h"
#include "profile_text.h"

namespace lacuna {
namespace {

using test::example_report;
using ::testing::HasSubstr;
using ::testing::Not;

// "" when every element of the page is closed in order; else what is wrong. The page writes
// elements without content as <br/>.
std::string tag_error(const std::string& html) {
  std::vector<std::string> open;
  for (std::size_t at = html.find('<'); at != std::string::npos; at = html.find('<', at + 1)) {
    const std::size_t end = html.find('>', at);
    if (end == std::string::npos) return "a tag without end";
    const std::string tag = html.substr(at + 1, end - at - 1);
    if (tag.find('<') != std::string::npos) return "a < within <" + tag;
    if (tag.starts_with("!") || tag.ends_with("/")) continue;
    const std::string name = tag.substr(0, tag.find_first_of(" \n"));
    if (!name.starts_with("/")) {
      open.push_back(name);
    } else if (open.empty() || open.back() != name.substr(1)) {
      return "<" + name + "> closes " + (open.empty() ? "nothing" : open.back());
    } else {
      open.pop_back();
    }
  }
  return open.empty() ? "" : open.back() + " stays open";
}

int count(const std::string& text, const std::string& part) {
  int n = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

// `layers` layers, of which every third is an MoE.
ProfileReport deep_report(int layers) {
  ProfileReport report = example_report();
  const LayerCost mamba = report.decode.layers[0], moe = report.decode.layers[1];
  for (PhaseReport* phase : {&report.decode, &report.prompt}) {
    phase->layers.clear();
    phase->timeline.clear();
    for (int i = 0; i < layers; ++i) {
      phase->layers.push_back(i % 3 == 2 ? moe : mamba);
      phase->layers.back().layer = i;
      for (const PartCost& part : phase->layers.back().parts)
        phase->timeline.push_back({i, part.part, part.cost.sparse_seconds});
    }
  }
  return report;
}

TEST(ProfileText, Numbers) {
  EXPECT_EQ(significant(0), "0");
  EXPECT_EQ(significant(1234.5), "1234");
  EXPECT_EQ(significant(999.6), "1000");
  EXPECT_EQ(significant(78.94), "78.9");
  EXPECT_EQ(significant(9.996), "10.0");
  EXPECT_EQ(significant(4.564), "4.56");
  EXPECT_EQ(significant(0.9996), "1.00");
  EXPECT_EQ(significant(0.01234), "0.0123");
  EXPECT_EQ(significant(1e-12), "0.000000");
  EXPECT_EQ(percent(0.0789), "7.9 %");
  EXPECT_EQ(time_unit(0.5).text(0.0123), "12.3 ms");
  EXPECT_EQ(time_unit(0.0005).text(0.0001), "100 µs");
  EXPECT_EQ(byte_unit(5e6).text(5e6), "5.00 MB");
}

TEST(ProfileText, TableAndSentences) {
  const std::string text = profile_text(example_report());
  EXPECT_THAT(text,
              HasSubstr("    1  moe           15.0    10.0      4.00     7.00      57.2      114"));
  EXPECT_THAT(text, HasSubstr("62.0\n"));
  EXPECT_THAT(text, Not(HasSubstr("\n%")));
  EXPECT_THAT(text, HasSubstr("reads 12.5 of 19.0 MB of weights, 34.2 % less"));
  EXPECT_THAT(text, HasSubstr("in down, which reads 1.50 of 8.00 MB."));
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::size_t columns = 0;
    for (const char c : line) columns += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
    EXPECT_LE(columns, 100u) << line;
  }
}

TEST(ProfileText, AModelThatLeavesNothingOut) {
  std::vector<ProfileSample> samples(1);
  samples[0] = {1e-3, {{0, 0, "in_proj", 0, 1e-3, test::part_counters(100, 100)}}};
  ProfileReport report = example_report();
  report.decode = make_phase(samples, samples, 1, {"mamba"});
  report.prompt = make_phase(samples, samples, 9, {"mamba"});
  const std::string text = profile_text(report);
  EXPECT_THAT(text, HasSubstr("no part of this model leaves rows out"));
  EXPECT_THAT(text, Not(HasSubstr("nan")));
  EXPECT_EQ(tag_error(profile_page(report)), "");
}

TEST(ProfileText, ANameCannotDriveTheTerminal) {
  ProfileReport report = example_report();
  report.model = "a\x1b[31mb\nc";
  const std::string text = profile_text(report);
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
  EXPECT_THAT(text, HasSubstr("a [31mb c (nemotron_h)"));
}

TEST(ProfileJson, HoldsWhatThePageShows) {
  const auto json = profile_json(example_report());
  EXPECT_EQ(json["model"], "example");
  EXPECT_EQ(json["decode"]["samples"], 3);
  ASSERT_EQ(json["decode"]["layers"].size(), 3u);
  const auto& moe = json["decode"]["layers"][1];
  EXPECT_EQ(moe["kind"], "moe");
  EXPECT_DOUBLE_EQ(moe["live"]["routed"]["mean"], 0.15);
  EXPECT_EQ(moe["weight_bytes"], 4e6);
  EXPECT_EQ(moe["parts"][2]["part"], "down");
  EXPECT_EQ(moe["parts"][2]["weight_bytes_dense"], 4e6);
  EXPECT_TRUE(json["decode"]["layers"][0]["live"]["routed"].is_null());
  EXPECT_DOUBLE_EQ(json["prompt"]["layers"][1]["rows_needed"], 0.62);
  ASSERT_EQ(json["decode"]["timeline"].size(), 12u);
  EXPECT_TRUE(json["decode"]["timeline"][0]["layer"].is_null());
  EXPECT_NEAR(json["decode"]["timeline"][1]["start"], 1.1e-6, 1e-12);
  EXPECT_EQ(json["sentences"].size(), 4u);
}

TEST(ProfilePage, IsWellFormedAndSelfContained) {
  for (const int layers : {0, 1, 8, 88}) {
    const std::string html = profile_page(deep_report(layers));
    EXPECT_EQ(tag_error(html), "") << layers;
    for (const char* outside : {"http", "<script", "<link", "<img", "@import", "nan", "inf,"})
      EXPECT_THAT(html, Not(HasSubstr(outside))) << layers;
  }
}

TEST(ProfilePage, EveryLayerIsInEveryPlot) {
  const std::string html = profile_page(deep_report(88));
  for (int i = 0; i < 88; ++i) {
    // Live share, bytes, time, rows needed, time of the prompt, each in two widths.
    EXPECT_EQ(count(html, fmt::format("<title>layer {}, {}", i, i % 3 == 2 ? "moe" : "mamba")), 10);
    EXPECT_EQ(count(html, fmt::format("<title>layer {}, norm", i)), 2);
    EXPECT_EQ(count(html, fmt::format("<tr><td>{}</td>", i)), 1);
  }
}

TEST(ProfilePage, TextFromFilesIsEscaped) {
  ProfileReport report = example_report();
  report.model = "</title><script>alert('1')</script>&\"";
  report.text = "<b>\n";
  report.decode.layers[1].kind = "<i>";
  report.prompt.layers[1].kind = "<i>";
  const std::string html = profile_page(report);
  EXPECT_THAT(html, Not(HasSubstr("<script")));
  EXPECT_THAT(html, Not(HasSubstr("<b>")));
  EXPECT_THAT(html, Not(HasSubstr("<i>")));
  EXPECT_THAT(html, HasSubstr("&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt;&amp;&quot;"));
  EXPECT_EQ(tag_error(html), "");
}

TEST(ProfilePage, PartsWithoutAColourShareTheGrey) {
  ProfileReport report = example_report();
  for (int i = 0; i < 9; ++i) {
    const std::string part = fmt::format("extra{}", i);
    report.decode.whole.parts.push_back({part, {1, 1, 0, 0, 0}});
    report.decode.timeline.push_back({0, part, 1});
  }
  const std::string html = profile_page(report);
  EXPECT_THAT(html, HasSubstr("class=\"c7\""));
  EXPECT_THAT(html, Not(HasSubstr("class=\"c8\"")));
  EXPECT_THAT(html, HasSubstr("class=\"cx\""));
}

// A head longer than the rest of the step is cut to rows, and each piece tells the whole time.
TEST(ProfilePlots, ALongStepWraps) {
  PhaseReport phase = example_report().decode;
  phase.timeline.back().seconds = 2e-3;
  PartColours colours;
  for (const PartCost& part : phase.whole.parts) colours[part.part] = "c0";
  const std::string svg = draw_timeline(phase, colours, DrawingWidth::kDesktop);
  EXPECT_EQ(tag_error(svg), "");
  EXPECT_EQ(count(svg, "<title>head: 2000 µs</title>"), 3);
  EXPECT_EQ(count(svg, ">head 3/3</text>"), 1);
  EXPECT_EQ(count(svg, "<title>layer 1, down: 22.0 µs</title>"), 1);
}

TEST(ProfilePlots, AValueStandsAtItsHeight) {
  LayerPlot plot{"p", "MB", {"k0", "k0"}, {"one", "two"}, {}};
  plot.series = {{"a", Mark::kStacked, {PlotValue{10}, PlotValue{5}}},
                 {"b", Mark::kStacked, {PlotValue{10}, std::nullopt}}};
  const std::string svg = draw_layers(plot, DrawingWidth::kDesktop);
  EXPECT_EQ(tag_error(svg), "");
  // The tallest stack is 20, the axis ends there, the plotted area is 188 high from y = 24.
  EXPECT_EQ(count(svg, "y=\"118.00\" width=\"40.00\" height=\"94.00\""), 1);
  EXPECT_EQ(count(svg, "y=\"24.00\" width=\"40.00\" height=\"94.00\""), 1);
  EXPECT_EQ(count(svg, "y=\"165.00\" width=\"40.00\" height=\"47.00\""), 1);
  EXPECT_THAT(svg, HasSubstr(">20</text>"));
}

}  // namespace
}  // namespace lacuna
