// SPDX-License-Identifier: Apache-2.0
// The sparse down projection on vdpbf16ps: two rows a dot, the first in the high half, which the
// instruction adds first. Taken for 4-bit codes; the others go the AVX-512 way.
#include <immintrin.h>

#include "ops/simd/pairs_avx512bf16.h"
#include "ops/sparse_down/fetch.h"
#include "ops/sparse_down/sparse_down.h"

namespace lacuna::cpu::avx512bf16 {
namespace {

// Pairs of rows that one sweep over the columns adds: their h stay in registers, and one more sweep
// costs a load and a store of every sum.
constexpr int kSweepPairs = 4;

// What a sweep adds: up to kSweepPairs pairs of one group's live rows. An odd last row is paired
// with a 0 of its own.
struct Sweep {
  const std::uint8_t* row[2 * kSweepPairs];
  std::uint32_t h[kSweepPairs];  // two bf16, the first row's in the high half
  int pairs = 0;
  const std::uint8_t* scales = nullptr;  // of its group
  float h_sum = 0;
  bool first = false, last = false;  // of its group
};

std::uint32_t bits(float f) {
  std::uint32_t u;
  __builtin_memcpy(&u, &f, 4);
  return u;
}

// Goes through the live rows of a token, sweep by sweep.
class Sweeps {
 public:
  Sweeps(const NeuronMajor& w, const LiveRows& live)
      : w_(w), live_(live), group_(next_live_group(live, 0, w.groups)) {
    if (group_ < w_.groups) at_ = live_.group_begin[group_];
  }
  // False when there is none left.
  bool next(Sweep& s) {
    if (group_ >= w_.groups) return false;
    const int end = live_.group_begin[group_ + 1];
    const int rows = end - at_ < 2 * kSweepPairs ? end - at_ : 2 * kSweepPairs;
    s.scales = w_.scales + static_cast<std::size_t>(group_) * w_.scale_row_bytes();
    s.h_sum = live_.sums[group_];
    s.first = at_ == live_.group_begin[group_];
    s.pairs = (rows + 1) / 2;
    for (int i = 0; i < rows; ++i)
      s.row[i] = w_.rows + static_cast<std::size_t>(live_.index[at_ + i]) * w_.row_bytes();
    if (rows % 2 != 0) s.row[rows] = s.row[rows - 1];
    for (int p = 0; p < s.pairs; ++p) {
      const bool both = 2 * p + 1 < rows;
      s.h[p] = (bits(live_.h[at_ + 2 * p]) & 0xffff0000u) |
               (both ? bits(live_.h[at_ + 2 * p + 1]) >> 16 : 0u);
    }
    at_ += rows;
    s.last = at_ == end;
    if (s.last) {
      group_ = next_live_group(live_, group_ + 1, w_.groups);
      if (group_ < w_.groups) at_ = live_.group_begin[group_];
    }
    return true;
  }

 private:
  const NeuronMajor& w_;
  const LiveRows& live_;
  int group_, at_ = 0;
};

// Items 0…3 (low) or 4…7 (high) of two rows' dwords, the first row's above the second's.
__m512i low_halves(__m512i first, __m512i second) {
  return _mm512_mask_blend_epi16(0xaaaaaaaau, second, _mm512_slli_epi32(first, 16));
}
__m512i high_halves(__m512i first, __m512i second) {
  return _mm512_mask_blend_epi16(0xaaaaaaaau, _mm512_srli_epi32(second, 16), first);
}

__m512 finish(const Scales& s, __m512 sum, __m512 h_sum, __m512 total) {
  return _mm512_fmadd_ps(s.shift, h_sum, _mm512_fmadd_ps(s.scale, sum, total));
}

bool fits(const NeuronMajor& w) { return w.kind == PackKind::kQ4 && w.form != ScaleForm::kWide; }

// Of a column block.
std::size_t scale_block(const NeuronMajor& w) {
  return w.form == ScaleForm::kCompact ? kCompactBlock : std::size_t{kColumnBlock} * 4;
}

// Asks for what a sweep reads of a column block, in the second-level cache: the first level's miss
// queue is too short for scattered rows. Inlined by force: GCC takes a function that only
// prefetches for one without effects and drops the call.
[[gnu::always_inline]] inline void fetch(const std::uint8_t* const (&row)[2 * kSweepPairs],
                                         int rows, const std::uint8_t* scales, std::size_t bytes,
                                         int column) {
  for (int i = 0; i < rows; ++i)
    __builtin_prefetch(row[i] + static_cast<std::size_t>(column) / 2, 0, 2);
  if (scales == nullptr) return;
  for (std::size_t at = 0; at < bytes; at += 64)
    __builtin_prefetch(scales + static_cast<std::size_t>(column / kColumnBlock) * bytes + at, 0, 2);
}

// Adds one sweep to outputs [begin, end) while the next one's memory is on its way. acc [end −
// begin] holds the group's sums between its sweeps.
template <ScaleForm Form, int Pairs>
void sweep(const Sweep& s, const Sweep& next, int begin, int end, float* acc, float* y) {
  constexpr std::size_t kScales =
      Form == ScaleForm::kCompact ? kCompactBlock : std::size_t{kColumnBlock} * 4;
  __m512bh h[Pairs];
  for (int p = 0; p < Pairs; ++p) h[p] = bf(_mm512_set1_epi32(static_cast<int>(s.h[p])));
  const __m512 h_sum = _mm512_set1_ps(s.h_sum);
  const std::uint8_t* next_scales = next.first ? next.scales : nullptr;
  const int next_rows = 2 * next.pairs;
  for (int column = begin; column < end; column += kColumnBlock, acc += kColumnBlock) {
    fetch(next.row, next_rows, next_scales, kScales, column);
    __m512 sum[8];
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i)
      sum[i] = s.first ? _mm512_setzero_ps() : _mm512_loadu_ps(acc + i * 16);
#pragma GCC unroll 4
    for (int p = 0; p < Pairs; ++p) {
      const __m512i first = _mm512_loadu_si512(s.row[2 * p] + column / 2);
      const __m512i second = _mm512_loadu_si512(s.row[2 * p + 1] + column / 2);
      const __m512i low = low_halves(first, second);
      const __m512i high = high_halves(first, second);
      sum[0] = _mm512_dpbf16_ps(sum[0], bf(code4_pair<0>(low)), h[p]);
      sum[1] = _mm512_dpbf16_ps(sum[1], bf(code4_pair<1>(low)), h[p]);
      sum[2] = _mm512_dpbf16_ps(sum[2], bf(code4_pair<2>(low)), h[p]);
      sum[3] = _mm512_dpbf16_ps(sum[3], bf(code4_pair<3>(low)), h[p]);
      sum[4] = _mm512_dpbf16_ps(sum[4], bf(code4_pair<0>(high)), h[p]);
      sum[5] = _mm512_dpbf16_ps(sum[5], bf(code4_pair<1>(high)), h[p]);
      sum[6] = _mm512_dpbf16_ps(sum[6], bf(code4_pair<2>(high)), h[p]);
      sum[7] = _mm512_dpbf16_ps(sum[7], bf(code4_pair<3>(high)), h[p]);
    }
    if (!s.last) {
#pragma GCC unroll 8
      for (int i = 0; i < 8; ++i) _mm512_storeu_ps(acc + i * 16, sum[i]);
      continue;
    }
    const std::uint8_t* scales =
        s.scales + static_cast<std::size_t>(column / kColumnBlock) * kScales;
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
      const int d = column + i * 16;
      const Scales v = load_scales<16>(scales, Form, i, 0);
      _mm512_storeu_ps(y + d, finish(v, sum[i], h_sum, _mm512_loadu_ps(y + d)));
    }
  }
}

// Outputs whose sums between sweeps a call holds on its stack.
constexpr int kBandOutputs = 4096;

template <ScaleForm Form>
void down_band(const NeuronMajor& w, const LiveRows& live, int begin, int end, float* y) {
  using Run = void(const Sweep&, const Sweep&, int, int, float*, float*);
  constexpr Run* kSweeps[] = {sweep<Form, 1>, sweep<Form, 2>, sweep<Form, 3>, sweep<Form, 4>};
  alignas(64) float acc[kBandOutputs];
  for (int d = begin; d < end; d += 16) _mm512_storeu_ps(y + d, _mm512_setzero_ps());
  Sweeps sweeps(w, live);
  Sweep now, next;
  if (!sweeps.next(now)) return;
  for (int column = begin; column < end; column += kColumnBlock)
    fetch(now.row, 2 * now.pairs, now.scales, scale_block(w), column);
  for (bool more = true; more; now = next) {
    more = sweeps.next(next);
    if (!more) next.pairs = 0, next.first = false;
    kSweeps[now.pairs - 1](now, next, begin, end, acc, y);
  }
}

// Every row, for the half of a column block that `High` names and a few tokens.
template <bool High, int Tokens>
void dense_half(const NeuronMajor& w, int column, const std::uint32_t* const* h,
                const float* const* sums, float* y) {
  __m512 total[Tokens][4];
  for (auto& token : total) {
    for (auto& v : token) v = _mm512_setzero_ps();
  }
  const std::size_t row_bytes = w.row_bytes();
  const std::uint8_t* row = w.rows + static_cast<std::size_t>(column) / 2;
  for (int g = 0; g < w.groups; ++g) {
    __m512 acc[Tokens][4];
    for (auto& token : acc) {
      for (auto& v : token) v = _mm512_setzero_ps();
    }
    for (int p = g * w.group / 2; p < (g + 1) * w.group / 2; ++p, row += 2 * row_bytes) {
      const __m512i first = _mm512_loadu_si512(row);
      const __m512i second = _mm512_loadu_si512(row + row_bytes);
      const __m512i v = High ? high_halves(first, second) : low_halves(first, second);
      const __m512bh code[4] = {bf(code4_pair<0>(v)), bf(code4_pair<1>(v)), bf(code4_pair<2>(v)),
                                bf(code4_pair<3>(v))};
#pragma GCC unroll 4
      for (int t = 0; t < Tokens; ++t) {
        const __m512bh hv = bf(_mm512_set1_epi32(static_cast<int>(h[t][p])));
#pragma GCC unroll 4
        for (int k = 0; k < 4; ++k) acc[t][k] = _mm512_dpbf16_ps(acc[t][k], code[k], hv);
      }
    }
    for (int k = 0; k < 4; ++k) {
      const std::uint8_t* scales = w.scales + static_cast<std::size_t>(g) * w.scale_row_bytes() +
                                   static_cast<std::size_t>(column / kColumnBlock) * scale_block(w);
      const Scales s = load_scales<16>(scales, w.form, (High ? 4 : 0) + k, 0);
      for (int t = 0; t < Tokens; ++t)
        total[t][k] = finish(s, acc[t][k], _mm512_set1_ps(sums[t][g]), total[t][k]);
    }
  }
  for (int t = 0; t < Tokens; ++t) {
    for (int k = 0; k < 4; ++k)
      _mm512_storeu_ps(y + t * kColumnBlock + (High ? 64 : 0) + k * 16, total[t][k]);
  }
}

constexpr int kTokenTile = 4;

template <int Tokens>
void dense_tile(int count, const NeuronMajor& w, int column, const std::uint32_t* const* h,
                const float* const* sums, float* y) {
  if constexpr (Tokens > 0) {
    if (count < Tokens) return dense_tile<Tokens - 1>(count, w, column, h, sums, y);
    dense_half<false, Tokens>(w, column, h, sums, y);
    dense_half<true, Tokens>(w, column, h, sums, y);
  }
}

}  // namespace

void sparse_down(const NeuronMajor& w, const LiveRows& live, int begin, int end,
                 float* y) noexcept {
  if (!fits(w)) return avx512::sparse_down(w, live, begin, end, y);
  const auto run =
      w.form == ScaleForm::kCompact ? down_band<ScaleForm::kCompact> : down_band<ScaleForm::kPairs>;
  for (; begin < end; begin += kBandOutputs)
    run(w, live, begin, begin + kBandOutputs < end ? begin + kBandOutputs : end, y);
}

void dense_down(const NeuronMajor& w, const Activations& a, const int* rows, int count, int column,
                float* y) noexcept {
  if (!fits(w) || a.pairs == nullptr) return avx512::dense_down(w, a, rows, count, column, y);
  for (int t = 0; t < count; t += kTokenTile) {
    const int n = count - t < kTokenTile ? count - t : kTokenTile;
    const std::uint32_t* h[kTokenTile];
    const float* sums[kTokenTile];
    for (int i = 0; i < n; ++i) {
      h[i] = a.pairs + static_cast<std::ptrdiff_t>(rows[t + i]) * (a.padded / 2);
      sums[i] = a.sums + static_cast<std::ptrdiff_t>(rows[t + i]) * a.groups;
    }
    dense_tile<kTokenTile>(n, w, column, h, sums, y + t * kColumnBlock);
  }
}

}  // namespace lacuna::cpu::avx512bf16
