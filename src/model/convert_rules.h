// SPDX-License-Identifier: Apache-2.0
// The rule file of `lacuna convert`: bits and group size by module.
//
//     # pattern                 bits [group], or keep
//     lm_head                   8
//     *.shared_experts.*        6 32
//     mtp.*.eh_proj             keep
//
// A pattern is matched against the whole path of a module as the conversion names it (experts
// stacked: "….mixer.switch_mlp.fc1"); * stands for any text, ? for one character, [ab] for one of
// some. The first rule that matches a module counts; a module that none matches follows --bits and
// --group.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/quantize.h"
#include "lacuna/result.h"

namespace lacuna {

struct ConvertRule {
  std::string pattern;
  bool keep = false;         // the module stays as it is
  int bits = 4, group = 64;  // when not
  std::string where;         // "rules.txt:3", for errors
};

// Errors (kInvalidArgument) name the line, what it holds and what was wanted. `name` is the file's;
// a rule without a group has that of `defaults`.
Result<std::vector<ConvertRule>> parse_convert_rules(std::string_view text, const std::string& name,
                                                     const AffineFormat& defaults);
Result<std::vector<ConvertRule>> read_convert_rules(const std::filesystem::path& path,
                                                    const AffineFormat& defaults);

bool matches(const ConvertRule& rule, const std::string& module);

}  // namespace lacuna
