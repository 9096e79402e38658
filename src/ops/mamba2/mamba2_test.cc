// SPDX-License-Identifier: Apache-2.0
#include "ops/mamba2/mamba2.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/kernels.h"
#include "tests/support/random_weights.h"

namespace lacuna {
namespace {

struct Conv {
  Conv(int tokens, int channels, int taps)
      : x(random.vector(static_cast<std::size_t>(tokens) * (channels + 5))),
        history(random.vector(static_cast<std::size_t>(taps - 1) * channels)),
        weight(random.vector(static_cast<std::size_t>(taps) * channels)),
        bias(random.vector(channels)),
        args{x.data(), channels + 5, history.data(), channels, weight.data(), bias.data(),
             nullptr,  channels + 1, tokens,         channels, taps} {}
  std::vector<float> run(ConvSilu* kernel) {
    std::vector<float> y(static_cast<std::size_t>(args.tokens) * args.y_stride);
    args.y = y.data();
    const int middle = args.channels / 2;
    kernel(args, 0, middle);
    kernel(args, middle, args.channels);
    return y;
  }
  Random random{71};
  std::vector<float> x, history, weight, bias;
  ConvArgs args;
};

TEST(Conv, EveryInstructionSetGivesTheDefinitionsBits) {
  for_each_kernel([](const Kernels& k) {
    for (const int channels : {3, 16, 20, 256, 1024}) {
      for (const int tokens : {1, 2, 3, 4, 9}) {
        SCOPED_TRACE(std::to_string(channels) + " channels, " + std::to_string(tokens) + " tokens");
        for (const int taps : {2, 3, 4}) {
          Conv conv(tokens, channels, taps);
          ASSERT_TRUE(same_bits(conv.run(cpu::scalar::conv_silu), conv.run(k.conv_silu)))
              << taps << " taps";
        }
      }
    }
  });
}

struct Scan {
  Scan(int tokens_, int n_, int p_)
      : tokens(tokens_),
        n(n_),
        p(p_),
        width(p + 2 * n),
        rows(random.vector(static_cast<std::size_t>(tokens) * width)),
        dt(random.vector(tokens)),
        decay(random.vector(tokens)),
        start(random.vector(static_cast<std::size_t>(n) * p)) {
    for (auto& v : dt) v = std::fabs(v);
    for (auto& v : decay) v = std::fabs(v);
  }
  ScanArgs args(int t, int count, float* y) const {
    const float* at = rows.data() + static_cast<std::ptrdiff_t>(t) * width;
    ScanArgs a;
    a.x = at;
    a.b = at + p;
    a.c = at + p + n;
    a.stride = width;
    a.dt = dt.data() + t;
    a.decay = decay.data() + t;
    a.heads = 1;
    a.d = 0.7f;
    a.y = y;
    a.y_stride = p;
    a.tokens = count;
    a.n = n;
    a.p = p;
    return a;
  }
  // Runs in pieces of at most `piece` tokens; returns outputs, then the final state.
  std::vector<float> run(SsmScan* kernel, int piece) {
    std::vector<float> state = start;
    std::vector<float> y(static_cast<std::size_t>(tokens) * p);
    for (int t = 0; t < tokens; t += piece) {
      ScanArgs a =
          args(t, std::min(piece, tokens - t), y.data() + static_cast<std::ptrdiff_t>(t) * p);
      a.state = a.out = state.data();
      kernel(a);
    }
    y.insert(y.end(), state.begin(), state.end());
    return y;
  }
  Random random{73};
  int tokens, n, p, width;
  std::vector<float> rows, dt, decay, start;
};

TEST(Scan, EveryInstructionSetAndEveryChunkingGiveTheDefinitionsBits) {
  for_each_kernel([](const Kernels& k) {
    for (const auto& [n, p] : {std::pair{3, 2}, {16, 16}, {128, 64}, {128, 80}}) {
      SCOPED_TRACE(std::to_string(n) + " states of " + std::to_string(p));
      Scan scan(9, n, p);
      const std::vector<float> want = scan.run(cpu::scalar::ssm_scan, 9);
      for (const int piece : {9, 1, 4})
        ASSERT_TRUE(same_bits(want, scan.run(k.ssm_scan, piece))) << "pieces of " << piece;
    }
  });
}

// What a verify of drafts does: rows taken in without outputs, rows that are looked at and leave
// nothing behind, and a state that goes elsewhere.
TEST(Scan, OutputsAndTheStateCanBeLeftOut) {
  for_each_kernel([](const Kernels& k) {
    for (const auto& [n, p] : {std::pair{3, 2}, {128, 64}, {128, 80}}) {
      Scan scan(11, n, p);
      const std::vector<float> whole = scan.run(cpu::scalar::ssm_scan, 11);
      const auto outputs = [&](int first, int count) {
        return std::span(whole).subspan(static_cast<std::size_t>(first) * p,
                                        static_cast<std::size_t>(count) * p);
      };
      for (const int silent : {1, 3, 5}) {
        std::vector<float> state = scan.start;
        std::vector<float> y(static_cast<std::size_t>(6 - silent) * p);
        ScanArgs a = scan.args(0, 6, y.data());
        a.state = a.out = state.data();
        a.first_y = silent;
        k.ssm_scan(a);
        ASSERT_TRUE(same_bits(outputs(silent, 6 - silent), y)) << silent << " silent rows";
        for (const int tail : {1, 2, 3, 4, 5}) {
          const std::vector<float> before = state;
          std::vector<float> elsewhere(state.size());
          y.assign(static_cast<std::size_t>(tail) * p, 0.0f);
          ScanArgs b = scan.args(6, tail, y.data());
          b.state = state.data();
          b.out = tail <= kScanTile ? nullptr : elsewhere.data();
          k.ssm_scan(b);
          ASSERT_TRUE(same_bits(outputs(6, tail), y)) << tail << " rows that leave nothing";
          ASSERT_TRUE(same_bits(before, state));
          if (tail == 5) {
            ASSERT_TRUE(same_bits(std::span(whole).last(state.size()), elsewhere));
          }
        }
      }
    }
  });
}

// The recurrence in its quadratic form, in float64: another road to the same place.
TEST(ScanBound, DefinitionIsCloseToTheQuadraticForm) {
  Scan scan(12, 16, 8);
  std::fill(scan.start.begin(), scan.start.end(), 0.0f);
  const std::vector<float> got = scan.run(cpu::scalar::ssm_scan, 12);
  for (int t = 0; t < scan.tokens; ++t) {
    const float* row = scan.rows.data() + static_cast<std::ptrdiff_t>(t) * scan.width;
    for (int p = 0; p < scan.p; ++p) {
      double want = 0.7f * static_cast<double>(row[p]);
      double sizes = std::fabs(want);
      double decay = 1.0;
      for (int s = t; s >= 0; --s) {
        const float* past = scan.rows.data() + static_cast<std::ptrdiff_t>(s) * scan.width;
        for (int i = 0; i < scan.n; ++i) {
          const double term =
              decay * scan.dt[s] * past[p] * past[scan.p + i] * row[scan.p + scan.n + i];
          want += term;
          sizes += std::fabs(term);
        }
        decay *= scan.decay[s];
      }
      ASSERT_NEAR(got[static_cast<std::size_t>(t) * scan.p + p], want,
                  (scan.n + 2 * scan.tokens + 4) * 0x1p-24 * sizes);
    }
  }
}

}  // namespace
}  // namespace lacuna
