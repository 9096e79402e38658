// SPDX-License-Identifier: Apache-2.0
// One layer's attention of the full-size model (32 query heads on 2 kv heads of 128) at decode,
// without the merge of the bands.
#include "bench/support.h"
#include "tests/support/random_weights.h"

int main(int argc, char** argv) {
  using namespace lacuna;
  bench::Bench bench(argc, argv);
  constexpr int kDim = 128, kShare = 16, kKvHeads = 2;
  Random random(1);
  for (const bool bf16 : {true, false}) {
    for (const int keys : {1024, 8192, 32768}) {
      const std::size_t element = bf16 ? 2 : 4;
      const std::size_t bytes = static_cast<std::size_t>(keys) * kDim * element;
      std::vector<std::vector<std::uint8_t>> kv(
          2 * kKvHeads * std::max<std::size_t>(1, bench.working_set() / (4 * bytes)),
          std::vector<std::uint8_t>(bytes, 0x3c));
      const std::vector<float> q = random.vector(std::size_t{kKvHeads} * kShare * kDim);
      bench.row(fmt::format("decode, {} keys {}", keys, bf16 ? "bf16" : "f32"),
                2.0 * kKvHeads * static_cast<double>(bytes), 4.0 * keys * kKvHeads * kShare * kDim,
                [&](int round) {
                  // As the engine does it: all queries take a band together.
                  constexpr int kTiles = kKvHeads * kShare / kAttendRows;
                  bench.pool().run(keys / kBandKeys * kTiles, [&](int task, int) {
                    const int tile = task % kTiles;
                    const std::size_t base = (static_cast<std::size_t>(round) * 2 * kKvHeads +
                                              static_cast<std::size_t>(tile / 2) * 2) %
                                             kv.size();
                    const std::size_t at =
                        static_cast<std::size_t>(task / kTiles) * kBandKeys * kDim * element;
                    const float* rows[kAttendRows];
                    int valid[kAttendRows];
                    float m[kAttendRows], l[kAttendRows], band[kAttendRows * kDim];
                    for (int r = 0; r < kAttendRows; ++r) {
                      rows[r] = q.data() + (tile * kAttendRows + r) * kDim;
                      valid[r] = kBandKeys;
                    }
                    bench.kernels().attend_band(
                        {kv[base].data() + at, kv[base + 1].data() + at, bf16, kDim}, rows, valid,
                        kAttendRows, 0.09f, m, l, band);
                  });
                });
    }
  }
}
