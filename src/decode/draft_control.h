// SPDX-License-Identifier: Apache-2.0
// How many tokens to draft in the next step. The text never depends on it, only the speed does.
//
// A step of d drafts emits 1 + a tokens, where a of the drafts are accepted, and takes the time of
// drafting d tokens and of a forward pass over 1 + d rows. d = 0 is a plain step.
//
// Costs    in plain steps: the ratio of a step to plain steps of the same few, since the speed of a
//          shared machine's memory changes within seconds. A plain step is taken now and then for
//          that. A median, small weights and a clip keep a step that was held up from mattering.
// Depth    the one with the most expected tokens for its cost. A deeper one must promise 3 % more,
//          and depth grows by one at a time. What a draft costs that was not seen lately is guessed
//          from those that were, a little too low: only trying it can tell.
// Parking  Drafting plays with a purse, in plain steps: a step wins the tokens it emits and pays
//          its cost. An empty purse parks it. After 32 tokens, twice as many each time up to 1024,
//          and no fewer than 80 for each plain step just lost, it tries again with a small purse.
//          So a trial loses its purse and one step more at most, whatever the text does.
//
// Deterministic: all follows from the arguments of step(), no clock and no randomness here.
#pragma once

#include <array>
#include <deque>
#include <optional>
#include <string_view>

#include "lacuna/result.h"
#include "lacuna/session.h"

namespace lacuna {

struct DraftPolicy {
  std::optional<int> fixed;  // this many in every step, 0: off; empty: by what pays
  int most = kMostDrafts;    // how deep the control may go by itself, 1 to kMostDrafts
};

// "auto", "off", or a number from 0 to `most` (1 to kMostDrafts). kInvalidArgument names what was
// found and what was wanted, not the flag.
Result<DraftPolicy> parse_draft_policy(std::string_view text, int most);

// What happened since the answer began.
struct DraftReport {
  int steps = 0, plain_steps = 0;
  int offered = 0, accepted = 0;  // drafts; the others were rejected
  // Index i: the draft at position i of its step (0: the first). Accepted are the first ones of a
  // step, so accepted_at[i] / accepted_at[i - 1] is how often draft i follows an accepted one.
  std::array<int, kMostDrafts> offered_at{}, accepted_at{};
  std::array<int, kMostDrafts + 1> steps_of_depth{};  // [d] steps with d drafts

  bool parked = false;  // it was tried and does not pay at present; never with a fixed number
  // Tokens for the time of a plain step; above 1, drafting was worth it. Empty without both kinds
  // of step to compare, so always with a fixed number.
  std::optional<double> gain;
  // Drafts offered since one was accepted, in earlier answers too. That many in a row is hardly the
  // text's doing: `none_accepted` asks for a warning.
  int rejected_in_a_row = 0;
  bool none_accepted = false;
};

class DraftControl {
 public:
  explicit DraftControl(DraftPolicy policy);

  int depth() const { return next_; }  // drafts to ask for in the next step

  // The last step: 0 <= accepted <= drafts <= kMostDrafts, seconds >= 0. `drafts` may be fewer than
  // depth() asked for.
  void step(int drafts, int accepted, double draft_seconds, double verify_seconds);

  // Counts anew, and tries drafting again soon if it is parked: this is another text. What was
  // learned of costs and acceptance stays.
  void start_answer();

  DraftReport report() const;

 private:
  struct Step {
    int drafts;
    double seconds;
  };
  struct Width {
    double cost = 0;         // of a step with this many drafts, in plain steps
    int compared = 0;        // measurements in it; 0: not known
    int compared_after = 0;  // steps with drafts before the last of them
  };
  struct Position {
    double offered = 0, accepted = 0;  // while the drafts before it were accepted; old ones fade
  };

  void count(int drafts, int accepted);
  void learn_acceptance(int drafts, int accepted);
  void learn_cost(int drafts);
  bool known(int drafts) const;
  double cost(int drafts) const;
  int best_depth() const;
  void park();
  void try_again();
  int decide();

  DraftPolicy policy_;
  int next_ = 0;

  std::deque<Step> recent_;  // the last few, oldest first
  std::array<Width, kMostDrafts + 1> widths_;
  std::array<Position, kMostDrafts> positions_;
  int drafted_steps_ = 0;
  int since_plain_ = 0;  // steps

  int depth_ = 1;  // in use, or to be tried next when parked
  bool parked_ = true;
  double purse_ = 0;  // plain steps
  double lost_ = 0;   // by the last trial, as the purse counts; 0 before the first ended
  int failures_ = 0;  // trials in a row that ended and never filled the purse
  int wait_;          // tokens from parking to the next trial
  int waited_ = 0;

  DraftReport report_;
  double spent_ = 0;  // plain steps' worth of time in this answer
};

}  // namespace lacuna
