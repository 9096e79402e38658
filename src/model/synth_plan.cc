// SPDX-License-Identifier: Apache-2.0
#include "model/synth_plan.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numbers>
#include <optional>
#include <utility>

#include "checkpoint/json.h"

namespace lacuna {
namespace {

constexpr double kMean = 0.5;  // of an embedding row, whose mean square is 1
// Mean square that all mixers together add to the hidden state, and the most that one adds.
constexpr double kAddedInAll = 0.25, kAddedByOne = 0.01;
constexpr double kRowSum = 0.8;           // r of the header
constexpr double kRouterDeviation = 1.7;  // of the router's logits
constexpr double kNormSpread = 0.1;       // norm weights lie within 1 ± this

// E[h²] of the header.
double mean_square_of_relu2(double z) {
  const double above = std::erfc(z / std::numbers::sqrt2) / 2;
  const double density = std::exp(-z * z / 2) / std::sqrt(2 * std::numbers::pi);
  return (z * z * z * z + 6 * z * z + 3) * above - (z * z * z + 5 * z) * density;
}

double parabola(double edge, double middle, double depth) {
  return edge + (middle - edge) * (1 - (2 * depth - 1) * (2 * depth - 1));
}

std::vector<std::int64_t> with_last(std::vector<std::int64_t> shape, std::int64_t last) {
  shape.back() = last;
  return shape;
}

// Lays out the model from the bottom up and keeps what the mixers have added so far.
class Planner {
 public:
  Planner(const NemotronHConfig& config, const LiveProfile& live) : c_(config), live_(live) {
    mixer_output_ = std::min(kAddedByOne, kAddedInAll / static_cast<double>(c_.layers.size()));
  }

  void add_model() {
    const WeightLaw token{kMean, std::sqrt(1 - kMean * kMean)};
    module("backbone.embeddings", {c_.vocabulary, c_.width}, token);
    const std::size_t last = std::max<std::size_t>(c_.layers.size(), 2) - 1;
    for (std::size_t i = 0; i < c_.layers.size(); ++i) {
      depth_ = static_cast<double>(i) / static_cast<double>(last);
      add_layer(fmt::format("backbone.layers.{}.", i), c_.layers[i]);
    }
    norm("backbone.norm_f.weight", c_.width);
    if (!c_.tied_embeddings) plain_module("lm_head", {c_.vocabulary, c_.width});
  }

  // After add_model: the head reads what the last layer left.
  void add_head() {
    if (c_.mtp_layers.empty()) return;
    const std::string first = "mtp.layers.0.", last = "mtp.layers.1.";
    for (const char* name : {"enorm.weight", "hnorm.weight"}) norm(first + name, c_.width);
    mean_module(first + "eh_proj", c_.width, 2 * c_.width, (kMean + mean()) / 2);
    added_ = 0;
    depth_ = 0.5;
    add_layer(first, LayerKind::kAttention);
    norm(last + "final_layernorm.weight", c_.width);
    add_layer(last, LayerKind::kMoe);
  }

  std::vector<SynthPart> take() { return std::exchange(parts_, {}); }
  const std::optional<Error>& error() const { return error_; }

 private:
  double mean() const { return kMean / std::sqrt(1 + added_); }  // m of the header

  void small(const std::string& name, Dtype dtype, std::vector<std::int64_t> shape,
             std::function<double(SynthRandom&)> value) {
    std::int64_t count = 1;
    for (const std::int64_t size : shape) count *= size;
    SynthPart& part = parts_.emplace_back();
    part.tensors = {{name, dtype, std::move(shape)}};
    part.values = [count, value = std::move(value)](SynthRandom& random) {
      std::vector<float> values(static_cast<std::size_t>(count));
      for (float& v : values) v = static_cast<float>(value(random));
      return values;
    };
  }

  // Values within middle ± spread.
  void range(const std::string& name, std::vector<std::int64_t> shape, double middle, double spread,
             Dtype dtype = Dtype::kBf16) {
    small(name, dtype, std::move(shape), [middle, spread](SynthRandom& random) {
      return middle + spread * (2 * random.uniform() - 1);
    });
  }
  void norm(const std::string& name, int size) { range(name, {size}, 1, kNormSpread); }

  // [experts, out, in] or [out, in].
  void module(const std::string& name, const std::vector<std::int64_t>& shape,
              const WeightLaw& law) {
    const std::int64_t in = shape.back();
    SynthPart& part = parts_.emplace_back();
    part.tensors = {{name + ".weight", Dtype::kU32, with_last(shape, in / 8)},
                    {name + ".scales", Dtype::kBf16, with_last(shape, in / CodeRows::kGroup)},
                    {name + ".biases", Dtype::kBf16, with_last(shape, in / CodeRows::kGroup)}};
    part.rows = 1;
    for (std::size_t i = 0; i + 1 < shape.size(); ++i) part.rows *= shape[i];
    part.in = static_cast<int>(in);
    part.law = law;
  }

  // Outputs of mean square `square` from inputs of mean square `input`.
  void plain_module(const std::string& name, const std::vector<std::int64_t>& shape,
                    double square = 1, double input = 1) {
    module(name, shape, {0, std::sqrt(square / (input * static_cast<double>(shape.back())))});
  }

  // Of a row whose answer to `in` inputs of mean `input_mean` has mean −z and deviation 1. The
  // error names the module when there is none.
  WeightLaw row_law(const std::string& name, double z, double in, double input_mean) {
    const double m2 = input_mean * input_mean, varying = 1 - m2 * (1 - kRowSum);
    const double square = in * m2 - z * z * (1 - m2);
    const double t = square > 0 ? z * std::sqrt(varying / square) : 1;
    if (std::fabs(t) > CodeRows::kMaxRatio) {
      if (!error_) {
        error_ = Error{ErrorCode::kInvalidArgument,
                       fmt::format("--live: not to be had with the {} inputs of {}", in, name)};
      }
      return {};
    }
    const double deviation = 1 / std::sqrt(in * (varying + t * t * (1 - m2)));
    return {-t * deviation, deviation};
  }

  // Passes the mean of its inputs on: outputs are as embedding rows are.
  void mean_module(const std::string& name, int out, int in, double input_mean) {
    const double deviation = std::sqrt(1 - kMean * kMean);
    const WeightLaw law = row_law(name, -kMean / deviation, in, input_mean);
    module(name, {out, in}, {law.mean * deviation, law.deviation * deviation});
  }

  // Pre-activations of deviation 1, above 0 with probability `share`. Gives z.
  double up_module(const std::string& name, const std::vector<std::int64_t>& shape, double share,
                   double input_mean) {
    const double z = normal_quantile(1 - share);
    module(name, shape, row_law(name, z, static_cast<double>(shape.back()), input_mean));
    return z;
  }

  void add_layer(const std::string& layer, LayerKind kind) {
    norm(layer + "norm.weight", c_.width);
    const std::string mixer = layer + "mixer.";
    switch (kind) {
      case LayerKind::kMamba:
        add_mamba(mixer);
        break;
      case LayerKind::kAttention:
        return add_attention(mixer);  // averages many tokens' values: what it adds does not count
      case LayerKind::kMoe:
        add_moe(mixer);
        break;
      case LayerKind::kMlp: {
        const double z =
            up_module(mixer + "up_proj", {c_.mlp_neurons, c_.width}, live_.shared(depth_), mean());
        plain_module(mixer + "down_proj", {c_.width, c_.mlp_neurons}, mixer_output_,
                     mean_square_of_relu2(z));
        break;
      }
    }
    added_ += mixer_output_;
  }

  void add_mamba(const std::string& mixer) {
    const int channels = c_.conv_channels(), heads = c_.ssm_heads;
    plain_module(mixer + "in_proj", {c_.in_proj_rows(), c_.width});
    range(mixer + "conv1d.weight", {channels, c_.conv_kernel, 1}, 0, 0.5);
    range(mixer + "conv1d.bias", {channels}, 0, 0.05);
    small(mixer + "A_log", Dtype::kBf16, {heads},
          [](SynthRandom& random) { return std::log(1 + 6 * random.uniform()); });
    range(mixer + "D", {heads}, 1, 0.1);
    range(mixer + "dt_bias", {heads}, -3, 1);
    norm(mixer + "norm.weight", c_.ssm_inner());
    plain_module(mixer + "out_proj", {c_.width, c_.ssm_inner()}, mixer_output_);
  }

  void add_attention(const std::string& mixer) {
    const int queries = c_.heads * c_.head_dim, keys = c_.kv_heads * c_.head_dim;
    plain_module(mixer + "q_proj", {queries, c_.width});
    plain_module(mixer + "k_proj", {keys, c_.width});
    plain_module(mixer + "v_proj", {keys, c_.width});
    plain_module(mixer + "o_proj", {c_.width, queries}, mixer_output_);
  }

  // Rows that sum to exactly 0 but for their rounding to bf16.
  void add_router(const std::string& name) {
    const int experts = c_.experts, width = c_.width;
    SynthPart& part = parts_.emplace_back();
    part.tensors = {{name, Dtype::kBf16, {experts, width}}};
    part.values = [experts, width](SynthRandom& random) {
      std::vector<float> values(static_cast<std::size_t>(experts) * width);
      for (auto row = values.begin(); row != values.end(); row += width) {
        double sum = 0;
        for (int i = 0; i < width; ++i)
          sum += row[i] = static_cast<float>(random.normal() * kRouterDeviation / std::sqrt(width));
        for (int i = 0; i < width; ++i) row[i] -= static_cast<float>(sum / width);
      }
      return values;
    };
  }

  void add_moe(const std::string& mixer) {
    const bool shared = c_.shared_neurons > 0;
    const double half = shared ? mixer_output_ / 2 : mixer_output_;  // routed and shared alike
    add_router(mixer + "gate.weight");
    range(mixer + "gate.e_score_correction_bias", {c_.experts}, 0, 0.01, Dtype::kF32);

    const int width = c_.latent > 0 ? c_.latent : c_.width;
    double input_mean = mean();
    if (c_.latent > 0) {
      mean_module(mixer + "fc1_latent_proj", c_.latent, c_.width, input_mean);
      plain_module(mixer + "fc2_latent_proj", {c_.width, c_.latent}, half);
      input_mean = kMean;
    }
    double z = up_module(mixer + "switch_mlp.fc1", {c_.experts, c_.expert_neurons, width},
                         live_.routed(depth_), input_mean);
    // Mean square of the chosen experts' weighted sum, taking their weights as equal.
    const double weights = c_.normalize_weights ? 1.0 / c_.experts_per_token : c_.experts_per_token;
    const double chosen = c_.routed_scaling * c_.routed_scaling * weights;
    plain_module(mixer + "switch_mlp.fc2", {c_.experts, width, c_.expert_neurons},
                 c_.latent > 0 ? 1 : half, chosen * mean_square_of_relu2(z));
    if (!shared) return;
    z = up_module(mixer + "shared_experts.up_proj", {c_.shared_neurons, c_.width},
                  live_.shared(depth_), mean());
    plain_module(mixer + "shared_experts.down_proj", {c_.width, c_.shared_neurons}, half,
                 mean_square_of_relu2(z));
  }

  const NemotronHConfig& c_;
  const LiveProfile& live_;
  double mixer_output_ = 0;  // mean square
  double added_ = 0, depth_ = 0;
  std::vector<SynthPart> parts_;
  std::optional<Error> error_;
};

}  // namespace

double LiveProfile::routed(double depth) const {
  return parabola(routed_edge, routed_middle, depth);
}
double LiveProfile::shared(double depth) const {
  return parabola(shared_edge, shared_middle, depth);
}

Result<LiveProfile> parse_live_profile(const std::string& text) {
  if (text == "published") return LiveProfile();
  std::vector<double> shares;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (shares.size() < 2) {
    double share = 0;
    const auto [next, problem] = std::from_chars(at, end, share);
    if (problem != std::errc() || !(share > 0 && share < 1)) break;
    shares.push_back(share);
    if (next == end)
      return LiveProfile{shares.front(), shares.front(), shares.back(), shares.back()};
    if (*next != ',') break;
    at = next + 1;
  }
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("--live: {}, wanted published, or one or two shares between 0 and 1 "
                           "with a comma between",
                           printable(text))};
}

Result<SynthPlan> plan_synthetic(const NemotronHConfig& config, const LiveProfile& live) {
  Planner planner(config, live);
  SynthPlan plan;
  planner.add_model();
  plan.model = planner.take();
  planner.add_head();
  plan.head = planner.take();
  if (planner.error()) return *planner.error();
  return plan;
}

}  // namespace lacuna
