// SPDX-License-Identifier: Apache-2.0
#include "model/glm_dsa.h"

#include <cstring>
#include <limits>
#include <utility>

namespace lacuna {
namespace {

GatedMlpWeights make_mlp(const GlmDsaMlpSources& s, Backend& b) {
  return {b.add_projection(s.gate), b.add_projection(s.up), b.add_projection(s.down)};
}

GatedMoeWeights make_moe(const GlmDsaConfig& c, const GlmDsaLayerTensors& t, Backend& b) {
  GatedMoeWeights w;
  w.router = b.add_projection(t.router);
  w.correction_bias = t.correction_bias;
  w.rules = {c.experts,           c.experts_per_token, c.router_groups, c.router_topk_groups,
             c.normalize_weights, c.routed_scaling};
  for (int e = 0; e < c.experts; ++e) {
    w.experts.push_back({b.add_projection(t.experts.gate[e]), b.add_projection(t.experts.up[e]),
                         b.add_projection(t.experts.down[e])});
  }
  if (t.shared.up.out > 0) w.shared = make_mlp(t.shared, b);
  return w;
}

// The plain matrix the other way round, in memory of its own.
LinearSource transpose(const LinearSource& s, std::vector<std::uint8_t>& memory) {
  const std::size_t size = dtype_bytes(s.dtype);
  memory.resize(size * static_cast<std::size_t>(s.out) * static_cast<std::size_t>(s.in));
  for (int r = 0; r < s.out; ++r) {
    for (int c = 0; c < s.in; ++c) {
      std::memcpy(memory.data() + (static_cast<std::size_t>(c) * s.out + r) * size,
                  s.weight + (static_cast<std::size_t>(r) * s.in + c) * size, size);
    }
  }
  LinearSource out = s;
  std::swap(out.out, out.in);
  out.weight = memory.data();
  return out;
}

}  // namespace

LatentWeights GlmDsa::make_attention(const GlmDsaLayerTensors& t, Backend& b) {
  const GlmDsaConfig& c = config_;
  const GlmDsaAttentionTensors& a = t.attention;
  LatentWeights w;
  w.q_a = b.add_projection(a.q_a);
  w.q_b = b.add_projection(a.q_b);
  w.kv_a = b.add_projection(a.kv_a);
  w.o = b.add_projection(a.o);
  w.q_norm = b.add_vector(a.q_a_norm);
  w.kv_norm = b.add_vector(a.kv_a_norm);
  for (const LinearSource& head : a.embed_q) w.absorb.push_back(b.add_projection(head));
  for (const LinearSource& head : a.key_b)
    w.absorb.push_back(b.add_projection(transpose(head, transposed_.emplace_back())));
  for (const LinearSource& head : a.unembed_out) w.release.push_back(b.add_projection(head));
  w.frequencies = frequencies_;
  w.heads = c.heads;
  w.nope = c.nope;
  w.rope = c.rope;
  w.latent = c.latent;
  w.value = c.value;
  w.topk = c.index_topk;
  w.min_context = c.sparse_prefill_min_context;
  w.eps = c.latent_norm_eps;
  w.scale = c.softmax_scale;
  if (!t.kind.has_indexer) return w;
  w.indexer.wq = b.add_projection(t.indexer.wq_b);
  w.indexer.wk = b.add_projection(t.indexer.wk);
  w.indexer.weights = b.add_projection(t.indexer.weights_proj);
  w.indexer.norm = b.add_vector(t.indexer.k_norm);
  w.indexer.norm_bias = b.add_vector(t.indexer.k_norm_bias);
  w.indexer.heads = c.index_heads;
  w.indexer.dim = c.index_dim;
  w.indexer.norm_eps = c.index_norm_eps;
  w.indexer.interleaved = c.indexer_interleaved;
  return w;
}

Result<std::unique_ptr<Model>> GlmDsa::make(const Checkpoint& checkpoint, Backend& backend,
                                            const ModelOptions& options) {
  LAC_TRY(GlmDsaConfig config, parse_glm_dsa_config(checkpoint.config()));
  // The backend looks at the scales that it packs: at the first start, not at each.
  LAC_TRY(const GlmDsaTensors tensors, bind_glm_dsa(checkpoint, config, ScaleCheck::kNone));
  LAC_TRY_VOID(check_finite_scales(tensors.embeddings));
  auto model = std::make_unique<GlmDsa>();
  model->config_ = std::move(config);
  GlmDsaConfig& c = model->config_;
  if (options.sparse_min_context) c.sparse_prefill_min_context = *options.sparse_min_context;
  if (!options.sparse_attention.value_or(c.sparse_prefill))
    c.sparse_prefill_min_context = std::numeric_limits<int>::max();
  model->parameters_ = tensors.parameters;
  model->notes_ = tensors.notes;
  model->embeddings_ = backend.add_table(tensors.embeddings);
  model->head_ = backend.add_projection(tensors.lm_head);
  model->final_norm_ = backend.add_vector(tensors.final_norm);
  model->frequencies_ = backend.add_vector(c.rope_frequencies);
  for (const GlmDsaLayerTensors& t : tensors.layers) {
    Layer layer;
    layer.input_norm = backend.add_vector(t.input_norm);
    layer.post_attention_norm = backend.add_vector(t.post_attention_norm);
    layer.attention = model->make_attention(t, backend);
    layer.is_moe = t.kind.is_moe;
    if (layer.is_moe) {
      layer.moe = make_moe(c, t, backend);
    } else {
      layer.mlp = make_mlp(t.mlp, backend);
    }
    LayerState state;
    state.latent_row = c.latent + c.rope;
    state.index_dim = t.kind.has_indexer ? c.index_dim : 0;
    model->states_.push_back(state);
    model->layers_.push_back(std::move(layer));
  }
  return std::unique_ptr<Model>(std::move(model));
}

std::vector<std::string> GlmDsa::layer_kinds() const {
  std::vector<std::string> kinds;
  for (const Layer& layer : layers_) kinds.emplace_back(layer.is_moe ? "moe" : "mlp");
  return kinds;
}

Output GlmDsa::forward(Backend& b, std::span<const int> tokens, SequenceState& state, int want,
                       int hidden) const {
  const Tensor x = b.embed(embeddings_, tokens);  // [T, D]
  b.lap("embed");
  // A layer without an indexer uses what the nearest one before it picked.
  const Picks picks = b.make_picks(static_cast<int>(tokens.size()), config_.index_topk);
  for (int i = 0; i < layers(); ++i) {
    const Layer& l = layers_[i];
    const std::size_t mark = b.mark();
    b.enter_layer(i);
    const Tensor y = b.rms_norm(x, l.input_norm, config_.norm_eps);
    b.lap("norm");
    b.add(x, b.latent_attention(y, l.attention, state, i, picks));
    const Tensor z = b.rms_norm(x, l.post_attention_norm, config_.norm_eps);
    b.lap("norm");
    b.add(x, l.is_moe ? b.gated_moe(z, l.moe) : b.gated_mlp(z, l.mlp));
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

}  // namespace lacuna
