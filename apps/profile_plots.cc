// SPDX-License-Identifier: Apache-2.0
#include "profile_plots.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "profile_text.h"

namespace lacuna {
namespace {

constexpr double kRightMargin = 8;
constexpr double kLetter = 7.2;  // width of a character, at most

// Steps of 1, 2 or 5 times a power of ten, about `wanted` of them up to `largest`.
double nice_step(double largest, int wanted) {
  if (!(largest > 0)) return 1;
  const double raw = largest / wanted;
  const double power = std::pow(10, std::floor(std::log10(raw)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (factor * power >= raw) return factor * power;
  return 10 * power;
}

std::string tick_text(double value, double step) {
  const int decimals = std::max(0, static_cast<int>(-std::floor(std::log10(step) + 1e-9)));
  return fmt::format("{:.{}f}", value, decimals);
}

std::string rect(const std::string& css, double x, double y, double width, double height) {
  return fmt::format(R"(<rect class="{}" x="{:.2f}" y="{:.2f}" width="{:.2f}" height="{:.2f}"/>)",
                     css, x, y, std::max(width, 0.0), std::max(height, 0.0));
}

std::string line(const std::string& css, double x1, double y1, double x2, double y2) {
  return fmt::format(R"(<line class="{}" x1="{:.2f}" y1="{:.2f}" x2="{:.2f}" y2="{:.2f}"/>)", css,
                     x1, y1, x2, y2);
}

// `anchor` is start, middle or end.
std::string text_at(const std::string& css, const char* anchor, double x, double y,
                    std::string_view text) {
  return fmt::format(R"(<text class="{}" text-anchor="{}" x="{:.1f}" y="{:.1f}">{}</text>)", css,
                     anchor, x, y, html_escape(text));
}

std::string open_svg(double width, double height, const std::string& label) {
  return fmt::format(R"(<svg viewBox="0 0 {:.0f} {:.0f}" role="img" aria-label="{}">)", width,
                     height, html_escape(label)) +
         "\n";
}

// Where a LayerPlot's layers and values lie.
struct Frame {
  double left, top, width, height;  // of the plotted area
  double band = 0;                  // width of a layer
  double step = 1, largest = 1;     // of the vertical axis

  double x(std::size_t layer) const { return left + band * (static_cast<double>(layer) + 0.5); }
  double y(double value) const { return top + height * (1 - value / largest); }
  double bar() const { return std::min(band * 0.78, 40.0); }
};

double largest_value(const LayerPlot& plot) {
  double largest = 0;
  for (std::size_t i = 0; i < plot.tips.size(); ++i) {
    double stacked = 0;
    for (const PlotSeries& s : plot.series) {
      if (!s.values[i]) continue;
      if (s.mark == Mark::kStacked) stacked += s.values[i]->value;
      largest = std::max({largest, stacked, s.values[i]->value, s.values[i]->high});
    }
  }
  return largest;
}

Frame make_frame(const LayerPlot& plot, double width, double height) {
  const bool phone = width < 500;
  Frame frame{phone ? 36.0 : 52.0, 24, 0, height - 24 - 30};
  frame.width = width - frame.left - kRightMargin;
  frame.band = frame.width / static_cast<double>(std::max<std::size_t>(plot.tips.size(), 1));
  const double largest = largest_value(plot);
  frame.step = nice_step(largest, 4);
  frame.largest = frame.step * std::max(1.0, std::ceil(largest / frame.step - 1e-9));
  return frame;
}

std::string draw_axes(const LayerPlot& plot, const Frame& f) {
  std::string svg = text_at("axis", "start", 2, 12, plot.unit);
  const int steps = static_cast<int>(std::lround(f.largest / f.step));
  for (int i = 0; i <= steps; ++i) {
    const double y = f.y(i * f.step);
    svg += line(i == 0 ? "base" : "grid", f.left, y, f.left + f.width, y);
    svg += text_at("axis", "end", f.left - 6, y + 4, tick_text(i * f.step, f.step));
  }
  int every = 1;  // layers between two numbers
  for (const int n : {1, 2, 4, 5, 10, 20, 50, 100}) {
    every = n;
    if (f.band * n >= 26) break;
  }
  const double bottom = f.top + f.height;
  for (std::size_t i = 0; i < plot.tips.size(); ++i) {
    svg += rect(plot.kind_css[i], f.left + f.band * static_cast<double>(i) + 0.5, bottom + 4,
                f.band - 1, 7);
    if (i % static_cast<std::size_t>(every) == 0)
      svg += text_at("axis", "middle", f.x(i), bottom + 24, std::to_string(i));
  }
  return svg + text_at("axis", "end", f.left - 6, bottom + 24, "layer") + "\n";
}

std::string draw_dot(const PlotSeries& series, const PlotValue& value, double x, const Frame& f) {
  const double y = f.y(value.value);
  const double size = std::clamp(f.band * 0.3, 2.0, 5.0);
  std::string svg;
  if (value.high > value.low)
    svg += line("range " + series.css, x, f.y(value.low), x, f.y(value.high));
  if (series.mark == Mark::kCircle) {
    return svg + fmt::format(R"(<circle class="{}" cx="{:.2f}" cy="{:.2f}" r="{:.1f}"/>)",
                             series.css, x, y, size);
  }
  const double half = size * 1.25;
  return svg +
         fmt::format(
             R"(<path class="{}" d="M{:.2f} {:.2f}l{:.2f} {:.2f}l{:.2f} {:.2f}l{:.2f} {:.2f}z"/>)",
             series.css, x, y - half, half, half, -half, half, -half, -half);
}

std::string draw_column(const LayerPlot& plot, std::size_t layer, const Frame& f) {
  std::string svg = "<g class=\"col\"><title>" + html_escape(plot.tips[layer]) + "</title>";
  svg += rect("hit", f.x(layer) - f.band / 2, f.top, f.band, f.height);
  double below = 0;  // of the stack
  for (const PlotSeries& s : plot.series) {
    if (!s.values[layer]) continue;
    const PlotValue& v = *s.values[layer];
    const double aside = std::min(f.band * 0.2, 8.0);
    switch (s.mark) {
      case Mark::kCircle:
        svg += draw_dot(s, v, f.x(layer) - aside, f);
        break;
      case Mark::kDiamond:
        svg += draw_dot(s, v, f.x(layer) + aside, f);
        break;
      default: {
        const double bar = s.mark == Mark::kSlim ? f.bar() / 2 : f.bar();
        const double from = s.mark == Mark::kStacked ? below : 0;
        if (v.value > 0) {
          svg += rect(s.css, f.x(layer) - bar / 2, f.y(from + v.value), bar,
                      f.y(from) - f.y(from + v.value));
        }
        if (s.mark == Mark::kStacked) below += v.value;
      }
    }
  }
  return svg + "</g>\n";
}

// A step, or what fits into a row of one that is longer than a row.
struct Piece {
  TimelineStep step;   // of this piece
  double seconds = 0;  // of the whole step
  std::string label;
};

// Pieces that stay together in one row: a layer, or one that stands outside the layers.
struct Group {
  int layer = -1;
  std::vector<Piece> pieces;
  double start = 0, seconds = 0;
};

struct Row {
  double start = 0;
  std::vector<Group> groups;
};

std::vector<Group> group_steps(const std::vector<TimelineStep>& steps, double row_seconds) {
  std::vector<Group> groups;
  double start = 0;
  const auto add = [&](const Piece& piece) {
    const int layer = piece.step.layer;
    if (groups.empty() || layer < 0 || groups.back().layer != layer)
      groups.push_back({layer, {}, start, 0});
    groups.back().pieces.push_back(piece);
    groups.back().seconds += piece.step.seconds;
    start += piece.step.seconds;
  };
  for (const TimelineStep& step : steps) {
    const int n = step.layer < 0 && row_seconds > 0
                      ? std::max(1, static_cast<int>(std::ceil(step.seconds / row_seconds)))
                      : 1;
    for (int i = 0; i < n; ++i) {
      add({{step.layer, step.part, step.seconds / n},
           step.seconds,
           n > 1 ? fmt::format("{} {}/{}", step.part, i + 1, n) : step.part});
    }
  }
  return groups;
}

// Rows of about `row_seconds`; `capacity` is set to the seconds of the longest.
std::vector<Row> make_rows(const std::vector<Group>& groups, double row_seconds, double& capacity) {
  double room = row_seconds * 1.03;
  for (const Group& g : groups) room = std::max(room, g.seconds);
  std::vector<Row> rows;
  capacity = 0;
  for (const Group& g : groups) {
    const double end = g.start + g.seconds;
    if (rows.empty() || end - rows.back().start > room) rows.push_back({g.start, {}});
    rows.back().groups.push_back(g);
    capacity = std::max(capacity, end - rows.back().start);
  }
  return rows;
}

// More layers make more rows, up to what a screen holds.
int wanted_rows(const PhaseReport& phase, bool phone) {
  const int rows = std::clamp(static_cast<int>(phase.layers.size() + 4) / 4, 3, 14);
  return phone ? 2 * rows : rows;
}

struct TimelineFrame {
  double left = 0, scale = 0;  // pixels per second
  Unit unit;
};

constexpr double kRowHeight = 58, kBarTop = 19, kBarHeight = 26;

std::string draw_group(const Group& group, const PartColours& colours, double x, double y,
                       const TimelineFrame& f) {
  const double width = group.seconds * f.scale;
  std::string svg;
  const std::string name = group.layer >= 0 ? std::to_string(group.layer) : "";
  if (group.layer >= 0) svg += line("bracket", x + 1, y + 14, x + width - 1, y + 14);
  if (static_cast<double>(name.size()) * kLetter + 2 < width)
    svg += text_at("axis", "middle", x + width / 2, y + 10, name);
  for (const Piece& piece : group.pieces) {
    const double w = piece.step.seconds * f.scale;
    const std::string where = group.layer >= 0 ? fmt::format("layer {}, ", group.layer) : "";
    svg += fmt::format("<g class=\"step\"><title>{}</title>",
                       html_escape(where + piece.step.part + ": " + f.unit.text(piece.seconds)));
    const std::string& css = colours.at(piece.step.part);
    svg += rect(css, x, y + kBarTop, w > 1.5 ? w - 0.6 : w, kBarHeight);
    if (static_cast<double>(piece.label.size()) * kLetter + 6 < w)
      svg += text_at("in " + css, "middle", x + w / 2, y + kBarTop + 17, piece.label);
    svg += "</g>";
    x += w;
  }
  return svg + "\n";
}

}  // namespace

std::string html_escape(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '&') {
      out += "&amp;";
    } else if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else if (c == '"') {
      out += "&quot;";
    } else if (c == '\'') {
      out += "&#39;";
    } else {
      out += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? ' ' : c;
    }
  }
  return out;
}

std::string draw_layers(const LayerPlot& plot, DrawingWidth drawing_width) {
  const double width = static_cast<double>(drawing_width);
  const double height = drawing_width == DrawingWidth::kPhone ? 205 : 242;
  const Frame frame = make_frame(plot, width, height);
  std::string svg = open_svg(width, height, plot.label) + draw_axes(plot, frame);
  for (std::size_t i = 0; i < plot.tips.size(); ++i) svg += draw_column(plot, i, frame);
  return svg + "</svg>\n";
}

std::string draw_timeline(const PhaseReport& phase, const PartColours& colours,
                          DrawingWidth drawing_width) {
  const double width = static_cast<double>(drawing_width);
  const bool phone = drawing_width == DrawingWidth::kPhone;
  double total = 0;
  for (const TimelineStep& step : phase.timeline) total += step.seconds;
  const double row_seconds = total / wanted_rows(phase, phone);
  double capacity = 0;
  const std::vector<Row> rows =
      make_rows(group_steps(phase.timeline, row_seconds), row_seconds, capacity);

  const double left = phone ? 40 : 64;
  const double bars = width - left - kRightMargin;
  const TimelineFrame f{left, ratio(bars, capacity), time_unit(phase.whole.cost.sparse_seconds)};
  const double height = 16 + kRowHeight * static_cast<double>(rows.size());
  std::string svg = open_svg(width, height, "The decode step as a timeline of its parts");
  svg += text_at("axis", "start", 2, 11, f.unit.name);
  const double step = nice_step(capacity / f.unit.size, phone ? 3 : 8);
  for (int i = 0; i * step * f.unit.size <= capacity && capacity > 0; ++i) {
    const double x = left + i * step * f.unit.size * f.scale;
    svg += line("grid", x, 16, x, height);
    if (i > 0 && x < width - 12)
      svg += text_at("axis", "middle", x, 11, "+" + tick_text(i * step, step));
  }
  svg += "\n";
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const double y = 18 + kRowHeight * static_cast<double>(r);
    svg += text_at("axis", "end", left - 6, y + kBarTop + 17, f.unit.number(rows[r].start));
    for (const Group& g : rows[r].groups) {
      const double x = left + (g.start - rows[r].start) * f.scale;
      svg += draw_group(g, colours, x, y, f);
    }
  }
  return svg + "</svg>\n";
}

std::string draw_both(const std::function<std::string(DrawingWidth)>& draw) {
  return "<div class=\"desktop\">" + draw(DrawingWidth::kDesktop) +
         "</div>\n<div class=\"phone\">" + draw(DrawingWidth::kPhone) + "</div>\n";
}

}  // namespace lacuna
