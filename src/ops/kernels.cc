// SPDX-License-Identifier: Apache-2.0
#include "ops/kernels.h"

#include "base/check.h"

namespace lacuna {
namespace {

using namespace cpu;

constexpr Kernels kScalar{.isa = Isa::kScalar,
                          .prepare_activations = scalar::prepare_activations,
                          .linear_block = scalar::linear_block,
                          .relu2_live = scalar::relu2_live,
                          .sparse_down = scalar::sparse_down,
                          .sparse_down_bf16 = scalar::sparse_down,
                          .dense_down = scalar::dense_down,
                          .axpy = scalar::axpy,
                          .rms_norm = scalar::rms_norm,
                          .gated_norm = scalar::gated_norm,
                          .conv_silu = scalar::conv_silu,
                          .ssm_scan = scalar::ssm_scan,
                          .attend_band = scalar::attend_band,
                          .merge_band = scalar::merge_band,
                          .rope = scalar::rope,
                          .swiglu = scalar::swiglu,
                          .index_scores = scalar::index_scores,
                          .keep_above = scalar::keep_above,
                          .latent_picked = scalar::latent_picked,
                          .latent_masked = scalar::latent_masked};

#if defined(__x86_64__)

constexpr Kernels kAvx2{.isa = Isa::kAvx2,
                        .prepare_activations = avx2::prepare_activations,
                        .linear_block = avx2::linear_block,
                        .relu2_live = avx2::relu2_live,
                        .sparse_down = avx2::sparse_down,
                        .sparse_down_bf16 = avx2::sparse_down,
                        .dense_down = avx2::dense_down,
                        .axpy = avx2::axpy,
                        .rms_norm = avx2::rms_norm,
                        .gated_norm = avx2::gated_norm,
                        .conv_silu = avx2::conv_silu,
                        .ssm_scan = avx2::ssm_scan,
                        .attend_band = avx2::attend_band,
                        .merge_band = avx2::merge_band,
                        .rope = avx2::rope,
                        .swiglu = avx2::swiglu,
                        .index_scores = avx2::index_scores,
                        .keep_above = avx2::keep_above,
                        .latent_picked = avx2::latent_picked,
                        .latent_masked = avx2::latent_masked};

constexpr Kernels kAvx512{.isa = Isa::kAvx512,
                          .prepare_activations = avx512::prepare_activations,
                          .linear_block = avx512::linear_block,
                          .relu2_live = avx512::relu2_live,
                          .sparse_down = avx512::sparse_down,
                          .sparse_down_bf16 = avx512::sparse_down,
                          .dense_down = avx512::dense_down,
                          .axpy = avx512::axpy,
                          .rms_norm = avx512::rms_norm,
                          .gated_norm = avx512::gated_norm,
                          .conv_silu = avx512::conv_silu,
                          .ssm_scan = avx512::ssm_scan,
                          .attend_band = avx512::attend_band,
                          .merge_band = avx512::merge_band,
                          .rope = avx512::rope,
                          .swiglu = avx512::swiglu,
                          .index_scores = avx512::index_scores,
                          .keep_above = avx512::keep_above,
                          .latent_picked = avx512::latent_picked,
                          .latent_masked = avx512::latent_masked};

constexpr Kernels kAvx512Bf16 = [] {
  Kernels k = kAvx512;
  k.isa = Isa::kAvx512Bf16;
  k.linear_block = avx512bf16::linear_block;
  k.sparse_down_bf16 = avx512bf16::sparse_down;
  k.dense_down = avx512bf16::dense_down;
  k.attend_band = avx512bf16::attend_band;
  k.index_scores = avx512bf16::index_scores;
  k.latent_picked = avx512bf16::latent_picked;
  k.latent_masked = avx512bf16::latent_masked;
  return k;
}();

#elif defined(__aarch64__)

constexpr Kernels kNeon{.isa = Isa::kNeon,
                        .prepare_activations = neon::prepare_activations,
                        .linear_block = neon::linear_block,
                        .relu2_live = neon::relu2_live,
                        .sparse_down = neon::sparse_down,
                        .sparse_down_bf16 = neon::sparse_down,
                        .dense_down = neon::dense_down,
                        .axpy = neon::axpy,
                        .rms_norm = neon::rms_norm,
                        .gated_norm = neon::gated_norm,
                        .conv_silu = neon::conv_silu,
                        .ssm_scan = neon::ssm_scan,
                        .attend_band = neon::attend_band,
                        .merge_band = neon::merge_band,
                        .rope = neon::rope,
                        .swiglu = neon::swiglu,
                        .index_scores = neon::index_scores,
                        .keep_above = neon::keep_above,
                        .latent_picked = neon::latent_picked,
                        .latent_masked = neon::latent_masked};

#endif

}  // namespace

const Kernels& kernels_for(Isa isa) {
  switch (isa) {
    case Isa::kScalar:
      return kScalar;
#if defined(__x86_64__)
    case Isa::kAvx2:
      return kAvx2;
    case Isa::kAvx512:
      return kAvx512;
    case Isa::kAvx512Bf16:
      return kAvx512Bf16;
#elif defined(__aarch64__)
    case Isa::kNeon:
      return kNeon;
#endif
    default:
      break;
  }
  LAC_CHECK(false, "no kernels for {} in this build", isa_name(isa));
}

}  // namespace lacuna
