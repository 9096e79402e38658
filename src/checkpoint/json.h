// SPDX-License-Identifier: Apache-2.0
// JSON text from untrusted files into nlohmann's ordered_json: bounded in depth, errors with their
// place.
//
// Why not nlohmann's own parser: model configs hold bare Infinity, its recursion has no bound, it
// keeps no line or key for the error, and its ordered objects cost quadratic time in the number of
// keys.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "lacuna/result.h"

namespace lacuna {

struct JsonOptions {
  bool bare_numbers = true;  // Infinity, -Infinity and NaN, as Python writes them
  bool refuse_duplicates =
      false;            // otherwise the last of equal keys counts, in the first one's place
  int max_depth = 100;  // of nested arrays and objects
};

// One JSON value and nothing after it; a byte order mark before it is skipped. Strings come out as
// valid UTF-8, integers that fit 64 bits as integers, every other number as double.
// Errors are kCorrupt: "config.json:12:5: time_step_limit[1]: wanted a value, found 'I'", where
// `name` is the file, and line and column (of bytes) count from 1.
Result<nlohmann::ordered_json> parse_json(std::string_view text, const std::string& name,
                                          const JsonOptions& options = {});

// Untrusted text for an error message: one line, control characters and quotes escaped, cut to
// `max_bytes`.
std::string printable(std::string_view text, std::size_t max_bytes = 120);

// The same for a JSON value, strings in quotes; never throws, whatever the value holds.
std::string printable_json(const nlohmann::ordered_json& value, std::size_t max_bytes = 120);

}  // namespace lacuna
