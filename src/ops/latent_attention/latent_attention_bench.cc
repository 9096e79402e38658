// SPDX-License-Identifier: Apache-2.0
// One layer's attention of GLM-5.3 (64 heads over rows of 512 + 64): a query for each thread, each
// with 2,048 picks of its own from a cache of some depth, as in a sparse prefill; and all rows of a
// short context, listed and masked.
#include "bench/support.h"
#include "tests/support/random_weights.h"

namespace {

using namespace lacuna;

constexpr int kHeads = 64, kLatent = 512, kRope = 64, kDims = kLatent + kRope;

struct Queries {
  Queries(int threads, int keys) : floats(latent_scratch_floats(kHeads, kLatent, kRope, keys)) {
    Random random(3);
    for (int i = 0; i < threads; ++i) {
      scratch.emplace_back(floats * sizeof(float));
      z.emplace_back(static_cast<std::size_t>(kHeads) * kLatent);
      q.push_back(random.vector(static_cast<std::size_t>(kHeads) * kDims));
      for (float& v : q.back()) v = bf16_to_f32(f32_to_bf16(v));
    }
  }
  LatentQuery query(int i) const {
    return {q[static_cast<std::size_t>(i)].data(), kHeads, 0.0625f};
  }
  float* room(int i) {
    return reinterpret_cast<float*>(scratch[static_cast<std::size_t>(i)].data());
  }

  std::size_t floats;
  std::vector<AlignedBytes> scratch;
  std::vector<std::vector<float>> z, q;
};

// `n` of `depth` rows, rising, anywhere.
std::vector<std::int32_t> some(Random& random, int n, int depth) {
  std::vector<std::int32_t> picks;
  for (int j = 0; j < depth; ++j) {
    if (random.below(depth - j) < n - static_cast<int>(picks.size())) picks.push_back(j);
  }
  return picks;
}

double flops(double keys) { return 2 * kHeads * (kDims + kLatent) * keys; }

}  // namespace

int main(int argc, char** argv) {
  bench::Bench bench(argc, argv);
  const int threads = bench.pool().size();
  constexpr int kPicks = 2048, kLists = 16;
  Random random(1);
  Queries queries(threads, kPicks);
  for (const bool bf16 : {true, false}) {
    const int row_bytes = kDims * (bf16 ? 2 : 4);
    const char* type = bf16 ? "bf16" : "f32";
    for (const int depth : {16384, 131072}) {
      AlignedBytes cache(static_cast<std::size_t>(depth) * row_bytes);
      std::fill_n(cache.data(), static_cast<std::size_t>(depth) * row_bytes, std::uint8_t{0x3c});
      const LatentRows rows{cache.data(), bf16, kLatent, kRope};
      std::vector<std::vector<std::int32_t>> lists;
      for (int i = 0; i < kLists; ++i) lists.push_back(some(random, kPicks, depth));
      bench.row(fmt::format("{} of {} rows, {}", kPicks, depth, type),
                static_cast<double>(threads) * kPicks * row_bytes, threads * flops(kPicks),
                [&](int round) {
                  bench.pool().run(threads, [&](int task, int thread) {
                    const auto& list =
                        lists[static_cast<std::size_t>(round * threads + task) % kLists];
                    bench.kernels().latent_picked(rows, list.data(), kPicks, queries.query(task),
                                                  queries.room(thread),
                                                  queries.z[static_cast<std::size_t>(task)].data());
                  });
                });
      for (const int keys : {512, kPicks}) {
        if (depth > 16384) continue;
        bench.row(fmt::format("all {} rows, {}", keys, type),
                  static_cast<double>(threads) * keys * row_bytes, threads * flops(keys), [&](int) {
                    bench.pool().run(threads, [&](int task, int thread) {
                      bench.kernels().latent_picked(
                          rows, nullptr, keys, queries.query(task), queries.room(thread),
                          queries.z[static_cast<std::size_t>(task)].data());
                    });
                  });
      }
      std::vector<std::uint64_t> mask(static_cast<std::size_t>(depth) / 64);
      for (const int j : lists[0])
        mask[static_cast<std::size_t>(j) / 64] |= std::uint64_t{1} << (j % 64);
      if (depth > 16384) continue;
      bench.row(fmt::format("{} of {} rows by mask, {}", kPicks, depth, type),
                static_cast<double>(threads) * depth * row_bytes, threads * flops(depth), [&](int) {
                  bench.pool().run(threads, [&](int task, int thread) {
                    bench.kernels().latent_masked(rows, mask.data(), depth, queries.query(task),
                                                  queries.room(thread),
                                                  queries.z[static_cast<std::size_t>(task)].data());
                  });
                });
    }
  }
}
