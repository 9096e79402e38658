// SPDX-License-Identifier: Apache-2.0
#include "lacuna/session.h"

#include <fmt/core.h>

#include <algorithm>
#include <mutex>
#include <new>
#include <vector>

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

// A place the timeline can go back to. The logits are there where a sync ended, so that an answer
// can be asked for again without computing anything.
struct Kept {
  int length;
  std::shared_ptr<const Snapshot> snapshot;
  std::vector<float> logits;

  std::size_t bytes() const { return snapshot->bytes() + logits.size() * sizeof(float); }
};

}  // namespace

struct Session::Impl {
  const Engine* engine = nullptr;
  Engine::Impl* model = nullptr;
  std::unique_ptr<SequenceState> state;
  std::vector<int> tokens;
  std::vector<float> logits;
  std::vector<Kept> kept;  // by rising length
  Counters counters;
  PassOptions pass;
  bool recurrent = false;

  Result<void> check(std::span<const int> wanted) const;
  Result<void> run(std::span<const int> chunk, int want);
  int rewind(int length, std::string& why);
  bool go_back_to_sync(int length);
  void keep(bool with_logits);
};

Session::Session(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Session::~Session() = default;

Result<std::unique_ptr<Session>> Engine::new_session(const SessionOptions& options) const {
  auto s = std::make_unique<Session::Impl>();
  s->engine = this;
  s->model = impl_.get();
  s->pass = {options.sparse_experts.value_or(impl_->options.sparse_experts), options.trace};
  const auto& layers = impl_->model->layer_states();
  s->recurrent =
      std::any_of(layers.begin(), layers.end(), [](const LayerState& l) { return l.heads > 0; });
  try {
    LAC_TRY(s->state, impl_->backend->new_state(layers, impl_->info.context));
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

// One forward pass after what the state holds; the last `want` rows' logits end up in `logits`.
Result<void> Session::Impl::run(std::span<const int> chunk, int want) {
  const std::lock_guard one_pass(model->forward);
  const FlushDenormals flush;
  Backend& b = *model->backend;
  const Counters before = b.counters();
  const std::size_t mark = b.mark();
  b.begin_pass(pass);
  try {
    const Tensor out = model->model->forward(b, chunk, *state, want);
    logits.resize(static_cast<std::size_t>(want) * model->info.vocabulary);
    b.read(out, logits);
  } catch (const std::bad_alloc&) {
    b.release(mark);
    state->clear();  // layers may be at different tokens
    tokens.clear();
    kept.clear();
    return Error{
        ErrorCode::kOutOfMemory,
        fmt::format("no memory to run {} tokens at once; a smaller prefill chunk needs less",
                    chunk.size())};
  }
  b.release(mark);
  counters = counters + (b.counters() - before);
  tokens.insert(tokens.end(), chunk.begin(), chunk.end());
  return {};
}

// Takes the timeline back to at most `length` tokens; returns how many are left and, when that is
// fewer than asked for, why.
int Session::Impl::rewind(int length, std::string& why) {
  if (length == static_cast<int>(tokens.size())) return length;
  while (!kept.empty() && kept.back().length > length) kept.pop_back();
  int at = length;
  if (!recurrent) {  // keys carry no position and stay where they are
    state->restore(*state->snapshot(), length);
  } else if (kept.empty()) {
    at = 0;
    state->clear();
  } else {
    at = kept.back().length;
    state->restore(*kept.back().snapshot, at);
  }
  if (at < length) {
    why = fmt::format("{} tokens agree, but recurrent state was kept only after {}", length, at);
  }
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
  logits = at->logits;
  tokens.resize(length);
  kept.erase(at + 1, kept.end());
  return true;
}

void Session::Impl::keep(bool with_logits) {
  const int length = static_cast<int>(tokens.size());
  if (!kept.empty() && kept.back().length == length) kept.pop_back();
  kept.push_back({length, state->snapshot(), with_logits ? logits : std::vector<float>()});
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
    LAC_TRY_VOID(s.run(wanted.subspan(at, end - at), options.on_logits ? end - at : 1));
    if (options.on_logits) {
      options.on_logits(at, s.logits);
      const std::size_t v = s.model->info.vocabulary;
      s.logits.erase(s.logits.begin(), s.logits.end() - static_cast<std::ptrdiff_t>(v));
    }
    at = end;
    if (at % kSnapshotStep == 0 || at == size) s.keep(at == size);
    if (options.on_progress) options.on_progress(at - report.reused, report.computed);
  }
  return report;
}

Result<void> Session::decode(int token) {
  Impl& s = *impl_;
  if (static_cast<int>(s.tokens.size()) >= s.model->info.context) {
    return Error{
        ErrorCode::kContextLength,
        fmt::format("{} tokens, the context holds {}", s.tokens.size() + 1, s.model->info.context)};
  }
  LAC_TRY_VOID(s.check({&token, 1}));
  return s.run({&token, 1}, 1);
}

std::span<const float> Session::logits() const { return impl_->logits; }
std::span<const int> Session::tokens() const { return impl_->tokens; }
const Counters& Session::counters() const { return impl_->counters; }
const Engine& Session::engine() const { return *impl_->engine; }

}  // namespace lacuna
