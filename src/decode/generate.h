// SPDX-License-Identifier: Apache-2.0
// One answer over one session: sync the prompt, then token after token until something ends it.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "decode/answer.h"
#include "decode/draft_control.h"
#include "lacuna/result.h"
#include "lacuna/sampling.h"
#include "lacuna/session.h"

namespace lacuna {

struct GenerateOptions {
  SamplingParams sampling;
  int max_tokens = 256;                       // -1: until the context is full
  bool ignore_eos = false;                    // the model's stop tokens are tokens like any other
  std::vector<std::string> stops;             // none empty
  const std::atomic<bool>* cancel = nullptr;  // looked at every step; an answer cut so is no error
  // Asks how many drafts to offer, and learns what came of them; it may live through many answers.
  // Without one nothing is drafted.
  DraftControl* drafts = nullptr;
  std::function<void(std::string_view)> on_text;
  std::function<void(int done, int total)> on_prefill;
};

// Work over an interval, and how long it took.
struct Phase {
  int tokens = 0;  // that the timeline grew by
  double seconds = 0;
  Counters counters;
};

struct GenerateResult {
  std::string text;
  std::vector<int> tokens;  // as AnswerBuilder::tokens
  FinishReason finish = FinishReason::kStop;
  int prompt_tokens = 0;
  SyncReport sync;
  Phase prefill, decode;  // the first token costs no decode step: the prompt gives it
  DraftReport drafts;
  std::uint64_t seed = 0;
};

// Errors: kInvalidArgument (sampling, empty prompt, an empty stop string), and those of
// Session::sync but kCancelled. The answer never makes prompt and tokens exceed the context.
Result<GenerateResult> generate(Session& session, std::span<const int> prompt,
                                const GenerateOptions& options);

}  // namespace lacuna
