// SPDX-License-Identifier: Apache-2.0
// What an answer can say about itself: the "stats" object and the line of facts.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "decode/generate.h"
#include "lacuna/engine.h"

namespace lacuna {

// Whether there is anything to draft with and the policy wants it.
bool can_draft(const ModelInfo& model, const DraftPolicy& policy);

// Tells of a head that guesses nothing right, which no text makes likely.
void warn_of_drafts(const DraftReport& drafts);

// The object docs/cli.md describes. `peak_gb_s` is measure_read_bandwidth's, 0 when not measured.
nlohmann::ordered_json stats_json(const ModelInfo& model, bool sparse_experts,
                                  const DraftPolicy& policy, const GenerateResult& result,
                                  double peak_gb_s);

// One line: speeds, drafts, share of live neurons, bytes read per token against the dense number,
// and the read speed. Parts that have nothing to say are left out.
std::string facts_line(const ModelInfo& model, const DraftPolicy& policy,
                       const GenerateResult& result, double peak_gb_s);

}  // namespace lacuna
