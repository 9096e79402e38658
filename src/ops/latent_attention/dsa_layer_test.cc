// SPDX-License-Identifier: Apache-2.0
// A whole sparse-attention layer of eight tokens (rope, indexer, picks, attention over latent rows)
// put together from the definitions, against numbers computed in float64 by another program. Sizes
// and weights are formulas, so nothing is stored but the results.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "ops/index_topk/top_k.h"
#include "ops/latent_attention/latent_attention.h"
#include "ops/rms_norm/rms_norm.h"
#include "ops/rope/rope.h"
#include "tests/support/kernels.h"

namespace lacuna {
namespace {

using Floats = std::vector<float>;

constexpr int kWidth = 16, kQueryLatent = 12, kLatent = 8, kHeads = 2, kNope = 6, kRope = 4,
              kValue = 6, kIndexHeads = 3, kIndexDim = 8, kTokens = 8, kQueryDim = kNope + kRope,
              kRow = kLatent + kRope;

std::size_t at(int i) { return static_cast<std::size_t>(i); }

struct Matrix {
  Matrix(int seed, int out, int in) : rows(out), columns(in) {
    for (int i = 0; i < out; ++i) {
      for (int j = 0; j < in; ++j)
        w.push_back(1.5 / std::sqrt(in) *
                    std::sin(0.1 + seed + 0.37 * i + 0.91 * j + 0.13 * i * j));
    }
  }
  double operator()(int i, int j) const { return w[at(i * columns + j)]; }
  Floats times(const float* x) const {
    Floats y;
    for (int i = 0; i < rows; ++i) {
      double sum = 0;
      for (int j = 0; j < columns; ++j) sum += (*this)(i, j) * x[j];
      y.push_back(static_cast<float>(sum));
    }
    return y;
  }
  int rows, columns;
  std::vector<double> w;
};

Floats rms_norm(const float* x, int n, int seed) {
  Floats w, y(at(n));
  for (int i = 0; i < n; ++i) w.push_back(static_cast<float>(1 + 0.1 * std::sin(seed + i)));
  cpu::scalar::rms_norm(x, w.data(), n, 1e-5f, y.data());
  return y;
}

Floats layer_norm(const Floats& x) {
  double mean = 0, square = 0;
  for (const float v : x) mean += v / kIndexDim;
  for (const float v : x) square += (v - mean) * (v - mean) / kIndexDim;
  Floats y;
  for (int i = 0; i < kIndexDim; ++i) {
    const double unit = (x[at(i)] - mean) / std::sqrt(square + 1e-6);
    y.push_back(static_cast<float>(unit * (1 + 0.1 * std::sin(3 + i)) + 0.05 * std::cos(i)));
  }
  return y;
}

void rotate(float* x, int vectors, int stride, int position, bool interleaved) {
  float cos[kRope / 2], sin[kRope / 2];
  for (int i = 0; i < kRope / 2; ++i) {
    const double angle = position * std::pow(10000.0, -2.0 * i / kRope);
    cos[i] = static_cast<float>(std::cos(angle));
    sin[i] = static_cast<float>(std::sin(angle));
  }
  cpu::scalar::rope({cos, sin, kRope / 2, interleaved}, x, vectors, stride);
}

struct Layer {
  explicit Layer(bool index_interleaved) {
    index_keys.assign(16 * kIndexDim, 0.0f);
    for (int t = 0; t < kTokens; ++t) append(t, index_interleaved);
  }

  // Projects token t and puts it into the caches.
  void append(int t, bool index_interleaved) {
    Floats x;
    for (int i = 0; i < kWidth; ++i)
      x.push_back(static_cast<float>(std::cos(0.3 + 0.7 * t + 1.1 * i + 0.05 * t * i)));
    const Floats qr = rms_norm(q_a.times(x.data()).data(), kQueryLatent, 1);
    Floats q = q_b.times(qr.data());
    rotate(q.data() + kNope, kHeads, kQueryDim, t, true);
    for (int h = 0; h < kHeads; ++h) {
      for (int j = 0; j < kLatent; ++j) {
        double sum = 0;
        for (int i = 0; i < kNope; ++i)
          sum += kv_b(h * (kNope + kValue) + i, j) * q[at(h * kQueryDim + i)];
        absorbed.push_back(static_cast<float>(sum));
      }
      for (int i = 0; i < kRope; ++i) absorbed.push_back(q[at(h * kQueryDim + kNope + i)]);
    }

    Floats kva = kv_a.times(x.data());
    rotate(kva.data() + kLatent, 1, kRope, t, true);
    const Floats c = rms_norm(kva.data(), kLatent, 2);
    rows.insert(rows.end(), c.begin(), c.end());
    rows.insert(rows.end(), kva.begin() + kLatent, kva.end());

    Floats iq = wq_b.times(qr.data()), ik = layer_norm(wk.times(x.data()));
    rotate(iq.data(), kIndexHeads, kIndexDim, t, index_interleaved);
    rotate(ik.data(), 1, kIndexDim, t, index_interleaved);
    index_q.insert(index_q.end(), iq.begin(), iq.end());
    for (int d = 0; d < kIndexDim; ++d)
      index_keys[at(static_cast<int>(key_index(false, kIndexDim, t, d)))] = ik[at(d)];
    const Floats w = weights_proj.times(x.data());
    index_w.insert(index_w.end(), w.begin(), w.end());
  }

  Floats scores(int t) const {
    Floats s(kTokens);
    const float scale = 1.0f / std::sqrt(static_cast<float>(kIndexHeads * kIndexDim));
    cpu::scalar::index_scores({index_keys.data(), false, kIndexDim}, kTokens,
                              {index_q.data() + t * kIndexHeads * kIndexDim,
                               index_w.data() + t * kIndexHeads, 1, kIndexHeads, scale},
                              s.data(), kTokens);
    return s;
  }

  std::vector<std::int32_t> picks(int t, int block) const {
    const Floats s = scores(t);
    TopK top(3, cpu::scalar::keep_above);
    for (int j = 0; j <= t; j += block) top.push(s.data() + j, std::min(block, t + 1 - j), j);
    std::vector<std::int32_t> list(3);
    list.resize(at(top.finish(list.data())));
    return list;
  }

  // Of all heads before the output projection.
  Floats output(int t, const std::vector<std::int32_t>& list) const {
    Floats scratch(latent_scratch_floats(kHeads, kLatent, kRope, kTokens)), z(kHeads * kLatent),
        out;
    cpu::scalar::latent_picked(
        {rows.data(), false, kLatent, kRope}, list.data(), static_cast<int>(list.size()),
        {absorbed.data() + t * kHeads * kRow, kHeads, 1.0f / std::sqrt(10.0f)}, scratch.data(),
        z.data());
    for (int h = 0; h < kHeads; ++h) {
      for (int i = 0; i < kValue; ++i) {
        double sum = 0;
        for (int j = 0; j < kLatent; ++j)
          sum += kv_b(h * (kNope + kValue) + kNope + i, j) * z[at(h * kLatent + j)];
        out.push_back(static_cast<float>(sum));
      }
    }
    return out;
  }

  Matrix q_a{1, kQueryLatent, kWidth}, q_b{2, kHeads* kQueryDim, kQueryLatent},
      kv_a{3, kRow, kWidth}, kv_b{4, kHeads*(kNope + kValue), kLatent},
      wq_b{5, kIndexHeads* kIndexDim, kQueryLatent}, wk{6, kIndexDim, kWidth},
      weights_proj{7, kIndexHeads, kWidth};
  Floats absorbed, rows, index_q, index_keys, index_w;
};

void expect_near(const Floats& got, const std::vector<double>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-5) << "at " << i;
}

using Lists = std::vector<std::vector<std::int32_t>>;

TEST(DsaLayer, CachesAreTheRecordedOnes) {
  const Layer layer(true);
  expect_near({layer.rows.end() - kRow, layer.rows.end()},
              {-0.072944, 0.010477, 0.199095, -1.477996, -1.652806, 1.111484, 1.245102, -0.123166,
               0.205948, 0.427894, -0.262655, 0.201493});
  Floats ik;
  for (int d = 0; d < kIndexDim; ++d)
    ik.push_back(layer.index_keys[at(static_cast<int>(key_index(false, kIndexDim, 7, d)))]);
  expect_near(
      ik, {0.005816, -0.164385, -0.555080, 1.229455, 1.876570, -1.013242, -1.344278, -0.017873});
}

TEST(DsaLayer, ScoresAndPicksAreTheRecordedOnesInBothLayouts) {
  const Layer interleaved(true), halves(false);
  expect_near(interleaved.scores(7),
              {0.034137, 0, 0.039029, 0.109614, 0.043156, 0.584594, 0.434556, 0.013458});
  EXPECT_EQ(interleaved.scores(7)[1], 0.0f) << "no head fires for key 1";
  expect_near(halves.scores(7),
              {0.022120, 0, 0.049839, 0.290314, 0.305196, 0.530598, 0.451948, 0.013458});
  const Lists want{{0}, {0, 1}, {0, 1, 2}, {0, 1, 2}, {2, 3, 4}, {0, 2, 5}, {0, 3, 6}, {3, 5, 6}};
  const Lists want_halves{{0},       {0, 1},    {0, 1, 2}, {1, 2, 3},
                          {0, 1, 2}, {0, 1, 2}, {0, 2, 6}, {4, 5, 6}};
  for (int t = 0; t < kTokens; ++t) {
    for (const int block : {2, 3, 8, 4096}) {
      EXPECT_EQ(interleaved.picks(t, block), want[at(t)]) << "token " << t << " block " << block;
      EXPECT_EQ(halves.picks(t, block), want_halves[at(t)]) << "token " << t << " block " << block;
    }
  }
}

TEST(DsaLayer, OutputsAreTheRecordedOnes) {
  const Layer layer(true), halves(false);
  expect_near(layer.output(2, layer.picks(2, 8)),
              {0.416668, -0.737140, -1.495424, -1.486656, -0.843236, -0.086197, 0.174677, 0.060455,
               -0.013496, 0.085995, 0.230609, 0.148217});
  expect_near(layer.output(7, layer.picks(7, 8)),
              {1.838092, 0.934000, -0.518221, -1.465996, -1.335318, -0.444075, 0.150166, 0.047924,
               -0.016932, 0.088751, 0.274908, 0.290140});
  expect_near(layer.output(7, {0, 1, 2, 3, 4, 5, 6, 7}),
              {0.768628, -0.512173, -1.111825, -0.806932, -0.124501, 0.298588, 0.098342, 0.049186,
               0.004405, 0.036337, 0.128034, 0.164925});
  expect_near(halves.output(7, halves.picks(7, 8)),
              {1.924820, 1.007382, -0.500224, -1.506203, -1.395451, -0.478766, 0.167776, 0.039481,
               -0.018443, 0.130446, 0.292338, 0.142815});
}

}  // namespace
}  // namespace lacuna
