// SPDX-License-Identifier: Apache-2.0
// A profile as text for the terminal and as JSON, and the numbers as both text and page write them.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "profile_report.h"

namespace lacuna {

// Three significant digits without an exponent: "0.0123", "4.56", "78.9", "1234"; 0 is "0".
std::string significant(double value);
// Of a share from 0 to 1: "7.9 %".
std::string percent(double share);

// A unit in which the largest of some values reads well.
struct Unit {
  const char* name;
  double size;  // value / size is the number to show

  std::string number(double value) const { return significant(value / size); }
  std::string text(double value) const { return number(value) + " " + name; }
};
Unit time_unit(double largest_seconds);  // "µs", "ms" or "s"
Unit byte_unit(double largest_bytes);    // "kB" or "MB", of powers of ten

// What the numbers say, a sentence each, about reading, live neurons, decoding and the prompt.
std::vector<std::string> profile_sentences(const ProfileReport& report);

// A table with a line per layer, the kinds of layers summed up, and the sentences; at most 100
// columns wide.
std::string profile_text(const ProfileReport& report);

// The object docs/cli.md describes.
nlohmann::ordered_json profile_json(const ProfileReport& report);

}  // namespace lacuna
