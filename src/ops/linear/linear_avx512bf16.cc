// SPDX-License-Identifier: Apache-2.0
// The projection on vdpbf16ps: two inputs a dot, the high half of a pair first, which is the order of
// linear.h. Taken when activations are bf16 pairs; float32 weights go the AVX-512 way.
#include <immintrin.h>

#include "ops/linear/linear.h"

namespace lacuna::cpu::avx512bf16 {
namespace {

constexpr int kTileTokens = 6;
constexpr int kChunk = 96;

__m512bh bf(__m512i v) { return reinterpret_cast<__m512bh>(v); }
__m512i broadcast(const std::uint32_t* p) { return _mm512_set1_epi32(static_cast<int>(*p)); }

// Pair `P` (inputs 2P and 2P + 1) of each dword as two bf16, code offset included.
template <PackKind Kind, int P>
__m512i decode_pair(__m512i v) {
  if constexpr (Kind == PackKind::kQ4) {
    // Four bits to the top of a bf16 mantissa: 16.0 + code, in both halves at once.
    const __m512i field = _mm512_set1_epi16(0x78);
    const __m512i sixteen = _mm512_set1_epi16(0x4180);
    __m512i shifted;
    if constexpr (P == 0) {
      shifted = _mm512_slli_epi16(v, 3);
    } else {
      shifted = _mm512_srli_epi16(v, 4 * P - 3);
    }
    return _mm512_ternarylogic_epi32(shifted, field, sixteen, 0xea);
  } else if constexpr (Kind == PackKind::kQ8) {
    const __m512i byte = _mm512_set1_epi32(255);
    const __m512 even = _mm512_cvtepi32_ps(_mm512_and_si512(_mm512_srli_epi32(v, 16 * P), byte));
    const __m512 odd = _mm512_cvtepi32_ps(_mm512_and_si512(_mm512_srli_epi32(v, 16 * P + 8), byte));
    return _mm512_or_si512(_mm512_castps_si512(even), _mm512_srli_epi32(_mm512_castps_si512(odd), 16));
  } else {
    return v;
  }
}

template <PackKind Kind>
constexpr int kPairs = Kind == PackKind::kQ4 ? 4 : Kind == PackKind::kQ8 ? 2 : 1;

struct Scales {
  __m512 scale, shift;
};

template <PackKind Kind>
Scales load_scales(const RowBlocks& w, const std::uint8_t* scales, int tile) {
  __m512 scale, bias;
  if (w.wide) {
    const float* f = reinterpret_cast<const float*>(scales) + tile * 16;
    scale = _mm512_loadu_ps(f);
    bias = _mm512_loadu_ps(f + kBlockRows);
  } else {
    const __m512i v = _mm512_loadu_si512(scales + tile * 64);
    scale = _mm512_castsi512_ps(_mm512_slli_epi32(v, 16));
    bias = _mm512_castsi512_ps(_mm512_and_si512(v, _mm512_set1_epi32(static_cast<int>(0xffff0000u))));
  }
  if constexpr (Kind == PackKind::kQ4) {
    return {scale, _mm512_fmadd_ps(_mm512_set1_ps(-16.0f), scale, bias)};
  }
  return {scale, bias};
}

template <PackKind Kind>
constexpr bool kScaled = Kind == PackKind::kQ4 || Kind == PackKind::kQ8;

template <PackKind Kind, int P, int Rows>
void add_pairs(const __m512i (&v)[4], const std::uint32_t* const* x, int p, __m512 (&acc)[Rows][4]) {
  if constexpr (P < kPairs<Kind>) {
    __m512i code[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) code[i] = decode_pair<Kind, P>(v[i]);
#pragma GCC unroll 4
    for (int r = 0; r < Rows; ++r) {
      const __m512i xv = broadcast(x[r] + p + P);
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) acc[r][i] = _mm512_dpbf16_ps(acc[r][i], bf(code[i]), bf(xv));
    }
    add_pairs<Kind, P + 1, Rows>(v, x, p, acc);
  }
}

template <PackKind Kind, int Rows>
void few_rows(const RowBlocks& w, int block, const std::uint32_t* const* x,
              const float* const* sums, float* const* y) {
  const std::size_t record = w.code_bytes() + w.scale_bytes();
  const std::size_t code_bytes = w.code_bytes();
  const std::uint8_t* at = w.data + static_cast<std::size_t>(block) * w.block_bytes();
  __m512 total[Rows][4];
  for (auto& row : total) {
    for (auto& v : row) v = _mm512_setzero_ps();
  }
  for (int g = 0; g < w.groups; ++g, at += record) {
    __m512 acc[Rows][4];
    for (auto& row : acc) {
      for (auto& v : row) v = _mm512_setzero_ps();
    }
    const std::uint8_t* line = at;
    for (int p = g * w.group / 2; p < (g + 1) * w.group / 2; p += kPairs<Kind>, line += 256) {
      // Four kilobytes ahead: the next record but one, in one sequential stream per thread.
      for (int i = 0; i < 4; ++i) _mm_prefetch(reinterpret_cast<const char*>(line) + 4096 + 64 * i, _MM_HINT_T0);
      __m512i v[4];
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) v[i] = _mm512_loadu_si512(line + 64 * i);
      add_pairs<Kind, 0, Rows>(v, x, p, acc);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      if constexpr (kScaled<Kind>) {
        const Scales s = load_scales<Kind>(w, at + code_bytes, i);
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

template <PackKind Kind, int P>
void unpack_pairs(__m512i v, std::uint32_t* panel) {
  if constexpr (P < kPairs<Kind>) {
    _mm512_store_si512(panel + P * 64, decode_pair<Kind, P>(v));
    unpack_pairs<Kind, P + 1>(v, panel);
  }
}

// sums [Tokens][4] of a panel [pairs][64] with Tokens rows, kept in registers.
template <int Tokens>
void panel_tile(const std::uint32_t* panel, int pairs, const std::uint32_t* const* x,
                __m512 (&acc)[kTileTokens][4]) {
  __m512 sum[Tokens][4];
  for (auto& row : sum) {
    for (auto& v : row) v = _mm512_setzero_ps();
  }
  for (int p = 0; p < pairs; ++p) {
    __m512i w[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) w[i] = _mm512_load_si512(panel + p * 64 + i * 16);
#pragma GCC unroll 6
    for (int t = 0; t < Tokens; ++t) {
      const __m512i xv = broadcast(x[t] + p);
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) sum[t][i] = _mm512_dpbf16_ps(sum[t][i], bf(w[i]), bf(xv));
    }
  }
  for (int t = 0; t < Tokens; ++t) {
    for (int i = 0; i < 4; ++i) acc[t][i] = sum[t][i];
  }
}

template <int Tokens>
void panel_tile_n(int tokens, const std::uint32_t* panel, int pairs, const std::uint32_t* const* x,
                  __m512 (&acc)[kTileTokens][4]) {
  if constexpr (Tokens > 0) {
    if (tokens == Tokens) return panel_tile<Tokens>(panel, pairs, x, acc);
    panel_tile_n<Tokens - 1>(tokens, panel, pairs, x, acc);
  }
}

template <PackKind Kind>
void many_rows(const RowBlocks& w, int block, const Activations& a, const int* rows, int count,
               float* y, std::ptrdiff_t y_stride) {
  alignas(64) std::uint32_t panel[64 * 64];  // a group has at most 128 inputs
  alignas(64) float totals[kChunk * 64];
  const int outputs = w.out - block * kBlockRows;
  const int pairs = w.group / 2;
  const std::size_t record = w.code_bytes() + w.scale_bytes();
  for (int begin = 0; begin < count; begin += kChunk) {
    const int n = count - begin < kChunk ? count - begin : kChunk;
    for (int i = 0; i < n * 64; i += 16) _mm512_store_ps(totals + i, _mm512_setzero_ps());
    const std::uint8_t* at = w.data + static_cast<std::size_t>(block) * w.block_bytes();
    for (int g = 0; g < w.groups; ++g, at += record) {
      for (int p = 0; p < pairs; p += kPairs<Kind>) {
        for (int i = 0; i < 4; ++i) {
          const std::size_t line = static_cast<std::size_t>(p / kPairs<Kind>) * 4 + i;
          unpack_pairs<Kind, 0>(_mm512_loadu_si512(at + line * 64), panel + p * 64 + i * 16);
        }
      }
      Scales s[4];
      if constexpr (kScaled<Kind>) {
        for (int i = 0; i < 4; ++i) s[i] = load_scales<Kind>(w, at + w.code_bytes(), i);
      }
      for (int t = 0; t < n; t += kTileTokens) {
        const int tokens = n - t < kTileTokens ? n - t : kTileTokens;
        const std::uint32_t* x[kTileTokens];
        float x_sum[kTileTokens];
        for (int i = 0; i < tokens; ++i) {
          const int row = rows != nullptr ? rows[begin + t + i] : begin + t + i;
          x[i] = a.pairs + static_cast<std::ptrdiff_t>(row) * (a.padded / 2) + g * pairs;
          x_sum[i] = a.sums[static_cast<std::ptrdiff_t>(row) * a.groups + g];
        }
        __m512 acc[kTileTokens][4];
        panel_tile_n<kTileTokens>(tokens, panel, pairs, x, acc);
        for (int r = 0; r < tokens; ++r) {
          for (int i = 0; i < 4; ++i) {
            float* total = totals + (t + r) * 64 + i * 16;
            __m512 v = _mm512_load_ps(total);
            if constexpr (kScaled<Kind>) {
              v = _mm512_fmadd_ps(s[i].scale, acc[r][i], v);
              v = _mm512_fmadd_ps(s[i].shift, _mm512_set1_ps(x_sum[r]), v);
            } else {
              v = _mm512_add_ps(v, acc[r][i]);
            }
            _mm512_store_ps(total, v);
          }
        }
      }
    }
    for (int r = 0; r < n; ++r) {
      for (int o = 0; o < 64 && o < outputs; o += 16) {
        const auto mask =
            static_cast<__mmask16>(outputs - o >= 16 ? 0xffffu : (1u << (outputs - o)) - 1);
        _mm512_mask_storeu_ps(y + (begin + r) * y_stride + block * kBlockRows + o, mask,
                              _mm512_load_ps(totals + r * 64 + o));
      }
    }
  }
}

template <PackKind Kind>
void block_of_kind(const RowBlocks& w, int block, const Activations& a, const int* rows, int count,
                   float* y, std::ptrdiff_t y_stride) {
  if (count >= kPanelRows) return many_rows<Kind>(w, block, a, rows, count, y, y_stride);
  const std::uint32_t* x[kPanelRows];
  const float* sums[kPanelRows];
  float* out[kPanelRows];
  for (int i = 0; i < count; ++i) {
    const int row = rows != nullptr ? rows[i] : i;
    x[i] = a.pairs + static_cast<std::ptrdiff_t>(row) * (a.padded / 2);
    sums[i] = a.sums + static_cast<std::ptrdiff_t>(row) * a.groups;
    out[i] = y + i * y_stride + block * kBlockRows;
  }
  switch (count) {
    case 1: return few_rows<Kind, 1>(w, block, x, sums, out);
    case 2: return few_rows<Kind, 2>(w, block, x, sums, out);
    case 3: return few_rows<Kind, 3>(w, block, x, sums, out);
    case 4: return few_rows<Kind, 4>(w, block, x, sums, out);
    default: return;
  }
}

}  // namespace

void linear_block(const RowBlocks& w, int block, const Activations& a, const int* rows, int count,
                  float* y, std::ptrdiff_t y_stride) noexcept {
  if (a.pairs == nullptr || w.kind == PackKind::kF32) {
    return avx512::linear_block(w, block, a, rows, count, y, y_stride);
  }
  switch (w.kind) {
    case PackKind::kQ4: return block_of_kind<PackKind::kQ4>(w, block, a, rows, count, y, y_stride);
    case PackKind::kQ8: return block_of_kind<PackKind::kQ8>(w, block, a, rows, count, y, y_stride);
    default: return block_of_kind<PackKind::kBf16>(w, block, a, rows, count, y, y_stride);
  }
}

}  // namespace lacuna::cpu::avx512bf16
