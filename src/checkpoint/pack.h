// SPDX-License-Identifier: Apache-2.0
// From the checkpoint's layout to the two packed ones (tensor/packed.h). Bits move, values stay.
//
// Units  A matrix is packed in units that do not touch each other: one block of 64 outputs, or one
//        column block of 128. Any thread may do any unit, and every byte of a unit is written, the
//        padding as zeros.
// Speed  4-bit codes, the kind large checkpoints come in, are moved eight at a time. All others
// take
//        a plain loop over single codes.
#pragma once

#include <cstdint>

#include "checkpoint/linear_source.h"
#include "tensor/packed.h"

namespace lacuna {

// Whether every scale of a source follows from its bias (ScaleForm::kCompact, tensor/packed.h):
// looks at all of them.
bool has_compact_scales(const LinearSource& source);

// The layout a source packs into; `data`, `rows` and `scales` are still null. `compact`: with
// compact scales, where the layout knows them (4-bit codes or fewer, bf16 scales; row blocks: an
// even number of groups).
RowBlocks plan_row_blocks(const LinearSource& source, bool compact);
NeuronMajor plan_neuron_major(const LinearSource& source, bool compact);

// Writes block `block` of `layout` to out [layout.block_bytes()].
void pack_row_block(const LinearSource& source, const RowBlocks& layout, int block,
                    std::uint8_t* out);

// Writes outputs [column, column + 128) of every row of `layout`, and of the scales, into the
// matrix's memory at `rows` and `scales`. `column` is a multiple of 128.
void pack_neuron_columns(const LinearSource& source, const NeuronMajor& layout, int column,
                         std::uint8_t* rows, std::uint8_t* scales);

// Row `row` as float32: fma(scale, code, bias), or the widened plain values. out [source.in].
void dequantize_row(const LinearSource& source, int row, float* out);

}  // namespace lacuna
