// SPDX-License-Identifier: Apache-2.0
#include "lacuna/session.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <mutex>
#include <new>
#include <optional>
#include <vector>

#include "base/check.h"
#include "base/threads.h"
#include "model/engine_impl.h"

namespace lacuna {
namespace {

// Recurrent state is kept at the end of every sync and at multiples of this many tokens, so that a
// text that differs late is not computed from its start.
constexpr int kSnapshotStep = 2048;
// Rows of logits at a time when all are wanted: 134 MB for a vocabulary of 131,072.
constexpr int kLogitRows = 256;
// Room for kept states; the oldest goes first.
constexpr std::size_t kSnapshotBytes = std::size_t{512} << 20;

// Positions whose hidden states may wait for the drafting head: it takes them in one go, and a
// draft should not have to wait for many.
constexpr int kMostWaiting = 32;

// A place the timeline can go back to. The logits are there where a sync ended, so that an answer
// can be asked for again without computing anything.
struct Kept {
  int length;
  std::shared_ptr<const Snapshot> snapshot;
  std::vector<float> logits;
  std::vector<float> hidden;  // of the last token, when there is a drafting head

  std::size_t bytes() const {
    return snapshot->bytes() + (logits.size() + hidden.size()) * sizeof(float);
  }
};

}  // namespace

// What drafting keeps beside the timeline. The head's row of a position takes the model's hidden
// state there and the token after it, so it lags behind by at least one: positions below `done` are
// in the head's state for good; `hidden` has those from `done` on.
struct Drafting {
  const DraftHead& head;
  int width, vocabulary;
  std::unique_ptr<SequenceState> state;
  int done = 0;
  std::vector<float> hidden;    // [tokens − done, width]
  std::optional<int> expected;  // the token that the last draft() put after the last position
  std::vector<int> slices;      // of the vocabulary, that drafts are chosen from; rising
  std::vector<char> chosen;     // whether a slice is among them

  Drafting(const DraftHead& from, int width_, int vocabulary_,
           std::unique_ptr<SequenceState> state_);
  int end() const { return done + static_cast<int>(hidden.size()) / width; }
  void see(std::span<const int> tokens);
  void forget(int length, std::span<const float> last);
  void spread(std::span<const float> found, std::vector<float>& row) const;
};

struct Session::Impl {
  const Engine* engine = nullptr;
  Engine::Impl* model = nullptr;
  std::unique_ptr<SequenceState> state;
  std::unique_ptr<Drafting> drafting;
  std::vector<int> tokens;
  std::vector<float> logits;  // [rows, V] of the last pass
  int shown = 0;              // the row of the last token
  int appended = 0;           // tokens of the last decode, as long as accept() may drop some
  std::vector<Kept> kept;     // by rising length
  Counters counters;
  PassOptions pass;
  bool recurrent = false;

  Result<void> check(std::span<const int> wanted) const;
  template <class Body>
  Result<void> in_pass(int rows, int drafts, const Body& body);
  Result<void> run(std::span<const int> chunk, int want, int drafts);
  void settle_head(int upto);
  int rewind(int length, std::string& why);
  bool go_back_to_sync(int length);
  void keep(bool with_logits);
};

// Frequent tokens come first in a vocabulary made of merges, so drafts look at its beginning and at
// what the text has shown: a draft outside is lost, which costs speed and no exactness.
Drafting::Drafting(const DraftHead& from, int width_, int vocabulary_,
                   std::unique_ptr<SequenceState> state_)
    : head(from), width(width_), vocabulary(vocabulary_), state(std::move(state_)) {
  const int all = (vocabulary + kOutputSlice - 1) / kOutputSlice;
  const int first = std::min(all, std::max(8192, vocabulary / 8) / kOutputSlice);
  chosen.assign(static_cast<std::size_t>(all), 0);
  for (int s = 0; s < first; ++s) {
    slices.push_back(s);
    chosen[s] = 1;
  }
}

void Drafting::see(std::span<const int> tokens) {
  for (const int id : tokens) {
    const int slice = id / kOutputSlice;
    if (chosen[slice] != 0) continue;
    chosen[slice] = 1;
    slices.insert(std::lower_bound(slices.begin(), slices.end(), slice), slice);
  }
}

// The timeline now ends at `length`, an earlier place. `last` is the hidden state before it; when
// there is none, the token at `length` − 1 stays the one that was there.
void Drafting::forget(int length, std::span<const float> last) {
  expected.reset();
  const int settled = std::max(0, last.empty() ? length : length - 1);
  if (done <= settled) {
    hidden.resize(static_cast<std::size_t>(length - done) * width);
  } else {
    done = settled;
    hidden.assign(last.begin(), last.end());
  }
  state->take_back(done);
}

void Drafting::spread(std::span<const float> found, std::vector<float>& row) const {
  row.assign(static_cast<std::size_t>(vocabulary), -std::numeric_limits<float>::infinity());
  for (std::size_t i = 0; i < slices.size(); ++i) {
    const int begin = slices[i] * kOutputSlice;
    std::copy_n(found.begin() + static_cast<std::ptrdiff_t>(i) * kOutputSlice,
                std::min(kOutputSlice, vocabulary - begin), row.begin() + begin);
  }
}

Session::Session(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Session::~Session() = default;

Result<std::unique_ptr<Session>> Engine::new_session(const SessionOptions& options) const {
  auto s = std::make_unique<Session::Impl>();
  s->engine = this;
  s->model = impl_.get();
  s->pass.sparse_experts = options.sparse_experts.value_or(impl_->options.sparse_experts);
  s->pass.sparse_attention = options.sparse_attention;
  s->pass.trace = options.trace;
  const auto& layers = impl_->model->layer_states();
  s->recurrent =
      std::any_of(layers.begin(), layers.end(), [](const LayerState& l) { return l.heads > 0; });
  try {
    LAC_TRY(s->state, impl_->backend->new_state(layers, impl_->info.context));
    const DraftHead* head = impl_->model->draft_head();
    if (options.drafts && head != nullptr) {
      // Guesses run ahead of the text.
      LAC_TRY(auto state,
              impl_->backend->new_state(head->layer_states(), impl_->info.context + kMostDrafts));
      s->drafting = std::make_unique<Drafting>(*head, impl_->info.width, impl_->info.vocabulary,
                                               std::move(state));
    }
  } catch (const std::bad_alloc&) {
    return Error{ErrorCode::kOutOfMemory, "no memory for a session's recurrent state"};
  }
  return std::unique_ptr<Session>(new Session(std::move(s)));
}

Result<void> Session::Impl::check(std::span<const int> wanted) const {
  const int context = model->info.context;
  if (static_cast<int>(wanted.size()) > context) {
    return Error{ErrorCode::kContextLength,
                 fmt::format("{} tokens, the context holds {}", wanted.size(), context)};
  }
  for (const int id : wanted) {
    if (id < 0 || id >= model->info.vocabulary) {
      return Error{
          ErrorCode::kInvalidArgument,
          fmt::format("token id {} is outside the vocabulary of {}", id, model->info.vocabulary)};
    }
  }
  return {};
}

// Runs `body` as one pass of the backend, counted as `rows` tokens of the model.
template <class Body>
Result<void> Session::Impl::in_pass(int rows, int drafts, const Body& body) {
  const std::lock_guard one_pass(model->forward);
  const FlushDenormals flush;
  Backend& b = *model->backend;
  const Counters before = b.counters();
  const std::size_t mark = b.mark();
  pass.drafts = drafts;
  b.begin_pass(pass);
  b.counters().tokens += static_cast<std::uint64_t>(rows);
  b.counters().passes += rows > 0;
  try {
    body(b);
  } catch (const std::bad_alloc&) {
    b.release(mark);
    state->clear();  // layers may be at different tokens
    if (drafting) drafting->forget(0, {});
    tokens.clear();
    kept.clear();
    return Error{ErrorCode::kOutOfMemory,
                 rows > 0 ? fmt::format("no memory to run {} tokens at once; a smaller prefill "
                                        "chunk needs less",
                                        rows)
                          : "no memory to draft; --draft off needs none"};
  }
  b.release(mark);
  counters = counters + (b.counters() - before);
  return {};
}

// One forward pass after what the state holds; the last `want` rows' logits end up in `logits`.
Result<void> Session::Impl::run(std::span<const int> chunk, int want, int drafts) {
  const int rows = static_cast<int>(chunk.size());
  return in_pass(rows, drafts, [&](Backend& b) {
    const Output out = model->model->forward(b, chunk, *state, want, drafting ? rows : want);
    logits.resize(static_cast<std::size_t>(want) * model->info.vocabulary);
    b.read(out.logits, logits);
    shown = want - 1;
    appended = 0;
    tokens.insert(tokens.end(), chunk.begin(), chunk.end());
    if (!drafting) return;
    Drafting& d = *drafting;
    d.see(chunk);
    // What draft() left in the head's state stands if its token came.
    if (d.expected == chunk[0]) {
      ++d.done;
      d.hidden.clear();
    } else if (d.expected) {
      d.state->take_back(d.done);
    }
    d.expected.reset();
    const std::size_t had = d.hidden.size();
    d.hidden.resize(had + static_cast<std::size_t>(rows) * d.width);
    b.read(out.hidden, std::span(d.hidden).subspan(had));
    if (d.end() - d.done > kMostWaiting) settle_head(d.end() - 1);
  });
}

// Takes the waiting positions below `upto` into the head's state, in a pass that runs already.
void Session::Impl::settle_head(int upto) {
  Drafting& d = *drafting;
  Backend& b = *model->backend;
  while (d.done < upto) {
    const int n = std::min(upto - d.done, std::max(1, model->options.prefill_chunk));
    const std::size_t values = static_cast<std::size_t>(n) * d.width;
    const std::size_t mark = b.mark();
    d.head.forward(b, std::span(tokens).subspan(d.done + 1, n),
                   b.write(std::span(d.hidden).first(values), d.width), *d.state, 0, {});
    b.release(mark);
    d.hidden.erase(d.hidden.begin(), d.hidden.begin() + static_cast<std::ptrdiff_t>(values));
    d.done += n;
  }
}

// Takes the timeline back to at most `length` tokens; returns how many are left and, when that is
// fewer than asked for, why.
int Session::Impl::rewind(int length, std::string& why) {
  if (length == static_cast<int>(tokens.size())) return length;
  while (!kept.empty() && kept.back().length > length) kept.pop_back();
  int at = length;
  std::span<const float> hidden;
  if (!recurrent) {  // keys carry no position and stay where they are
    // The head's row before `length` belongs to a token that is gone; the one before that stands.
    if (drafting) at = std::max(0, length - 1);
    state->take_back(at);
  } else if (kept.empty()) {
    at = 0;
    state->clear();
  } else {
    at = kept.back().length;
    state->restore(*kept.back().snapshot, at);
    hidden = kept.back().hidden;
  }
  if (recurrent && at < length) {
    why = fmt::format("{} tokens agree, but recurrent state was kept only after {}", length, at);
  }
  if (drafting) drafting->forget(at, hidden);
  tokens.resize(at);
  logits.clear();  // those of a token that is no longer there
  return at;
}

// Takes the timeline back to where a sync ended at exactly `length` tokens, logits included.
bool Session::Impl::go_back_to_sync(int length) {
  const auto at = std::find_if(kept.begin(), kept.end(), [&](const Kept& k) {
    return k.length == length && !k.logits.empty();
  });
  if (at == kept.end()) return false;
  state->restore(*at->snapshot, length);
  if (drafting) drafting->forget(length, at->hidden);
  logits = at->logits;
  shown = 0;
  tokens.resize(length);
  kept.erase(at + 1, kept.end());
  return true;
}

void Session::Impl::keep(bool with_logits) {
  const int length = static_cast<int>(tokens.size());
  if (!kept.empty() && kept.back().length == length) kept.pop_back();
  std::vector<float> hidden;
  if (drafting) hidden.assign(drafting->hidden.end() - drafting->width, drafting->hidden.end());
  kept.push_back(
      {length, state->snapshot(), with_logits ? logits : std::vector<float>(), std::move(hidden)});
  std::size_t bytes = 0;
  for (const Kept& k : kept) bytes += k.bytes();
  while (bytes > kSnapshotBytes && kept.size() > 1) {
    bytes -= kept.front().bytes();
    kept.erase(kept.begin());
  }
}

Result<SyncReport> Session::sync(std::span<const int> wanted, const SyncOptions& options) {
  Impl& s = *impl_;
  if (wanted.empty())
    return Error{ErrorCode::kInvalidArgument, "no tokens: a prompt has at least one"};
  LAC_TRY_VOID(s.check(wanted));
  const int size = static_cast<int>(wanted.size());
  s.appended = 0;
  const auto differ = std::mismatch(wanted.begin(), wanted.end(), s.tokens.begin(), s.tokens.end());
  const int common = static_cast<int>(differ.first - wanted.begin());
  SyncReport report;
  if (common == size && !options.on_logits) {
    const bool there = s.tokens.size() == wanted.size() && !s.logits.empty();
    if (there || s.go_back_to_sync(size)) {
      report.reused = size;
      return report;
    }
  }
  // The last token is always computed: its logits are what the caller came for.
  report.reused = s.rewind(std::min(common, size - 1), report.why);
  report.computed = size - report.reused;
  int chunk = std::max(1, s.model->options.prefill_chunk);
  if (options.on_logits) chunk = std::min(chunk, kLogitRows);
  for (int at = report.reused; at < size;) {
    if (options.cancel != nullptr && options.cancel->load(std::memory_order_relaxed)) {
      return Error{ErrorCode::kCancelled, fmt::format("cancelled after {} of {} tokens", at, size)};
    }
    const int end = std::min({size, at + chunk, (at / kSnapshotStep + 1) * kSnapshotStep});
    LAC_TRY_VOID(s.run(wanted.subspan(at, end - at), options.on_logits ? end - at : 1, 0));
    if (options.on_logits) {
      options.on_logits(at, s.logits);
      const std::size_t v = s.model->info.vocabulary;
      s.logits.erase(s.logits.begin(), s.logits.end() - static_cast<std::ptrdiff_t>(v));
      s.shown = 0;
    }
    at = end;
    if (at % kSnapshotStep == 0 || at == size) s.keep(at == size);
    if (options.on_progress) options.on_progress(at - report.reused, report.computed);
  }
  return report;
}

Result<void> Session::decode(std::span<const int> tokens) {
  Impl& s = *impl_;
  if (tokens.empty() || tokens.size() > std::size_t{1} + kMostDrafts) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{} tokens to decode, want 1 to {}", tokens.size(), 1 + kMostDrafts)};
  }
  const std::size_t after = s.tokens.size() + tokens.size();
  if (after > static_cast<std::size_t>(s.model->info.context)) {
    return Error{ErrorCode::kContextLength,
                 fmt::format("{} tokens, the context holds {}", after, s.model->info.context)};
  }
  LAC_TRY_VOID(s.check(tokens));
  const int rows = static_cast<int>(tokens.size());
  LAC_TRY_VOID(s.run(tokens, rows, rows - 1));
  s.appended = rows;
  return {};
}

void Session::accept(int count) {
  Impl& s = *impl_;
  LAC_CHECK(count >= 1 && count <= s.appended, "{} of {} tokens", count, s.appended);
  const std::size_t length = s.tokens.size() - static_cast<std::size_t>(s.appended - count);
  s.appended = 0;
  s.shown = count - 1;
  if (length == s.tokens.size()) return;
  s.tokens.resize(length);
  s.state->take_back(static_cast<int>(length));
  if (s.drafting)
    s.drafting->hidden.resize((length - static_cast<std::size_t>(s.drafting->done)) *
                              static_cast<std::size_t>(s.drafting->width));
}

Result<std::vector<int>> Session::draft(int token, int count, const Pick& pick) {
  Impl& s = *impl_;
  std::vector<int> drafts;
  const int length = static_cast<int>(s.tokens.size());
  // The pass that verifies them must fit into the context.
  count = std::min({count, kMostDrafts, s.model->info.context - length - 1});
  if (!s.drafting || s.drafting->done == length || count <= 0) return drafts;
  s.appended = 0;  // the head is about to build on them
  LAC_TRY_VOID(s.check({&token, 1}));
  Drafting& d = *s.drafting;
  if (d.expected) d.state->take_back(d.done);
  LAC_TRY_VOID(s.in_pass(0, 0, [&](Backend& b) {
    s.settle_head(length - 1);
    std::vector<float> found, row;
    Tensor hidden = b.write(d.hidden, d.width);
    for (int id = token; count > 0; --count) {
      const Output out = d.head.forward(b, {&id, 1}, hidden, *d.state, 1, d.slices);
      found.resize(d.slices.size() * kOutputSlice);
      b.read(out.logits, found);
      d.spread(found, row);
      id = pick(row, static_cast<int>(drafts.size()) + 1);
      drafts.push_back(id);
      hidden = out.hidden;
    }
    d.state->take_back(length);  // what followed a guess is a guess
  }));
  d.expected = token;
  return drafts;
}

std::span<const float> Session::logits() const {
  return impl_->logits.empty() ? std::span<const float>() : logits(impl_->shown);
}
std::span<const float> Session::logits(int i) const {
  const auto v = static_cast<std::size_t>(impl_->model->info.vocabulary);
  return std::span(impl_->logits).subspan(static_cast<std::size_t>(i) * v, v);
}
std::span<const int> Session::tokens() const { return impl_->tokens; }
const Counters& Session::counters() const { return impl_->counters; }
const Engine& Session::engine() const { return *impl_->engine; }

}  // namespace lacuna
