// SPDX-License-Identifier: Apache-2.0
// From the checkpoint's layout to the two packed ones (tensor/packed.h). Bits move, values stay.
#pragma once

#include <cstdint>

#include "checkpoint/linear_source.h"
#include "tensor/packed.h"

namespace lacuna {

// The layout a source packs into; `data`, `rows` and `scales` are still null.
RowBlocks plan_row_blocks(const LinearSource& source);
NeuronMajor plan_neuron_major(const LinearSource& source);

// Writes block `block` of `layout` to out [layout.block_bytes()].
void pack_row_block(const LinearSource& source, const RowBlocks& layout, int block,
                    std::uint8_t* out);

// Writes outputs [column, column + 128) of every row of `layout`, and of the scales, into the
// matrix's memory at `rows` and `scales` (which must be zero there).
void pack_neuron_columns(const LinearSource& source, const NeuronMajor& layout, int column,
                         std::uint8_t* rows, std::uint8_t* scales);

// Row `row` as float32: fma(scale, code, bias), or the widened plain values. out [source.in].
void dequantize_row(const LinearSource& source, int row, float* out);

}  // namespace lacuna
