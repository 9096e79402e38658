// SPDX-License-Identifier: Apache-2.0
#include "profile_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "profile_plots.h"
#include "profile_style.h"
#include "profile_text.h"

namespace lacuna {
namespace {

constexpr int kColours = 8;      // of parts; the rest share a grey
constexpr int kKindColours = 4;  // of kinds of layers

// A coloured shape beside its name.
std::string legend_item(const std::string& shape, const std::string& name) {
  return "<span><svg viewBox=\"0 0 14 14\" aria-hidden=\"true\">" + shape + "</svg>" +
         html_escape(name) + "</span>";
}
std::string square(const std::string& css, const std::string& name) {
  return legend_item("<rect class=\"" + css + "\" x=\"1\" y=\"1\" width=\"12\" height=\"12\"/>",
                     name);
}

std::map<std::string, std::string> kind_classes(const PhaseReport& phase) {
  std::map<std::string, std::string> classes;
  for (const KindCost& kind : by_kind(phase)) {
    const int n = std::min(static_cast<int>(classes.size()), kKindColours - 1);
    classes[kind.kind] = fmt::format("k{}", n);
  }
  return classes;
}

std::string kind_legend(const PhaseReport& phase) {
  const auto classes = kind_classes(phase);
  std::string items;
  for (const KindCost& kind : by_kind(phase))
    items += square(classes.at(kind.kind), kind.kind + " layer");
  return items;
}

// The parts that take longest get a colour each, given out in the order in which parts run.
PartColours part_colours(const PhaseReport& phase) {
  std::vector<double> seconds;
  for (const PartCost& part : phase.whole.parts) seconds.push_back(part.cost.sparse_seconds);
  std::sort(seconds.rbegin(), seconds.rend());
  const double least = seconds.size() > kColours ? seconds[kColours - 1] : 0;
  PartColours colours;
  int next = 0;
  for (const PartCost& part : phase.whole.parts) {
    const bool coloured = next < kColours && part.cost.sparse_seconds >= least;
    colours[part.part] = coloured ? fmt::format("c{}", next++) : "cx";
  }
  return colours;
}

LayerPlot empty_plot(const PhaseReport& phase, const std::string& label, const std::string& unit) {
  const auto classes = kind_classes(phase);
  LayerPlot plot{label, unit, {}, {}, {}};
  for (const LayerCost& layer : phase.layers) {
    plot.kind_css.push_back(classes.at(layer.kind));
    plot.tips.push_back(fmt::format("layer {}, {}", layer.layer, layer.kind));
  }
  return plot;
}

template <class Value>
PlotSeries series(const PhaseReport& phase, const std::string& css, Mark mark, const Value& value) {
  PlotSeries result{css, mark, {}};
  for (const LayerCost& layer : phase.layers) result.values.push_back(value(layer));
  return result;
}

std::string figure(const LayerPlot& plot, const std::string& legend) {
  return "<figure>\n<div class=\"legend\">" + legend + "</div>\n" +
         draw_both([&](DrawingWidth width) { return draw_layers(plot, width); }) + "</figure>\n";
}

std::string section(const std::string& title, const std::string& text, const std::string& body) {
  return "<section>\n<h2>" + title + "</h2>\n<p class=\"soft\">" + text + "</p>\n" + body +
         "</section>\n";
}

std::string fact(const std::string& name, const std::string& value) {
  return "<div><dt>" + name + "</dt><dd>" + html_escape(value) + "</dd></div>\n";
}

std::string runs(int n) { return fmt::format("{} run{}", n, n == 1 ? "" : "s"); }

// A sentence as a paragraph that keeps "12.3 %" on one line.
std::string paragraph(const std::string& sentence) {
  std::string html = html_escape(sentence);
  for (std::size_t at; (at = html.find(" %")) != std::string::npos;) html.replace(at, 1, "&#160;");
  return "<p>" + html + "</p>\n";
}

std::string header(const ProfileReport& r) {
  std::string html = "<header>\n<p class=\"soft\">lacuna profile</p>\n<h1>" + html_escape(r.model) +
                     "</h1>\n<dl class=\"facts\">\n";
  html += fact("model", fmt::format("{}, {} layers", r.architecture, r.decode.layers.size()));
  html += fact("machine", fmt::format("{}, {} threads", r.cpu, r.threads));
  html += fact("kernels", fmt::format("{}, {}", r.isa, r.precision));
  html += fact("text", r.text);
  html += fact("prompt", fmt::format("{} tokens, {}, chunks of {}", r.prompt.tokens,
                                     runs(r.prompt.samples), r.prefill_chunk));
  html += fact("decoded", fmt::format("{} tokens", r.decode.samples));
  html += fact("date", r.date);
  html += fact("lacuna", r.version);
  return html + "</dl>\n</header>\n";
}

std::string card(const std::string& name, const std::string& big, const std::string& unit,
                 const std::string& under) {
  return fmt::format(
      "<div class=\"card\"><div class=\"name\">{}</div><div class=\"big\">{} "
      "<small>{}</small></div>"
      "<div class=\"under soft\">{}</div></div>\n",
      name, big, unit, under);
}

std::string speed_card(const std::string& name, const PhaseReport& phase) {
  return card(name, significant(phase.sparse_tokens_per_second()), "tokens/s",
              fmt::format("{} with all rows read: {:.2f} times as fast",
                          significant(phase.dense_tokens_per_second()),
                          ratio(phase.whole.cost.dense_seconds, phase.whole.cost.sparse_seconds)));
}

std::string cards(const ProfileReport& r) {
  const LayerCost& d = r.decode.whole;
  const Unit unit = byte_unit(d.cost.weight_bytes_dense);
  std::string html = "<div class=\"cards\">\n" + speed_card("Decode", r.decode);
  html += card("Weights per token", unit.number(d.cost.weight_bytes), unit.name,
               fmt::format("of {}: {} are left out", unit.text(d.cost.weight_bytes_dense),
                           percent(ratio(d.cost.skipped_bytes(), d.cost.weight_bytes_dense))));
  const std::string shared =
      d.shared ? fmt::format("{} of the shared expert's", percent(d.shared->mean)) : "";
  if (d.routed) {
    html += card("Live neurons", percent(d.routed->mean), "routed", shared);
  } else {
    html += card("Live neurons", d.shared ? percent(d.shared->mean) : "–", "", "no routed experts");
  }
  html += speed_card("Prompt", r.prompt) + "</div>\n";
  for (const std::string& sentence : profile_sentences(r)) html += paragraph(sentence);
  return html;
}

std::string live_section(const PhaseReport& decode) {
  LayerPlot plot = empty_plot(decode, "Live neurons by layer", "% of neurons live");
  const auto value = [](const std::optional<LiveShare>& s) -> std::optional<PlotValue> {
    if (!s) return std::nullopt;
    return PlotValue{100 * s->mean, 100 * s->low, 100 * s->high};
  };
  const auto tip = [](const char* name, const std::optional<LiveShare>& s) {
    return s ? fmt::format(", {} {} ({} to {})", name, percent(s->mean), percent(s->low),
                           percent(s->high))
             : "";
  };
  for (std::size_t i = 0; i < decode.layers.size(); ++i) {
    const LayerCost& layer = decode.layers[i];
    plot.tips[i] += tip("routed", layer.routed) + tip("shared", layer.shared);
  }
  plot.series = {
      series(decode, "routed", Mark::kCircle, [&](const auto& l) { return value(l.routed); }),
      series(decode, "shared", Mark::kDiamond, [&](const auto& l) { return value(l.shared); })};
  const std::string legend =
      legend_item("<circle class=\"routed\" cx=\"7\" cy=\"7\" r=\"5\"/>", "routed experts") +
      legend_item("<path class=\"shared\" d=\"M7 1l6 6l-6 6l-6 -6z\"/>", "shared expert") +
      kind_legend(decode);
  return section("Live neurons by layer",
                 "The share of neurons that are not exactly 0 after ReLU², in decode steps. The "
                 "mark is the mean, its line goes from the token with fewest to the one with most.",
                 figure(plot, legend));
}

std::string bytes_section(const PhaseReport& decode, const PartColours& colours) {
  double largest = 0;
  for (const LayerCost& layer : decode.layers)
    largest = std::max(largest, layer.cost.weight_bytes_dense);
  const Unit unit = byte_unit(largest);
  const SkippingParts skipping = skipping_parts(decode);
  const std::string names = fmt::format("{}", fmt::join(skipping.names, " and "));
  const std::string css = skipping.names.empty() ? "cx" : colours.at(skipping.names[0]);

  LayerPlot plot =
      empty_plot(decode, "Weights read by layer", fmt::format("{} a token", unit.name));
  const auto from_skipping = [&](const LayerCost& layer) {
    double bytes = 0;
    for (const PartCost& part : layer.parts) {
      const auto& all = skipping.names;
      if (std::find(all.begin(), all.end(), part.part) != all.end())
        bytes += part.cost.weight_bytes;
    }
    return bytes;
  };
  const auto value = [&](double bytes) { return PlotValue{bytes / unit.size, 0, 0}; };
  for (std::size_t i = 0; i < decode.layers.size(); ++i) {
    const LayerCost& layer = decode.layers[i];
    plot.tips[i] += fmt::format(": {} read of {}", unit.number(layer.cost.weight_bytes),
                                unit.text(layer.cost.weight_bytes_dense));
    for (const PartCost& part : layer.parts) {
      if (part.cost.weight_bytes_dense > 0)
        plot.tips[i] += fmt::format("; {} {}", part.part, unit.number(part.cost.weight_bytes));
    }
  }
  plot.series = {series(decode, "rest", Mark::kStacked,
                        [&](const auto& l) {
                          return std::optional(value(l.cost.weight_bytes - from_skipping(l)));
                        }),
                 series(decode, css, Mark::kStacked,
                        [&](const auto& l) { return std::optional(value(from_skipping(l))); }),
                 series(decode, "skipped", Mark::kStacked, [&](const auto& l) {
                   return std::optional(value(l.cost.skipped_bytes()));
                 })};
  std::string legend = square("rest", "read, all other parts");
  if (!skipping.names.empty())
    legend += square(css, "read in " + names) + square("skipped", "left out");
  return section("Weights read by layer",
                 "Bytes of weights that a decode step reads. The whole bar is what it reads when "
                 "no row is left out.",
                 figure(plot, legend + kind_legend(decode)));
}

std::string time_figure(const PhaseReport& phase, const std::string& label) {
  double longest = 0;
  for (const LayerCost& layer : phase.layers)
    longest = std::max({longest, layer.cost.sparse_seconds, layer.cost.dense_seconds});
  const Unit unit = time_unit(longest);
  LayerPlot plot = empty_plot(phase, label, unit.name);
  for (std::size_t i = 0; i < phase.layers.size(); ++i) {
    const Cost& cost = phase.layers[i].cost;
    plot.tips[i] += fmt::format(": {}, with all rows {}", unit.text(cost.sparse_seconds),
                                unit.text(cost.dense_seconds));
  }
  plot.series = {series(phase, "dense", Mark::kWide,
                        [&](const auto& l) {
                          return std::optional(PlotValue{l.cost.dense_seconds / unit.size, 0, 0});
                        }),
                 series(phase, "sparse", Mark::kSlim, [&](const auto& l) {
                   return std::optional(PlotValue{l.cost.sparse_seconds / unit.size, 0, 0});
                 })};
  const std::string legend =
      square("sparse", "rows left out") + square("dense", "all rows read") + kind_legend(phase);
  return figure(plot, legend);
}

// The legend of the timeline and its sums in one: a row per part, the longest first.
std::string part_table(const PhaseReport& phase, const PartColours& colours) {
  std::vector<PartCost> parts = phase.whole.parts;
  std::stable_sort(parts.begin(), parts.end(), [](const PartCost& a, const PartCost& b) {
    return a.cost.sparse_seconds > b.cost.sparse_seconds;
  });
  double sum = 0, longest = 0;
  for (const PartCost& part : parts) {
    sum += part.cost.sparse_seconds;
    longest = std::max({longest, part.cost.sparse_seconds, part.cost.dense_seconds});
  }
  const Unit unit = time_unit(longest);
  std::string html = fmt::format(
      "<table class=\"parts\"><thead><tr><th class=\"left\">part</th><th class=\"bars\"></th>"
      "<th>{}</th><th>share</th><th>all rows</th></tr></thead><tbody>\n",
      unit.name);
  for (const PartCost& part : parts) {
    const std::string& css = colours.at(part.part);
    html += fmt::format(
        "<tr><td class=\"left\"><svg class=\"swatch\" viewBox=\"0 0 14 14\" aria-hidden=\"true\">"
        "<rect class=\"{0}\" x=\"1\" y=\"1\" width=\"12\" height=\"12\"/></svg>{1}</td>"
        "<td class=\"bars\"><svg viewBox=\"0 0 100 14\" preserveAspectRatio=\"none\" "
        "aria-hidden=\"true\"><rect class=\"ghost\" x=\"0\" y=\"0\" width=\"{6:.2f}\" "
        "height=\"14\"/>"
        "<rect class=\"{0}\" x=\"0\" y=\"2\" width=\"{2:.2f}\" height=\"10\"/>"
        "</svg></td><td>{3}</td><td>{4}</td><td>{5}</td></tr>\n",
        css, html_escape(part.part), 100 * ratio(part.cost.sparse_seconds, longest),
        unit.number(part.cost.sparse_seconds), percent(ratio(part.cost.sparse_seconds, sum)),
        unit.number(part.cost.dense_seconds), 100 * ratio(part.cost.dense_seconds, longest));
  }
  return html + "</tbody></table>\n";
}

std::string timeline_section(const PhaseReport& decode, const PartColours& colours) {
  return section("One decode step",
                 "Every part of every layer in the order it runs, each as long as its median with "
                 "rows left out; medians of parts sum to less than the median step when other "
                 "work disturbs them. Numbers above are layers, those on the left say when a row "
                 "starts. Pale bars below: all rows read.",
                 "<figure>\n" + draw_both([&](DrawingWidth width) {
                   return draw_timeline(decode, colours, width);
                 }) + part_table(decode, colours) +
                     "</figure>\n");
}

std::string prompt_section(const PhaseReport& prompt) {
  std::string needed;
  if (prompt.whole.rows_needed) {
    LayerPlot plot =
        empty_plot(prompt, "Down rows that some token of the prompt needs", "% of rows needed");
    for (std::size_t i = 0; i < prompt.layers.size(); ++i) {
      if (const auto& rows = prompt.layers[i].rows_needed)
        plot.tips[i] += ": " + percent(*rows) + " of the rows";
    }
    plot.series = {
        series(prompt, "sparse", Mark::kWide, [](const auto& l) -> std::optional<PlotValue> {
          if (!l.rows_needed) return std::nullopt;
          return PlotValue{100 * *l.rows_needed, 0, 0};
        })};
    needed = section("The prompt: rows that some token needs",
                     "Tokens of a prompt that go to one expert share its rows: a row of the down "
                     "projection is read if any of them needs it, and each token adds its own "
                     "rows only. What no token needs is left out.",
                     figure(plot, square("sparse", "rows some token needs") + kind_legend(prompt)));
  }
  return needed +
         section("The prompt: time by layer",
                 fmt::format("Medians of {} of {} tokens.", runs(prompt.samples), prompt.tokens),
                 time_figure(prompt, "Time of the prompt by layer"));
}

std::string numbers_table(const ProfileReport& r) {
  const Unit step = time_unit(r.decode.whole.cost.dense_seconds / 10);
  const Unit prompt = time_unit(r.prompt.whole.cost.dense_seconds / 10);
  const Unit bytes = byte_unit(r.decode.whole.cost.weight_bytes_dense / 10);
  std::string html = fmt::format(
      "<details><summary>All numbers by layer</summary>\n<div class=\"scroll\"><table><thead><tr>"
      "<th>layer</th><th class=\"left\">kind</th><th>routed</th><th>shared</th><th>read, {0}</th>"
      "<th>of</th><th>step, {1}</th><th>all rows</th><th>prompt, {2}</th><th>all rows</th>"
      "<th>rows needed</th></tr></thead><tbody>\n",
      bytes.name, step.name, prompt.name);
  const auto share = [](const std::optional<LiveShare>& s) { return s ? percent(s->mean) : "–"; };
  for (std::size_t i = 0; i < r.decode.layers.size(); ++i) {
    const LayerCost& d = r.decode.layers[i];
    const LayerCost& p = r.prompt.layers[i];
    html += fmt::format("<tr><td>{}</td><td class=\"left\">{}</td>", d.layer, html_escape(d.kind));
    for (const std::string& cell :
         {share(d.routed), share(d.shared), bytes.number(d.cost.weight_bytes),
          bytes.number(d.cost.weight_bytes_dense), step.number(d.cost.sparse_seconds),
          step.number(d.cost.dense_seconds), prompt.number(p.cost.sparse_seconds),
          prompt.number(p.cost.dense_seconds), p.rows_needed ? percent(*p.rows_needed) : "–"}) {
      html += "<td>" + cell + "</td>";
    }
    html += "</tr>\n";
  }
  return html + "</tbody></table></div>\n</details>\n";
}

constexpr const char* kGlossary = R"html(<section>
<h2>Words</h2>
<dl class="glossary">
<dt>live neuron</dt><dd>A neuron of an expert whose value after ReLU² is not exactly 0. A dead one adds 0 to every output, so its row of the down projection need not be read. The answer has the same bits.</dd>
<dt>routed and shared experts</dt><dd>The router picks a few of the routed experts for each token; the shared expert works on every token.</dd>
<dt>up and down</dt><dd>An expert's two matrices. Up gives the neurons their values and is read whole; down turns them into outputs and is read by live neurons.</dd>
<dt>rows left out, all rows read</dt><dd>The two settings, compared on the same tokens. They took turns step by step, so that changes of the machine's speed meet both.</dd>
<dt>decode step</dt><dd>The pass that computes one token after the prompt. Here the tokens are those of the text, not the model's choice, unless the text ended.</dd>
<dt>part</dt><dd>A piece of a layer's work between two readings of the clock.</dd>
<dt>rows needed</dt><dd>An expert reads a row of its down projection when at least one of the tokens it has in a pass needs it. The more tokens, the more rows.</dd>
</dl>
</section>
)html";

constexpr const char* kPatterns =
    "<svg class=\"patterns\" aria-hidden=\"true\"><defs><pattern id=\"skipped\" width=\"6\" "
    "height=\"6\" patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate(45)\">"
    "<rect class=\"rest\" width=\"2\" height=\"6\"/></pattern></defs></svg>\n";

}  // namespace

std::string profile_page(const ProfileReport& report) {
  const PartColours colours = part_colours(report.decode);
  std::string html =
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n<title>" +
      html_escape("lacuna profile: " + report.model) + "</title>\n<style>" + kProfileStyle +
      "</style>\n</head>\n<body>\n" + kPatterns + "<main>\n";
  html += header(report) + cards(report);
  html += live_section(report.decode);
  html += bytes_section(report.decode, colours);
  html += section("Time by layer",
                  "A layer of a decode step, from its norm to its sum. Medians over the tokens.",
                  time_figure(report.decode, "Time of a decode step by layer"));
  html += timeline_section(report.decode, colours);
  html += prompt_section(report.prompt);
  html += numbers_table(report);
  return html + kGlossary + "</main>\n</body>\n</html>\n";
}

}  // namespace lacuna
