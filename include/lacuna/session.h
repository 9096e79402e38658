// SPDX-License-Identifier: Apache-2.0
// One timeline of tokens over an Engine. The caller hands over the whole token prefix it wants; the
// session reuses what it has computed, rewinds what differs, and computes the rest. Nobody outside
// touches caches.
//
// Drafts: draft() guesses what comes, decode() runs the guess in one pass, accept() keeps as much
// of it as the caller found right. A wrong guess costs time and changes nothing.
//
// Invariant: the logits are those of a fresh session given the same tokens, bit for bit, whatever
// was reused, rewound, drafted or chunked on the way.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lacuna/counters.h"
#include "lacuna/engine.h"
#include "lacuna/result.h"

namespace lacuna {

inline constexpr int kMostDrafts = 8;  // that one pass verifies

struct SyncOptions {
  const std::atomic<bool>* cancel = nullptr;  // looked at between chunks; set: kCancelled
  // Logits of every newly computed row, in order: the row's position, then [rows, V]. Costs the
  // output head for every row, so leave it empty unless they are needed.
  std::function<void(int position, std::span<const float> logits)> on_logits;
  std::function<void(int done, int total)> on_progress;  // tokens computed of those to compute
};

struct SyncReport {
  int reused = 0;    // tokens whose state was kept
  int computed = 0;  // tokens run through the model
  std::string why;   // why no more was reused; empty when all that could be was
};

class Session {
 public:
  ~Session();

  // Makes the timeline exactly `tokens` (at least one) and leaves the last token's logits in
  // logits(). Errors: kContextLength with both numbers, kInvalidArgument for an id outside the
  // vocabulary, kCancelled. After an error the timeline is a valid prefix of `tokens`.
  Result<SyncReport> sync(std::span<const int> tokens, const SyncOptions& options = {});

  // Appends tokens in one pass, each with its logits: the decode step. All but the first are
  // drafts, at most kMostDrafts of them, which accept() may take back until the next call. Errors
  // as sync.
  Result<void> decode(std::span<const int> tokens);
  Result<void> decode(int token) { return decode({&token, 1}); }
  // Keeps the first `count` (at least 1) of the tokens that the last decode appended. Nothing else
  // is computed; logits() are those of the last one kept.
  void accept(int count);

  // Guesses up to `count` tokens after tokens() and `token`, which is to be decoded next. `pick`
  // chooses from a row [V] of the head's logits for the token `ahead` places after `token`; ids
  // that the head did not look at have −∞. Empty without a head, or without SessionOptions::drafts.
  using Pick = std::function<int(std::span<const float> logits, int ahead)>;
  Result<std::vector<int>> draft(int token, int count, const Pick& pick);

  std::span<const float> logits() const;       // [V], of the last token
  std::span<const float> logits(int i) const;  // of the i-th token that the last decode appended
  std::span<const int> tokens() const;
  const Counters& counters() const;
  const Engine& engine() const;

 private:
  friend class Engine;
  struct Impl;
  explicit Session(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace lacuna
