// SPDX-License-Identifier: Apache-2.0
// Takes a model's tensors out of a checkpoint by name, checks each, and keeps what is wrong: the
// missing ones are counted to the end, of the rest the first complaint stays. Whoever asks goes on
// with empty fields until finish().
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/linear_source.h"
#include "lacuna/result.h"

namespace lacuna {

// Whether scales and biases are read through for NaN and infinities: a ninth of a 4-bit
// checkpoint's bytes, and needless for what a backend packs, which looks at them then.
enum class ScaleCheck { kAll, kNone };

class Binder {
 public:
  // `belongs` says which tensors are this model's: one of them that nobody asks for is an error.
  Binder(const Checkpoint& checkpoint, QuantizationRules rules, ScaleCheck scale_check,
         std::function<bool(const std::string& name)> belongs)
      : checkpoint_(checkpoint),
        rules_(std::move(rules)),
        scale_check_(scale_check),
        belongs_(std::move(belongs)) {}

  bool has(const std::string& name) const { return checkpoint_.find(name) != nullptr; }

  // The matrix [out, in] of `module`, or a slice of stacked ones: as find_linear.
  LinearSource linear(const std::string& module, int out, int in, int expert = -1, int experts = 0);
  // A small tensor of one of `shapes`, widened to float32.
  std::vector<float> floats(const std::string& name,
                            const std::vector<std::vector<std::int64_t>>& shapes);
  std::vector<float> vector(const std::string& name, int size) { return floats(name, {{size}}); }

  void keep(Error error) {
    if (!error_) error_ = std::move(error);
  }
  void keep(Result<void> result) {
    if (!result) keep(std::move(result).error());
  }
  static Error corrupt(const std::string& name, const std::string& what);

  std::uint64_t parameters() const { return parameters_; }  // codes count as weights
  std::uint64_t bytes() const { return bytes_; }            // as stored

  // All complaints: kCorrupt with the first tensor that is missing, else the first complaint, else
  // the first surplus tensor.
  Result<void> finish() const;
  const QuantizationRules& rules() const { return rules_; }

 private:
  bool is_there(const std::string& name);
  void use(const std::string& name);
  std::pair<std::string, std::size_t> find_surplus() const;

  const Checkpoint& checkpoint_;
  QuantizationRules rules_;
  ScaleCheck scale_check_;
  std::function<bool(const std::string&)> belongs_;
  std::set<std::string> used_;
  std::optional<Error> error_;
  std::string first_missing_;      // in the order they were asked for
  std::set<std::string> missing_;  // a set: every expert asks for the same stacked tensor
  std::uint64_t parameters_ = 0, bytes_ = 0;
};

}  // namespace lacuna
