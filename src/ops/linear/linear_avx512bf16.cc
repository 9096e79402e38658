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

template <PackKind Kind, int P, int Rows>
void add_pairs(const __m512i (&v)[4], const std::uint32_t* const* x, int p,
               __m512 (&acc)[Rows][4]) {
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

// A block's scales and shifts as float32, [groups][4 tiles][2][16]: decoded once when many rows use
// them.
constexpr int kMostGroups = 128;
struct BlockScales {
  alignas(64) float values[kMostGroups * 4 * 32];

  template <PackKind Kind>
  void decode(const RowBlocks& w, int block) {
    const std::uint8_t* base = w.data + static_cast<std::size_t>(block) * w.block_bytes();
    for (int g = 0; g < w.groups; ++g) {
      for (int i = 0; i < 4; ++i) {
        const Scales s =
            load_scales < Kind == PackKind::kQ4
                ? 16
                : 0 > (base + w.scales_at(g), w.form, g % w.record_groups() * 4 + i, kBlockRows);
        _mm512_store_ps(values + (g * 4 + i) * 32, s.scale);
        _mm512_store_ps(values + (g * 4 + i) * 32 + 16, s.shift);
      }
    }
  }
};

template <PackKind Kind, int Rows>
void row_tile(const RowBlocks& w, int block, const BlockScales* decoded,
              const std::uint32_t* const* x, const float* const* sums, float* const* y) {
  constexpr int kOffset = Kind == PackKind::kQ4 ? 16 : 0;
  const std::uint8_t* base = w.data + static_cast<std::size_t>(block) * w.block_bytes();
  __m512 total[Rows][4];
  for (auto& row : total) {
    for (auto& v : row) v = _mm512_setzero_ps();
  }
  for (int g = 0; g < w.groups; ++g) {
    __m512 acc[Rows][4];
    for (auto& row : acc) {
      for (auto& v : row) v = _mm512_setzero_ps();
    }
    const std::uint8_t* line = base + w.codes_at(g);
    for (int p = g * w.group / 2; p < (g + 1) * w.group / 2; p += kPairs<Kind>, line += 256) {
      __m512i v[4];
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) v[i] = _mm512_loadu_si512(line + 64 * i);
      add_pairs<Kind, 0, Rows>(v, x, p, acc);
    }
    const std::uint8_t* scales = base + w.scales_at(g);
    const int first_vector = g % w.record_groups() * 4;
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      if constexpr (kScaled<Kind>) {
        const float* at = decoded != nullptr ? decoded->values + (g * 4 + i) * 32 : nullptr;
        const Scales s = at != nullptr
                             ? Scales{_mm512_load_ps(at), _mm512_load_ps(at + 16)}
                             : load_scales<kOffset>(scales, w.form, first_vector + i, kBlockRows);
        for (int r = 0; r < Rows; ++r) {
          total[r][i] = _mm512_fmadd_ps(s.scale, acc[r][i], total[r][i]);
          total[r][i] = _mm512_fmadd_ps(s.shift, _mm512_set1_ps(sums[r][g]), total[r][i]);
        }
      } else {
        for (int r = 0; r < Rows; ++r) total[r][i] = _mm512_add_ps(total[r][i], acc[r][i]);
      }
    }
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

template <PackKind Kind, int Rows>
void rows_of_tile(int rows, const RowBlocks& w, int block, const BlockScales* decoded,
                  const std::uint32_t* const* x, const float* const* sums, float* const* y) {
  if constexpr (Rows > 0) {
    if (rows == Rows) return row_tile<Kind, Rows>(w, block, decoded, x, sums, y);
    rows_of_tile<Kind, Rows - 1>(rows, w, block, decoded, x, sums, y);
  }
}

template <PackKind Kind>
void block_of_kind(const RowBlocks& w, int block, const Activations& a, const int* rows, int count,
                   float* y, std::ptrdiff_t y_stride) {
  BlockScales scales;
  const bool decode = kScaled<Kind> && count > 8 * kRowTile && w.groups <= kMostGroups;
  if constexpr (kScaled<Kind>) {
    if (decode) scales.decode<Kind>(w, block);
  }
  for (int begin = 0; begin < count; begin += kRowTile) {
    const int n = count - begin < kRowTile ? count - begin : kRowTile;
    const std::uint32_t* x[kRowTile];
    const float* sums[kRowTile];
    float* out[kRowTile];
    for (int i = 0; i < n; ++i) {
      const int row = rows != nullptr ? rows[begin + i] : begin + i;
      x[i] = a.pairs + static_cast<std::ptrdiff_t>(row) * (a.padded / 2);
      sums[i] = a.sums + static_cast<std::ptrdiff_t>(row) * a.groups;
      out[i] = y + (begin + i) * y_stride + block * kBlockRows;
    }
    rows_of_tile<Kind, kRowTile>(n, w, block, decode ? &scales : nullptr, x, sums, out);
  }
}

}  // namespace

void linear_block(const RowBlocks& w, int block, const Activations& a, const int* rows, int count,
                  float* y, std::ptrdiff_t y_stride) noexcept {
  if (a.pairs == nullptr || w.kind == PackKind::kF32) {
    return avx512::linear_block(w, block, a, rows, count, y, y_stride);
  }
  switch (w.kind) {
    case PackKind::kQ4:
      return block_of_kind<PackKind::kQ4>(w, block, a, rows, count, y, y_stride);
    case PackKind::kQ8:
      return block_of_kind<PackKind::kQ8>(w, block, a, rows, count, y, y_stride);
    default:
      return block_of_kind<PackKind::kBf16>(w, block, a, rows, count, y, y_stride);
  }
}

}  // namespace lacuna::cpu::avx512bf16
