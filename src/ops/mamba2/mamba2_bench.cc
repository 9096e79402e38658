// SPDX-License-Identifier: Apache-2.0
// One layer's convolution and scan of the full-size model, for one token and for a prompt.
#include "bench/support.h"
#include "tests/support/random_weights.h"

int main(int argc, char** argv) {
  using namespace lacuna;
  bench::Bench bench(argc, argv);
  constexpr int kHeads = 64, kHeadDim = 64, kGroups = 8, kStates = 128;
  constexpr int kInner = kHeads * kHeadDim, kChannels = kInner + 2 * kGroups * kStates;
  Random random(1);
  const std::size_t layer = std::size_t{kHeads} * kHeadDim * kStates;
  std::vector<std::vector<float>> states(
      std::max<std::size_t>(1, bench.working_set() / (layer * 4)), random.vector(layer));
  for (const int tokens : {1, 3, 64, 512}) {
    const std::vector<float> x = random.vector(static_cast<std::size_t>(tokens) * kChannels),
                             history = random.vector(3 * kChannels),
                             weight = random.vector(4 * kChannels), bias = random.vector(kChannels),
                             dt(static_cast<std::size_t>(tokens) * kHeads, 0.1f),
                             decay(static_cast<std::size_t>(tokens) * kHeads, 0.9f);
    std::vector<float> conv(x.size()), y(static_cast<std::size_t>(tokens) * kInner);
    bench.row(fmt::format("convolution, {} tokens", tokens), 8.0 * tokens * kChannels,
              8.0 * tokens * kChannels, [&](int) {
                const ConvArgs a{x.data(),
                                 kChannels,
                                 history.data(),
                                 kChannels,
                                 weight.data(),
                                 bias.data(),
                                 conv.data(),
                                 kChannels,
                                 tokens,
                                 kChannels,
                                 4};
                bench.pool().run(kChannels / 256, [&](int task, int) {
                  bench.kernels().conv_silu(a, task * 256, task * 256 + 256);
                });
              });
    bench.row(fmt::format("scan, {} tokens", tokens), 8.0 * static_cast<double>(layer),
              5.0 * tokens * static_cast<double>(layer), [&](int round) {
                std::vector<float>& state = states[static_cast<std::size_t>(round) % states.size()];
                bench.pool().run(kHeads, [&](int h, int) {
                  ScanArgs a;
                  a.state = a.out = state.data() + std::ptrdiff_t{h} * kHeadDim * kStates;
                  a.x = conv.data() + h * kHeadDim;
                  a.b = conv.data() + kInner + h / (kHeads / kGroups) * kStates;
                  a.c = a.b + kGroups * kStates;
                  a.stride = kChannels;
                  a.dt = dt.data() + h;
                  a.decay = decay.data() + h;
                  a.heads = kHeads;
                  a.d = 1.0f;
                  a.y = y.data() + h * kHeadDim;
                  a.y_stride = kInner;
                  a.tokens = tokens;
                  a.n = kStates;
                  a.p = kHeadDim;
                  bench.kernels().ssm_scan(a);
                });
              });
  }
}
