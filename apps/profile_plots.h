// SPDX-License-Identifier: Apache-2.0
// The drawings of the profile's page: SVG whose colours come from the page's style sheet, so that
// they follow the reader's light or dark scheme.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "profile_report.h"

namespace lacuna {

// Text for HTML and for quoted attributes; control characters become spaces.
std::string html_escape(std::string_view text);

// How a series is drawn over its layer.
enum class Mark {
  kWide,     // a bar as broad as the layer has room
  kSlim,     // a bar of half that width, to stand in front of a wide one
  kStacked,  // a wide bar on top of the stacked series before it
  kCircle,
  kDiamond,
};

struct PlotValue {
  double value = 0;
  double low = 0, high = 0;  // drawn as a line when they differ
};

struct PlotSeries {
  std::string css;  // class of the marks
  Mark mark = Mark::kWide;
  std::vector<std::optional<PlotValue>> values;  // by layer, in the plot's unit
};

// A value or several per layer, side by side in the order of the layers.
struct LayerPlot {
  std::string label;                  // for readers who do not see it
  std::string unit;                   // of the vertical axis
  std::vector<std::string> kind_css;  // by layer: classes of the strip below the axis
  std::vector<std::string> tips;      // by layer: shown when pointed at
  std::vector<PlotSeries> series;
};

// Widths of a drawing in its own units; the page shows the one that fits, so that letters stay
// readable on a telephone.
enum class DrawingWidth { kDesktop = 1000, kPhone = 360 };

std::string draw_layers(const LayerPlot& plot, DrawingWidth width);

// Classes of the parts, by name.
using PartColours = std::map<std::string, std::string>;

// All steps end to end, in rows that share one scale of time and break between layers.
std::string draw_timeline(const PhaseReport& phase, const PartColours& colours, DrawingWidth width);

// Both widths of a drawing.
std::string draw_both(const std::function<std::string(DrawingWidth)>& draw);

}  // namespace lacuna
