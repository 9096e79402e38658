// SPDX-License-Identifier: Apache-2.0
// The forward pass on a checkpoint of unusual small sizes, one layer of each kind, in both layouts:
// no kernel may read or write past its rows, and every instruction set gives the same bits.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>

#include "backend/cpu/cpu_backend.h"
#include "model/model.h"
#include "tests/support/kernels.h"
#include "tests/support/random_weights.h"
#include "tests/support/tiny_nemotron.h"

namespace lacuna {
namespace {

// Weights of about a tenth, so that nothing overflows or dies out; scales stay what they are.
void scramble(test::TestTensors& tensors) {
  Random random(99);
  for (auto& [name, tensor] : tensors) {
    if (tensor.dtype == Dtype::kU32) {
      for (auto& byte : tensor.bytes) byte = static_cast<char>(random.bits());
      continue;
    }
    const bool scale = name.ends_with(".scales") || name.ends_with(".biases");
    for (std::size_t i = 0; i + 2 <= tensor.bytes.size() && tensor.dtype == Dtype::kBf16; i += 2) {
      const float v =
          scale ? (name.ends_with(".scales") ? 0.01f : -0.07f) : 0.1f * random.uniform();
      const std::uint16_t h = f32_to_bf16(v);
      std::memcpy(&tensor.bytes[i], &h, 2);
    }
  }
}

std::vector<float> logits(const Checkpoint& checkpoint, Isa isa, bool bf16, int chunk) {
  CpuBackend backend(isa, 2, bf16);
  auto model = make_model(checkpoint, backend);
  if (!model.ok()) ADD_FAILURE() << model.error().what;
  const auto cache = std::filesystem::path(testing::TempDir()) / "lacuna-small-shapes";
  const auto loaded = backend.load({"small", checkpoint.fingerprint(), cache, {}});
  if (!loaded.ok()) ADD_FAILURE() << loaded.error().what;
  auto state = backend.new_state((*model)->layer_states(), 64);
  const FlushDenormals flush;
  const std::vector<int> tokens{1, 5, 31, 0, 7, 7, 2, 19, 3, 30, 11};
  std::vector<float> all;
  for (std::size_t at = 0; at < tokens.size(); at += static_cast<std::size_t>(chunk)) {
    const int n = std::min(chunk, static_cast<int>(tokens.size() - at));
    const std::size_t mark = backend.mark();
    const Tensor out =
        (*model)->forward(backend, std::span(tokens).subspan(at, n), **state, n, n).logits;
    std::vector<float> rows(static_cast<std::size_t>(n) * out.width);
    backend.read(out, rows);
    backend.release(mark);
    all.insert(all.end(), rows.begin(), rows.end());
  }
  return all;
}

TEST(SmallShapes, EveryKindOfLayerInBothLayouts) {
  for (const bool mlx : {false, true}) {
    SCOPED_TRACE(mlx ? "MLX 4-bit" : "plain");
    test::TestTensors tensors = test::tiny_tensors(mlx);
    scramble(tensors);
    const test::TempFolder folder;
    test::write_checkpoint(
        folder, mlx ? test::with_quantization(test::tiny_config()) : test::tiny_config(), tensors);
    const auto checkpoint = Checkpoint::open(folder.path());
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().what;
    for (const bool bf16 : {false, true}) {
      const std::vector<float> want = logits(*checkpoint, Isa::kScalar, bf16, 11);
      for (const float v : want) ASSERT_TRUE(std::isfinite(v));
      for (const Isa isa : usable_isas()) {
        for (const int chunk : {11, 4, 1}) {
          ASSERT_TRUE(same_bits(want, logits(*checkpoint, isa, bf16, chunk)))
              << isa_name(isa) << ", chunks of " << chunk;
        }
      }
    }
  }
}

}  // namespace
}  // namespace lacuna
