// SPDX-License-Identifier: Apache-2.0
#include "decode/draft_control.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>
#include <vector>

#include "base/check.h"

namespace lacuna {
namespace {

// Acceptance
constexpr double kPrior = 0.6;      // of a first draft: published texts give 0.35 to 0.85
constexpr double kDeeper = 0.95;    // the prior of a position over what the one before it gives
constexpr double kPriorWeight = 2;  // in drafts seen
constexpr double kFade = 0.95;      // of what was seen, per step with drafts

// Costs, in plain steps
constexpr std::size_t kRecent = 8;         // steps so near in time that the machine was the same
constexpr int kPlainEvery = 64;            // steps with drafts between plain ones
constexpr int kKnownFor = 128;             // steps with drafts until a cost counts as not seen
constexpr double kFirstRow = 0.45;         // guess for one draft and its row
constexpr double kHope = 0.7;              // guess for a deeper row over the mean of the rows seen
constexpr double kGuessWeight = 2;         // in measurements
constexpr double kLeastWeight = 1.0 / 16;  // of a measurement: old ones fade
constexpr double kClip = 1.5;              // a measurement counts as at most that much up or down

// Decisions
constexpr double kMargin = 1.03;  // what a deeper step must promise
constexpr double kStake = 0.8;    // two rejected drafts or so
constexpr double kFullPurse = 6;  // fewer, and the chances of a text that pays would empty it
constexpr int kFirstWait = 2;     // the first costs need something to be compared with
constexpr int kShortestWait = 32, kLongestWait = 1024;
constexpr double kWaitForLoss = 80;  // tokens for each plain step lost: 1.25 %
constexpr int kBarrenRun = 64;

// The lower one of two in the middle: nothing makes a step too fast.
double median(std::vector<double>& values) {
  const auto middle = values.begin() + (values.size() - 1) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

int wait_after(double lost, int failures) {
  const double doubled = std::ldexp(kShortestWait, failures);
  return static_cast<int>(std::min<double>(kLongestWait, std::max(doubled, kWaitForLoss * lost)));
}

}  // namespace

Result<DraftPolicy> parse_draft_policy(std::string_view text, int most) {
  LAC_CHECK(most >= 1 && most <= kMostDrafts, "{}", most);
  if (text == "auto") return DraftPolicy{{}, most};
  if (text == "off") return DraftPolicy{0, most};
  int drafts = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, problem] = std::from_chars(text.data(), end, drafts);
  if (problem != std::errc() || stop != end || drafts < 0 || drafts > most) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{:?}, want auto, off or a number from 0 to {}", text, most)};
  }
  return DraftPolicy{drafts, most};
}

DraftControl::DraftControl(DraftPolicy policy)
    : policy_(policy), next_(policy.fixed.value_or(0)), wait_(kFirstWait) {
  LAC_CHECK(next_ >= 0 && next_ <= kMostDrafts, "{}", next_);
  LAC_CHECK(policy.most >= 1 && policy.most <= kMostDrafts, "{}", policy.most);
}

void DraftControl::step(int drafts, int accepted, double draft_seconds, double verify_seconds) {
  LAC_CHECK(0 <= accepted && accepted <= drafts && drafts <= kMostDrafts, "{} of {}", accepted,
            drafts);
  LAC_CHECK(draft_seconds >= 0 && verify_seconds >= 0, "{} and {}", draft_seconds, verify_seconds);
  count(drafts, accepted);
  if (policy_.fixed.has_value()) return;
  recent_.push_back({drafts, draft_seconds + verify_seconds});
  if (recent_.size() > kRecent) recent_.pop_front();
  if (drafts > 0) {
    learn_acceptance(drafts, accepted);
    learn_cost(drafts);
    purse_ = std::min(purse_ + 1 + accepted - cost(drafts), kFullPurse);
  }
  spent_ += cost(drafts);
  if (purse_ >= kFullPurse) failures_ = 0;
  since_plain_ = drafts == 0 ? 0 : since_plain_ + 1;
  waited_ += 1 + accepted;
  next_ = decide();
}

void DraftControl::start_answer() {
  const int rejected = report_.rejected_in_a_row;
  report_ = {};
  report_.rejected_in_a_row = rejected;
  spent_ = 0;
  recent_.clear();  // a prompt and perhaps hours lie between
  failures_ = 0;
  wait_ = std::min(wait_, wait_after(lost_, 0));
}

DraftReport DraftControl::report() const {
  DraftReport report = report_;
  report.parked = parked_ && lost_ > 0;
  report.none_accepted = report.rejected_in_a_row >= kBarrenRun;
  if (report.offered > 0 && widths_[1].compared > 0)
    report.gain = (report.steps + report.accepted) / spent_;
  return report;
}

void DraftControl::count(int drafts, int accepted) {
  ++report_.steps;
  ++report_.steps_of_depth[drafts];
  if (drafts == 0) ++report_.plain_steps;
  report_.offered += drafts;
  report_.accepted += accepted;
  for (int i = 0; i < drafts; ++i) ++report_.offered_at[i];
  for (int i = 0; i < accepted; ++i) ++report_.accepted_at[i];
  report_.rejected_in_a_row = accepted > 0 ? drafts - accepted : report_.rejected_in_a_row + drafts;
}

void DraftControl::learn_acceptance(int drafts, int accepted) {
  ++drafted_steps_;
  for (Position& p : positions_) p.offered *= kFade, p.accepted *= kFade;
  // After a rejected draft nothing is learned: what follows it was drafted from a wrong token.
  for (int i = 0; i < std::min(drafts, accepted + 1); ++i) positions_[i].offered += 1;
  for (int i = 0; i < accepted; ++i) positions_[i].accepted += 1;
}

// Of steps with that many drafts, the last one among them.
void DraftControl::learn_cost(int drafts) {
  std::vector<double> these, plain, others;  // the last two: as seconds of a plain step
  for (const Step& step : recent_) {
    if (step.drafts == drafts) {
      these.push_back(step.seconds);
    } else if (step.drafts == 0) {
      plain.push_back(step.seconds);
    } else {
      others.push_back(step.seconds / cost(step.drafts));
    }
  }
  // Compared only among each other, the costs of steps with drafts would drift.
  if (!plain.empty()) others = std::move(plain);
  if (others.empty()) return;
  const double unit = median(others);
  if (unit <= 0) return;
  const double before = cost(drafts);
  const double now = std::clamp(median(these) / unit, before / kClip, before * kClip);
  Width& width = widths_[drafts];
  if (!known(drafts)) width.compared = 0;
  const double weight = std::max(1 / (width.compared + 1 + kGuessWeight), kLeastWeight);
  width = {before + weight * (now - before), width.compared + 1, drafted_steps_};
}

bool DraftControl::known(int drafts) const {
  const Width& width = widths_[drafts];
  return drafts == 0 || (width.compared > 0 && drafted_steps_ - width.compared_after <= kKnownFor);
}

// In plain steps; linear in the drafts where it is not known.
double DraftControl::cost(int drafts) const {
  if (known(drafts)) return drafts == 0 ? 1 : widths_[drafts].cost;
  int below = drafts - 1, above = drafts + 1;
  while (!known(below)) --below;
  while (above <= kMostDrafts && !known(above)) ++above;
  const double start = cost(below);
  double row = below == 0 ? kFirstRow : kHope * std::max(0.0, start - 1) / below;
  if (above <= kMostDrafts) row = (cost(above) - start) / (above - below);
  return start + row * (drafts - below);
}

int DraftControl::best_depth() const {
  std::array<double, kMostDrafts + 1> speed{};  // tokens for the time of a plain step
  double tokens = 1, reached = 1, prior = kPrior;
  const int deepest = std::min(depth_ + 1, policy_.most);
  for (int d = 1; d <= deepest; ++d) {
    const Position& seen = positions_[d - 1];
    const double chance = (seen.accepted + kPriorWeight * prior) / (seen.offered + kPriorWeight);
    prior = kDeeper * chance;
    reached *= chance;
    tokens += reached;
    speed[d] = tokens / cost(d);
  }
  int best = depth_;
  for (int d = 1; d <= deepest; ++d)
    if (speed[d] > speed[best] * (d > depth_ ? kMargin : 1)) best = d;
  return best;
}

void DraftControl::park() {
  parked_ = true;
  lost_ = kStake - purse_;
  wait_ = wait_after(lost_, failures_++);
  waited_ = 0;
}

// What was seen before is about another text, and this must show soon.
void DraftControl::try_again() {
  parked_ = false;
  depth_ = 1;
  purse_ = kStake;
  positions_ = {};
}

int DraftControl::decide() {
  if (!parked_ && purse_ < 0) park();
  if (parked_ && waited_ < wait_) return 0;
  if (parked_) {
    try_again();
  } else {
    depth_ = best_depth();
  }
  return since_plain_ >= kPlainEvery ? 0 : depth_;
}

}  // namespace lacuna
