// SPDX-License-Identifier: Apache-2.0
// The projection on vdpbf16ps: two inputs a dot, the high half of a pair first, which is the order
// of linear.h. Taken when activations are bf16 pairs; float32 weights go the AVX-512 way.
#include <immintrin.h>

#include "ops/linear/linear.h"
#include "ops/simd/pairs_avx512bf16.h"

namespace lacuna::cpu::avx512bf16 {
namespace {

__m512i broadcast(const std::uint32_t* p) { return _mm512_set1_epi32(static_cast<int>(*p)); }

// Pair `P` (inputs 2P and 2P + 1) of each dword as two bf16, code offset included.
template <PackKind Kind, int P>
__m512i decode_pair(__m512i v) {
  if constexpr (Kind == PackKind::kQ4) {
    return code4_pair<P>(v);
  } else if constexpr (Kind == PackKind::kQ8) {
    const __m512i byte = _mm512_set1_epi32(255);
    const __m512 even = _mm512_cvtepi32_ps(_mm512_and_si512(_mm512_srli_epi32(v, 16 * P), byte));
    const __m512 odd = _mm512_cvtepi32_ps(_mm512_and_si512(_mm512_srli_epi32(v, 16 * P + 8), byte));
    return _mm512_or_si512(_mm512_castps_si512(even),
                           _mm512_srli_epi32(_mm512_castps_si512(odd), 16));
  } else {
    return v;
  }
}

template <PackKind Kind>
constexpr int kPairs = Kind == PackKind::kQ4   ? 4
                       : Kind == PackKind::kQ8 ? 2
                                               : 1;

template <PackKind Kind>
constexpr bool kScaled = Kind == PackKind::kQ4 || Kind == PackKind::kQ8;

// Inlined by force, as all that takes sums by reference: in a function of its own they would be in
// memory.
template <PackKind Kind, int P, int Rows>
[[gnu::always_inline]] inline void add_pairs(const __m512i (&v)[4], const std::uint32_t* const* x,
                                             int p, __m512 (&acc)[Rows][4]) {
  if constexpr (P < kPairs<Kind>) {
    __m512i code[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) code[i] = decode_pair<Kind, P>(v[i]);
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) {
      const __m512i xv = broadcast(x[r] + p + P);
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) acc[r][i] = _mm512_dpbf16_ps(acc[r][i], bf(code[i]), bf(xv));
    }
    add_pairs<Kind, P + 1, Rows>(v, x, p, acc);
  }
}

// A block's scales in the wide form, with shifts for biases, decoded once when many rows use them.
constexpr int kMostGroups = 128;
struct WideScales {
  alignas(64) float values[kMostGroups][2 * kBlockRows];

  template <int Offset>
  void decode(const RowBlocks& w, const std::uint8_t* block) {
    for (int g = 0; g < w.groups; ++g) {
      for (int i = 0; i < 4; ++i) {
        const int vector = g % w.record_groups() * 4 + i;
        const Scales s = load_scales<Offset>(block + w.scales_at(g), w.form, vector, kBlockRows);
        _mm512_store_ps(values[g] + i * 16, s.scale);
        _mm512_store_ps(values[g] + kBlockRows + i * 16, s.shift);
      }
    }
  }
};

// One group of a row tile. `Vector` is where its scales begin in a compact block: a constant, so
// that taking them apart costs no more than the arithmetic hides.
template <PackKind Kind, ScaleForm Form, int Offset, int Vector, int Rows>
[[gnu::always_inline]] inline void add_group(const std::uint8_t* line, const std::uint8_t* scales,
                                             int group, int g, const std::uint32_t* const* x,
                                             const float* const* sums, __m512 (&total)[Rows][4]) {
  __m512 acc[Rows][4];
  for (auto& row : acc) {
    for (auto& v : row) v = _mm512_setzero_ps();
  }
  for (int p = g * group / 2; p < (g + 1) * group / 2; p += kPairs<Kind>, line += 256) {
    __m512i v[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) v[i] = _mm512_loadu_si512(line + 64 * i);
    add_pairs<Kind, 0, Rows>(v, x, p, acc);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    if constexpr (kScaled<Kind>) {
      const Scales s = load_scales<Offset>(scales, Form, Vector + i, kBlockRows);
      for (int r = 0; r < Rows; ++r) {
        total[r][i] = _mm512_fmadd_ps(s.scale, acc[r][i], total[r][i]);
        total[r][i] = _mm512_fmadd_ps(s.shift, _mm512_set1_ps(sums[r][g]), total[r][i]);
      }
    } else {
      for (int r = 0; r < Rows; ++r) total[r][i] = _mm512_add_ps(total[r][i], acc[r][i]);
    }
  }
}

// `wide`, when there is one, stands for the scales of `w`: Form is then kWide and Offset 0.
template <PackKind Kind, ScaleForm Form, int Offset, int Rows>
void row_tile(const RowBlocks& w, int block, const WideScales* wide, const std::uint32_t* const* x,
              const float* const* sums, float* const* y) {
  const std::uint8_t* base = w.data + static_cast<std::size_t>(block) * w.block_bytes();
  const auto scales_of = [&](int g) {
    return wide != nullptr ? reinterpret_cast<const std::uint8_t*>(wide->values[g])
                           : base + w.scales_at(g);
  };
  __m512 total[Rows][4];
  for (auto& row : total) {
    for (auto& v : row) v = _mm512_setzero_ps();
  }
  if constexpr (Form == ScaleForm::kCompact) {
    for (int g = 0; g < w.groups; g += 2) {
      const std::uint8_t* scales = base + w.scales_at(g);
      add_group<Kind, Form, Offset, 0, Rows>(base + w.codes_at(g), scales, w.group, g, x, sums,
                                             total);
      add_group<Kind, Form, Offset, 4, Rows>(base + w.codes_at(g + 1), scales, w.group, g + 1, x,
                                             sums, total);
    }
  } else {
    for (int g = 0; g < w.groups; ++g)
      add_group<Kind, Form, Offset, 0, Rows>(base + w.codes_at(g), scales_of(g), w.group, g, x,
                                             sums, total);
  }
  const int outputs = w.out - block * kBlockRows;
  for (int r = 0; r < Rows; ++r) {
    for (int i = 0; i < 4 && i * 16 < outputs; ++i) {
      const int n = outputs - i * 16;
      const auto mask = static_cast<__mmask16>(n >= 16 ? 0xffffu : (1u << n) - 1);
      _mm512_mask_storeu_ps(y[r] + i * 16, mask, total[r][i]);
    }
  }
}

// Rows a pass over a block's codes serves at once: as many as the registers hold with their sums.
constexpr int kRowTile = 4;

template <PackKind Kind, ScaleForm Form, int Offset, int Rows>
void rows_of_tile(int rows, const RowBlocks& w, int block, const WideScales* wide,
                  const std::uint32_t* const* x, const float* const* sums, float* const* y) {
  if constexpr (Rows > 0) {
    if (rows == Rows) return row_tile<Kind, Form, Offset, Rows>(w, block, wide, x, sums, y);
    rows_of_tile<Kind, Form, Offset, Rows - 1>(rows, w, block, wide, x, sums, y);
  }
}

struct Rows {
  const Activations& a;
  const int* numbers;  // null: 0, 1, …
  int count;
  float* y;
  std::ptrdiff_t y_stride;
};

template <PackKind Kind, ScaleForm Form, int Offset>
void row_tiles(const RowBlocks& w, int block, const WideScales* wide, const Rows& rows) {
  for (int begin = 0; begin < rows.count; begin += kRowTile) {
    const int n = rows.count - begin < kRowTile ? rows.count - begin : kRowTile;
    const std::uint32_t* x[kRowTile];
    const float* sums[kRowTile];
    float* out[kRowTile];
    for (int i = 0; i < n; ++i) {
      const std::ptrdiff_t row = rows.numbers != nullptr ? rows.numbers[begin + i] : begin + i;
      x[i] = rows.a.pairs + row * (rows.a.padded / 2);
      sums[i] = rows.a.sums + row * rows.a.groups;
      out[i] = rows.y + (begin + i) * rows.y_stride + block * kBlockRows;
    }
    rows_of_tile<Kind, Form, Offset, kRowTile>(n, w, block, wide, x, sums, out);
  }
}

template <PackKind Kind>
void scaled_block(const RowBlocks& w, int block, const Rows& rows) {
  constexpr int kOffset = Kind == PackKind::kQ4 ? 16 : 0;
  if (rows.count > 8 * kRowTile && w.groups <= kMostGroups) {
    WideScales wide;
    wide.decode<kOffset>(w, w.data + static_cast<std::size_t>(block) * w.block_bytes());
    return row_tiles<Kind, ScaleForm::kWide, 0>(w, block, &wide, rows);
  }
  switch (w.form) {
    case ScaleForm::kPairs:
      return row_tiles<Kind, ScaleForm::kPairs, kOffset>(w, block, nullptr, rows);
    case ScaleForm::kWide:
      return row_tiles<Kind, ScaleForm::kWide, kOffset>(w, block, nullptr, rows);
    case ScaleForm::kCompact:
      if constexpr (Kind == PackKind::kQ4)  // no other kind has it
        return row_tiles<Kind, ScaleForm::kCompact, kOffset>(w, block, nullptr, rows);
  }
}

}  // namespace

void linear_block(const RowBlocks& w, int block, const Activations& a, const int* rows, int count,
                  float* y, std::ptrdiff_t y_stride) noexcept {
  if (a.pairs == nullptr || w.kind == PackKind::kF32) {
    return avx512::linear_block(w, block, a, rows, count, y, y_stride);
  }
  const Rows all{a, rows, count, y, y_stride};
  switch (w.kind) {
    case PackKind::kQ4:
      return scaled_block<PackKind::kQ4>(w, block, all);
    case PackKind::kQ8:
      return scaled_block<PackKind::kQ8>(w, block, all);
    default:
      return row_tiles<PackKind::kBf16, ScaleForm::kPairs, 0>(w, block, nullptr, all);
  }
}

}  // namespace lacuna::cpu::avx512bf16
