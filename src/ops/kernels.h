// SPDX-License-Identifier: Apache-2.0
// The kernels of one instruction set. A level's table is the one below it with what it does better
// put in, so a gap falls through to the next lower level; `ls` in an op's folder shows what is
// there.
#pragma once

#include "base/cpu.h"
#include "ops/attention/attention.h"
#include "ops/axpy/axpy.h"
#include "ops/index_topk/index_topk.h"
#include "ops/latent_attention/latent_attention.h"
#include "ops/linear/linear.h"
#include "ops/mamba2/mamba2.h"
#include "ops/rms_norm/rms_norm.h"
#include "ops/rope/rope.h"
#include "ops/sparse_down/sparse_down.h"
#include "ops/swiglu/swiglu.h"

namespace lacuna {

struct Kernels {
  Isa isa;
  PrepareActivations* prepare_activations;
  LinearBlock* linear_block;
  Relu2Live* relu2_live;
  SparseDown* sparse_down;
  SparseDown* sparse_down_bf16;  // for h rounded to bf16: same bits as sparse_down on such h
  DenseDown* dense_down;
  Axpy* axpy;
  RmsNorm* rms_norm;
  GatedNorm* gated_norm;
  ConvSilu* conv_silu;
  SsmScan* ssm_scan;
  AttendBand* attend_band;
  MergeBand* merge_band;
  Rope* rope;
  SwiGlu* swiglu;
  IndexScores* index_scores;
  KeepAbove* keep_above;
  LatentPicked* latent_picked;
  LatentMasked* latent_masked;
};

// The table of a level that usable_isas() lists.
const Kernels& kernels_for(Isa isa);

}  // namespace lacuna
