// SPDX-License-Identifier: Apache-2.0
// Projections of the full-size model's shapes: one row, a verify, a prompt.
#include "bench/support.h"
#include "tests/support/random_weights.h"

int main(int argc, char** argv) {
  using namespace lacuna;
  bench::Bench bench(argc, argv);
  struct Shape {
    const char* name;
    int out, in;
  };
  for (const Shape& s : {Shape{"mamba in", 10304, 2688}, Shape{"mamba out", 2688, 4096},
                         Shape{"expert up", 1856, 2688}}) {
    const RandomMatrix source({s.out, s.in, 4, 64, Dtype::kBf16}, 1);
    const std::size_t bytes = plan_row_blocks(source.source, true).bytes();
    std::vector<std::unique_ptr<PackedRows>> weights;
    for (std::size_t sum = 0; sum == 0 || sum < bench.working_set(); sum += bytes)
      weights.push_back(std::make_unique<PackedRows>(source.source, true));
    const RowBlocks& shape = weights[0]->w;
    for (const bool bf16 : {true, false}) {
      for (const int rows : {1, 2, 3, 4, 24, 96, 512}) {
        Random random(2);
        std::vector<float> x(static_cast<std::size_t>(rows) * s.in),
            sums(static_cast<std::size_t>(rows) * shape.groups);
        std::vector<std::uint32_t> pairs(x.size() / 2);
        for (int r = 0; r < rows; ++r) {
          const std::vector<float> raw = random.vector(s.in);
          const auto at = static_cast<std::ptrdiff_t>(r) * s.in;
          bench.kernels().prepare_activations(
              raw.data(), s.in, s.in, 64, bf16, x.data() + at, pairs.data() + at / 2,
              sums.data() + static_cast<std::ptrdiff_t>(r) * shape.groups);
        }
        const bool paired = bf16 && bench.kernels().isa == Isa::kAvx512Bf16;
        const Activations a{
            rows, s.in, 64, shape.groups, x.data(), paired ? pairs.data() : nullptr, sums.data()};
        std::vector<float> y(static_cast<std::size_t>(rows) * s.out);
        bench.row(
            fmt::format("{} [{}, {}] {} rows {}", s.name, s.out, s.in, rows, bf16 ? "bf16" : "f32"),
            static_cast<double>(bytes), 2.0 * rows * s.out * s.in, [&](int round) {
              const RowBlocks& w = weights[round % weights.size()]->w;
              const int tasks = std::min(w.blocks(), bench.pool().size() * 4);
              bench.pool().run(tasks, [&](int task, int) {
                for (int b = w.blocks() * task / tasks; b < w.blocks() * (task + 1) / tasks; ++b) {
                  bench.kernels().linear_block(w, b, a, nullptr, rows, y.data(), s.out);
                }
              });
            });
      }
    }
  }
}
