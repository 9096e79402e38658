// SPDX-License-Identifier: Apache-2.0
#include "model/nemotron_h.h"

#include "base/check.h"
#include "model/nemotron_h_bind.h"

namespace lacuna {
namespace {

// Conv weights come as [channels, taps]; the kernels want a tap's channels side by side.
std::vector<float> taps_outermost(const std::vector<float>& w, int channels, int taps) {
  std::vector<float> out(w.size());
  for (int c = 0; c < channels; ++c) {
    for (int k = 0; k < taps; ++k)
      out[static_cast<std::size_t>(k) * channels + c] = w[static_cast<std::size_t>(c) * taps + k];
  }
  return out;
}

MambaWeights make_mamba(const NemotronHConfig& c, const NemotronHLayerTensors& t, Backend& b) {
  MambaWeights w;
  w.in_proj = b.add_projection(t.in_proj);
  w.out_proj = b.add_projection(t.out_proj);
  w.conv_weight = b.add_vector(taps_outermost(t.conv_weight, c.conv_channels(), c.conv_kernel));
  w.conv_bias = b.add_vector(t.conv_bias);
  w.a_log = b.add_vector(t.a_log);
  w.d = b.add_vector(t.d);
  w.dt_bias = b.add_vector(t.dt_bias);
  w.gate_norm = b.add_vector(t.gate_norm);
  w.heads = c.ssm_heads;
  w.head_dim = c.ssm_head_dim;
  w.groups = c.ssm_groups;
  w.state = c.ssm_state;
  w.taps = c.conv_kernel;
  w.dt_min = c.dt_min;
  w.dt_max = c.dt_max;
  w.eps = c.norm_eps;
  return w;
}

AttentionWeights make_attention(const NemotronHConfig& c, const NemotronHLayerTensors& t,
                                Backend& b) {
  return {b.add_projection(t.q_proj),
          b.add_projection(t.k_proj),
          b.add_projection(t.v_proj),
          b.add_projection(t.o_proj),
          c.heads,
          c.kv_heads,
          c.head_dim};
}

MlpWeights make_mlp(const LinearSource& up, const LinearSource& down, Backend& b) {
  return {b.add_projection(up), b.add_down(down)};
}

MoeWeights make_moe(const NemotronHConfig& c, const NemotronHLayerTensors& t, Backend& b) {
  MoeWeights w;
  w.router = b.add_projection(t.router);
  w.correction_bias = t.correction_bias;
  w.rules = {c.experts,           c.experts_per_token, c.router_groups, c.router_topk_groups,
             c.normalize_weights, c.routed_scaling};
  for (int e = 0; e < c.experts; ++e)
    w.experts.push_back(make_mlp(t.experts.up[e], t.experts.down[e], b));
  if (t.shared_up.out > 0) w.shared = make_mlp(t.shared_up, t.shared_down, b);
  if (t.latent_in.out > 0) {
    w.latent_in = b.add_projection(t.latent_in);
    w.latent_out = b.add_projection(t.latent_out);
  }
  return w;
}

}  // namespace

Result<std::unique_ptr<Model>> NemotronH::make(const Checkpoint& checkpoint, Backend& backend) {
  LAC_TRY(NemotronHConfig config, parse_nemotron_h_config(checkpoint.config()));
  // The backend looks at the scales that it packs: at the first start, not at each.
  LAC_TRY(const NemotronHTensors tensors, bind_nemotron_h(checkpoint, config, ScaleCheck::kNone));
  LAC_TRY_VOID(check_finite_scales(tensors.embeddings));
  auto model = std::make_unique<NemotronH>();
  const NemotronHConfig& c = model->config_ = std::move(config);
  model->parameters_ = tensors.parameters;
  model->embeddings_ = backend.add_table(tensors.embeddings);
  model->head_ = backend.add_projection(tensors.lm_head);
  model->final_norm_ = backend.add_vector(tensors.final_norm);
  for (const NemotronHLayerTensors& t : tensors.layers)
    model->layers_.push_back(make_layer(c, t, backend, model->states_.emplace_back()));
  if (!tensors.has_mtp) return std::unique_ptr<Model>(std::move(model));
  // A head is an extra: one that does not fit is left out, and the model runs without.
  auto head = bind_nemotron_h_head(checkpoint, c, ScaleCheck::kAll);
  if (head.ok()) {
    model->draft_head_ = std::make_unique<NemotronHDraftHead>(*model, *head, backend);
  } else {
    model->notes_.push_back("drafting head left out: " + head.error().what);
  }
  return std::unique_ptr<Model>(std::move(model));
}

NemotronH::Layer NemotronH::make_layer(const NemotronHConfig& c, const NemotronHLayerTensors& t,
                                       Backend& b, LayerState& state) {
  Layer layer;
  layer.kind = t.kind;
  layer.norm = b.add_vector(t.norm);
  switch (t.kind) {
    case LayerKind::kMamba:
      layer.mamba = make_mamba(c, t, b);
      state = {0, 0, c.conv_channels(), c.conv_kernel, c.ssm_heads, c.ssm_head_dim, c.ssm_state};
      break;
    case LayerKind::kAttention:
      layer.attention = make_attention(c, t, b);
      state.kv_heads = c.kv_heads;
      state.head_dim = c.head_dim;
      break;
    case LayerKind::kMoe:
      layer.moe = make_moe(c, t, b);
      break;
    case LayerKind::kMlp:
      layer.mlp = make_mlp(t.mlp_up, t.mlp_down, b);
      break;
  }
  return layer;
}

std::vector<std::string> NemotronH::layer_kinds() const {
  std::vector<std::string> kinds;
  for (const LayerKind kind : config_.layers) {
    constexpr const char* kNames[] = {"mamba", "attention", "moe", "mlp"};
    kinds.emplace_back(kNames[static_cast<int>(kind)]);
  }
  return kinds;
}

Output NemotronH::forward(Backend& b, std::span<const int> tokens, SequenceState& state, int want,
                          int hidden) const {
  Tensor x = b.embed(embeddings_, tokens);  // [T, D]
  b.lap("embed");
  for (int i = 0; i < layers(); ++i) {
    const Layer& l = layers_[i];
    const std::size_t mark = b.mark();
    b.enter_layer(i);
    Tensor y = b.rms_norm(x, l.norm, config_.norm_eps);
    b.lap("norm");
    switch (l.kind) {
      case LayerKind::kMamba:
        y = b.mamba2(y, l.mamba, state, i);
        break;
      case LayerKind::kAttention:
        y = b.attention(y, l.attention, state, i, y.rows);
        break;
      case LayerKind::kMoe:
        y = b.moe(y, l.moe);
        break;
      case LayerKind::kMlp:
        y = b.mlp(y, l.mlp);
        break;
    }
    b.add(x, y);
    b.lap("add");
    b.release(mark);
  }
  b.enter_layer(-1);
  b.advance(state, static_cast<int>(tokens.size()));
  const Tensor h = b.rms_norm(b.last_rows(x, hidden), final_norm_, config_.norm_eps);
  const Tensor logits = b.linear(b.last_rows(h, want), head_);
  b.lap("head");
  return {logits, h};
}

NemotronHDraftHead::NemotronHDraftHead(const NemotronH& model, const NemotronHHeadTensors& t,
                                       Backend& b)
    : model_(model),
      token_norm_(b.add_vector(t.token_norm)),
      hidden_norm_(b.add_vector(t.hidden_norm)),
      final_norm_(b.add_vector(t.final_norm)),
      joined_(b.add_projection(t.joined)),
      parameters_(t.parameters) {
  for (const NemotronHLayerTensors& layer : t.layers)
    layers_.push_back(NemotronH::make_layer(model.config_, layer, b, states_.emplace_back()));
}

Output NemotronHDraftHead::forward(Backend& b, std::span<const int> tokens, Tensor hidden,
                                   SequenceState& state, int want,
                                   std::span<const int> slices) const {
  const float eps = model_.config_.norm_eps;
  const Tensor e = b.rms_norm(b.embed(model_.embeddings_, tokens), token_norm_, eps);
  const Tensor h = b.rms_norm(hidden, hidden_norm_, eps);
  Tensor x = b.linear(b.join(e, h), joined_);  // [T, D]
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const NemotronH::Layer& l = layers_[i];
    Tensor y = b.rms_norm(x, l.norm, eps);
    switch (l.kind) {
      case LayerKind::kAttention:  // the rows before the last leave their keys here, no more
        y = b.attention(y, l.attention, state, static_cast<int>(i), want);
        break;
      case LayerKind::kMoe:
        y = b.moe(y, l.moe);
        break;
      case LayerKind::kMlp:
        y = b.mlp(y, l.mlp);
        break;
      case LayerKind::kMamba:
        LAC_CHECK(false, "a Mamba layer in a drafting head");
    }
    x = b.last_rows(x, want);
    if (want == 0) break;
    b.add(x, y);
  }
  b.advance(state, static_cast<int>(tokens.size()));
  b.lap("draft");
  if (want == 0) return {};
  const Tensor r = b.rms_norm(x, final_norm_, eps);
  const Tensor logits = b.linear_slices(r, model_.head_, slices);
  b.lap("draft head");
  return {logits, r};
}

}  // namespace lacuna
