// SPDX-License-Identifier: Apache-2.0
#include "lacuna/engine.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>

#include "backend/cpu/cpu_backend.h"
#include "base/memory.h"
#include "checkpoint/generation_config.h"
#include "model/engine_impl.h"
#include "model/fit.h"
#include "text/chat_template.h"

namespace lacuna {
namespace {

namespace fs = std::filesystem;

fs::path environment_path(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? fs::path(value) : fs::path();
}

fs::path cache_folder(const fs::path& asked) {
  if (!asked.empty()) return asked;
  if (const fs::path own = environment_path("LACUNA_CACHE"); !own.empty()) return own;
  if (const fs::path xdg = environment_path("XDG_CACHE_HOME"); !xdg.empty()) return xdg / "lacuna";
  if (const fs::path home = environment_path("HOME"); !home.empty())
    return home / ".cache" / "lacuna";
  return fs::temp_directory_path() / "lacuna";
}

// The folder's own name; with its parent's where the name says only how it is stored.
std::string model_name(const fs::path& folder) {
  const fs::path full = fs::absolute(folder).lexically_normal();
  const fs::path leaf = full.filename().empty() ? full.parent_path() : full;
  return leaf.parent_path().filename().string() + "-" + leaf.filename().string();
}

// Turns of a chat end where any of three files says so.
std::vector<int> stop_set(const Model& model, const GenerationConfig& generation,
                          const Tokenizer& tokenizer) {
  std::vector<int> stops = model.stop_tokens();
  stops.insert(stops.end(), generation.stop_tokens.begin(), generation.stop_tokens.end());
  if (const auto eos = tokenizer.eos_token()) stops.push_back(*eos);
  std::sort(stops.begin(), stops.end());
  stops.erase(std::unique(stops.begin(), stops.end()), stops.end());
  return stops;
}

MemoryNeeds memory_needs(const Model& model, const Backend& backend, Precision precision) {
  MemoryNeeds needs;
  needs.weights = backend.weight_bytes();
  const std::uint64_t element = precision == Precision::kBf16 ? 2 : 4;
  std::vector<LayerState> states = model.layer_states();
  if (const DraftHead* head = model.draft_head(); head != nullptr)
    states.insert(states.end(), head->layer_states().begin(), head->layer_states().end());
  for (const LayerState& l : states) {
    needs.bytes_per_token += 2 * element * static_cast<std::uint64_t>(l.kv_heads) * l.head_dim;
    needs.bytes_per_token += element * static_cast<std::uint64_t>(l.latent_row + l.index_dim);
    needs.state += 4 * (static_cast<std::uint64_t>(l.heads) * l.ssm_head_dim * l.ssm_state +
                        static_cast<std::uint64_t>(l.taps) * l.channels);
  }
  needs.available = available_memory_bytes();
  return needs;
}

}  // namespace

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Engine::~Engine() = default;

Result<std::unique_ptr<Engine>> Engine::open(const fs::path& folder, const EngineOptions& options) {
  LAC_TRY(const Isa isa, choose_isa());
  LAC_TRY(Checkpoint opened, Checkpoint::open(folder));
  auto checkpoint = std::make_unique<Checkpoint>(std::move(opened));
  const int threads = options.threads > 0 ? options.threads : usable_cores();
  auto backend = std::make_unique<CpuBackend>(isa, threads, options.precision == Precision::kBf16);
  LAC_TRY(
      std::unique_ptr<Model> model,
      make_model(*checkpoint, *backend, {options.sparse_attention, options.sparse_min_context}));
  LAC_TRY(Tokenizer tokenizer, Tokenizer::open(folder));
  if (tokenizer.vocabulary_size() > model->vocabulary()) {
    return Error{
        ErrorCode::kCorrupt,
        fmt::format("{}: tokenizer.json has ids up to {}, the model's vocabulary ends at {}",
                    folder.string(), tokenizer.vocabulary_size() - 1, model->vocabulary() - 1)};
  }
  LAC_TRY(const GenerationConfig generation, read_generation_config(folder));
  std::unique_ptr<ChatTemplate> chat;
  if (auto found = ChatTemplate::open(folder); found.ok()) {
    chat = std::make_unique<ChatTemplate>(*std::move(found));
  } else if (found.error().code != ErrorCode::kNotFound) {
    return std::move(found).error();
  }

  const int most = model->max_context();
  const int wanted = options.context > 0 ? std::min(options.context, most) : most;
  const MemoryNeeds needs = memory_needs(*model, *backend, options.precision);
  LAC_TRY(const int context, fit_context(needs, wanted, options.context > 0));

  ModelInfo info;
  info.name = model_name(folder);
  LAC_TRY_VOID(backend->load({info.name, checkpoint->fingerprint(), cache_folder(options.cache_dir),
                              options.on_packing, true}));
  info.architecture = checkpoint->config().value("model_type", "");
  info.layers = model->layers();
  info.layer_kinds = model->layer_kinds();
  info.width = model->width();
  info.vocabulary = model->vocabulary();
  info.context = context;
  info.parameters = model->parameters();
  if (model->draft_head() != nullptr) info.head_parameters = model->draft_head()->parameters();
  info.weight_bytes = backend->weight_bytes();
  info.stop_tokens = stop_set(*model, generation, tokenizer);
  info.default_temperature = generation.do_sample ? generation.temperature : 0.0f;
  info.default_top_p = generation.top_p;
  info.default_top_k = generation.top_k;
  info.precision = options.precision == Precision::kBf16 ? "bf16" : "f32";
  info.isa = isa_name(isa);
  info.threads = threads;
  info.notes = checkpoint->notes();
  const std::vector<std::string> load_notes = backend->notes();
  info.notes.insert(info.notes.end(), load_notes.begin(), load_notes.end());
  info.notes.insert(info.notes.end(), model->notes().begin(), model->notes().end());
  if (context < wanted) {
    info.notes.push_back(
        fmt::format("context {} of {} tokens: what fits beside {:.1f} MB of weights", context,
                    wanted, static_cast<double>(needs.weights) / 1e6));
  }
  if (options.context > model->max_context()) {
    info.notes.push_back(fmt::format("context {} is more than the model's {}; using {}",
                                     options.context, model->max_context(), model->max_context()));
  }
  auto impl = std::unique_ptr<Impl>(new Impl{options,
                                             std::move(info),
                                             std::move(checkpoint),
                                             std::move(backend),
                                             std::move(model),
                                             std::move(tokenizer),
                                             std::move(chat),
                                             {}});
  return std::unique_ptr<Engine>(new Engine(std::move(impl)));
}

const ModelInfo& Engine::info() const { return impl_->info; }
const EngineOptions& Engine::options() const { return impl_->options; }
const Tokenizer& Engine::tokenizer() const { return impl_->tokenizer; }
const ChatTemplate* Engine::chat_template() const { return impl_->chat.get(); }

}  // namespace lacuna
