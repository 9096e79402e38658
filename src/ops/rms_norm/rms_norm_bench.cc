// SPDX-License-Identifier: Apache-2.0
#include "bench/support.h"
#include "tests/support/random_weights.h"

int main(int argc, char** argv) {
  using namespace lacuna;
  bench::Bench bench(argc, argv);
  Random random(1);
  for (const int n : {512, 2688}) {
    const std::vector<float> x = random.vector(n), z = random.vector(n), w = random.vector(n);
    std::vector<float> y(n);
    bench.row(fmt::format("norm of {}, 1000 times", n), 8e3 * n, 4e3 * n, [&](int) {
      for (int i = 0; i < 1000; ++i)
        bench.kernels().rms_norm(x.data(), w.data(), n, 1e-5f, y.data());
    });
    bench.row(fmt::format("gated norm of {}, 1000 times", n), 12e3 * n, 20e3 * n, [&](int) {
      for (int i = 0; i < 1000; ++i)
        bench.kernels().gated_norm(x.data(), z.data(), w.data(), n, 1e-5f, y.data());
    });
  }
}
