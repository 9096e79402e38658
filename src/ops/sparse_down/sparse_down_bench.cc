// SPDX-License-Identifier: Apache-2.0
// The down projections of one layer of the full-size model (6 routed experts and the shared one) by
// share of live neurons, at decode; and of one expert's tokens in prefill. Dense rows stand beside
// sparse ones: the same kernels told to keep the zeros.
#include "bench/support.h"
#include "tests/support/random_weights.h"

namespace {

using namespace lacuna;

struct Lists {
  Lists(const Kernels& k, const NeuronMajor& w, int tokens, double live, bool keep_zeros,
        std::uint64_t seed)
      : index(static_cast<std::size_t>(tokens) * w.in),
        begin(static_cast<std::size_t>(tokens) * (w.groups + 1)),
        h(index.size()),
        sums(static_cast<std::size_t>(tokens) * w.groups) {
    Random random(seed);
    std::vector<float> up(w.in);
    for (int t = 0; t < tokens; ++t) {
      for (auto& v : up)
        v = (random.uniform() + 1) / 2 < live ? std::fabs(random.uniform()) + 0.01f : -1.0f;
      const auto at = static_cast<std::ptrdiff_t>(t);
      k.relu2_live(up.data(), w.in, w.group, true, keep_zeros, index.data() + at * w.in,
                   h.data() + at * w.in, begin.data() + at * (w.groups + 1),
                   sums.data() + at * w.groups);
      rows.push_back({index.data() + at * w.in, h.data() + at * w.in,
                      begin.data() + at * (w.groups + 1), sums.data() + at * w.groups});
      dense.insert(dense.end(), up.begin(), up.end());
    }
  }
  double bytes(const NeuronMajor& w) const {  // of one token
    int groups = 0;
    for (int g = 0; g < w.groups; ++g)
      groups += rows[0].group_begin[g] < rows[0].group_begin[g + 1];
    return static_cast<double>(rows[0].group_begin[w.groups]) * static_cast<double>(w.row_bytes()) +
           groups * static_cast<double>(w.scale_row_bytes());
  }
  std::vector<int> index, begin;
  std::vector<float> h, sums;
  std::vector<float> dense;  // [tokens, in] ReLU² values
  std::vector<LiveRows> rows;
};

constexpr int kWidth = 2688;

void decode(bench::Bench& bench, const std::vector<std::unique_ptr<PackedNeurons>>& experts,
            double live, bool dense) {
  const NeuronMajor& shape = experts[0]->w;
  std::vector<Lists> lists;
  double bytes = 0;
  for (int e = 0; e < 8; ++e) {  // the shared expert counts as two routed ones
    lists.emplace_back(bench.kernels(), shape, 1, live, dense, e);
    bytes += lists.back().bytes(shape);
  }
  std::vector<std::vector<float>> y(8, std::vector<float>(shape.width()));
  bench.row(
      fmt::format("decode, live {:.0f} %{}", live * 100, dense ? ", all rows" : ""), bytes, 0,
      [&](int round) {
        bench.pool().run(8, [&](int e, int) {
          const auto& w = experts[static_cast<std::size_t>(round * 8 + e) % experts.size()]->w;
          bench.kernels().sparse_down_bf16(w, lists[e].rows[0], 0, shape.width(), y[e].data());
        });
      });
}

void prefill(bench::Bench& bench, const std::vector<std::unique_ptr<PackedNeurons>>& experts,
             int tokens, double live, bool dense) {
  const NeuronMajor& shape = experts[0]->w;
  const Lists lists(bench.kernels(), shape, tokens, live, false, 5);
  std::vector<float> x(static_cast<std::size_t>(tokens) * shape.in),
      sums(static_cast<std::size_t>(tokens) * shape.groups);
  std::vector<std::uint32_t> pairs(x.size() / 2);
  std::vector<int> numbers;
  for (int t = 0; t < tokens; ++t) {
    const auto at = static_cast<std::ptrdiff_t>(t);
    bench.kernels().prepare_activations(lists.dense.data() + at * shape.in, shape.in, shape.in,
                                        shape.group, true, x.data() + at * shape.in,
                                        pairs.data() + at * shape.in / 2,
                                        sums.data() + at * shape.groups);
    numbers.push_back(t);
  }
  const bool paired = bench.kernels().isa == Isa::kAvx512Bf16;
  const Activations a{tokens,       shape.in, shape.group,
                      shape.groups, x.data(), paired ? pairs.data() : nullptr,
                      sums.data()};
  const int columns = shape.width() / kColumnBlock;
  std::vector<std::vector<float>> y(
      bench.pool().size(), std::vector<float>(static_cast<std::size_t>(tokens) * shape.width()));
  const std::string name =
      fmt::format("prefill, {} tokens of an expert, {}", tokens,
                  dense ? "all rows" : fmt::format("live {:.0f} %", live * 100));
  // As the engine does it: a band of columns a thread for own rows, a column block for all rows.
  const int tasks = dense ? columns : bench.pool().size();
  bench.row(name, static_cast<double>(shape.bytes()), 2.0 * tokens * shape.in * kWidth,
            [&](int round) {
              const auto& w = experts[static_cast<std::size_t>(round) % experts.size()]->w;
              bench.pool().run(tasks, [&](int task, int thread) {
                const int begin = columns * task / tasks * kColumnBlock;
                const int end = columns * (task + 1) / tasks * kColumnBlock;
                float* out = y[thread].data();
                if (dense) {
                  bench.kernels().dense_down(w, a, numbers.data(), tokens, begin, out);
                  return;
                }
                for (int t = 0; t < tokens; ++t)
                  bench.kernels().sparse_down_bf16(w, lists.rows[t], begin, end, out);
              });
            });
}

}  // namespace

int main(int argc, char** argv) {
  bench::Bench bench(argc, argv);
  const RandomMatrix source({kWidth, 1856, 4, 64, Dtype::kBf16}, 1);
  std::vector<std::unique_ptr<PackedNeurons>> experts;
  const std::size_t bytes = plan_neuron_major(source.source, true).bytes();
  for (std::size_t sum = 0; experts.size() < 8 || sum < bench.working_set(); sum += bytes)
    experts.push_back(std::make_unique<PackedNeurons>(source.source, true));
  for (const double live : {0.03, 0.05, 0.1, 0.2, 0.4, 1.0}) {
    decode(bench, experts, live, false);
    decode(bench, experts, live, true);
  }
  for (const int tokens : {24, 96}) {
    for (const double live : {0.03, 0.05, 0.1, 0.2, 0.4, 1.0}) {
      prefill(bench, experts, tokens, live, false);
    }
    prefill(bench, experts, tokens, 0.05, true);
  }
}
