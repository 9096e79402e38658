// SPDX-License-Identifier: Apache-2.0
// The indexer of GLM-5.3 (32 heads of 128) over one layer's keys: scores of a decode step and of
// prefill queries, blocks of 4,096 keys shared out to the threads; and the best 2,048 of such
// scores.
#include "bench/support.h"
#include "ops/index_topk/top_k.h"
#include "tests/support/random_weights.h"

int main(int argc, char** argv) {
  using namespace lacuna;
  bench::Bench bench(argc, argv);
  constexpr int kHeads = 32, kDim = 128, kBlock = 4096, kPicks = 2048;
  Random random(1);
  for (const bool bf16 : {true, false}) {
    const int key_bytes = kDim * (bf16 ? 2 : 4);
    for (const int depth : {16384, 131072}) {
      AlignedBytes keys(static_cast<std::size_t>(depth) * key_bytes);
      std::fill_n(keys.data(), static_cast<std::size_t>(depth) * key_bytes, std::uint8_t{0x3c});
      for (const int queries : {1, 4, 16}) {
        if (queries > 4 && depth > 16384) continue;
        const auto q = random.vector(static_cast<std::size_t>(queries) * kHeads * kDim);
        const auto w = random.vector(static_cast<std::size_t>(queries) * kHeads);
        std::vector<float> scores(static_cast<std::size_t>(queries) * depth);
        bench.row(fmt::format("{} queries, {} keys, {}", queries, depth, bf16 ? "bf16" : "f32"),
                  static_cast<double>(depth) * key_bytes, 2.0 * kHeads * kDim * depth * queries,
                  [&](int) {
                    bench.pool().run(depth / kBlock, [&](int block, int) {
                      const std::ptrdiff_t first = static_cast<std::ptrdiff_t>(block) * kBlock;
                      bench.kernels().index_scores({keys.data() + first * key_bytes, bf16, kDim},
                                                   kBlock,
                                                   {q.data(), w.data(), queries, kHeads, 0.0156f},
                                                   scores.data() + first, depth);
                    });
                  });
      }
    }
  }
  for (const int depth : {16384, 131072}) {
    const std::vector<float> scores = random.vector(depth);
    TopK top(kPicks, bench.kernels().keep_above);
    std::vector<std::int32_t> picks(kPicks);
    bench.row(fmt::format("best {} of {}, one thread", kPicks, depth), 4.0 * depth, 0, [&](int) {
      for (int at = 0; at < depth; at += kBlock) top.push(scores.data() + at, kBlock, at);
      top.finish(picks.data());
    });
  }
}
