// SPDX-License-Identifier: Apache-2.0
// The text files of a converted checkpoint.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "lacuna/result.h"

namespace lacuna {

// JSON as Python writes it with this indent, bare Infinity and NaN included: what a config holds
// goes through unchanged.
std::string python_json(const nlohmann::ordered_json& value, int indent);

// config.json of the source with MLX's "quantization", and the same as "quantization_config", in
// place of what it said of quantisation.
std::string converted_config(const nlohmann::ordered_json& source,
                             const nlohmann::ordered_json& quantization);

// model.safetensors.index.json: `files` maps a tensor to its file.
std::string converted_index(std::uint64_t bytes, std::uint64_t parameters,
                            const std::map<std::string, std::string>& files);

// The tokenizer's files, chat template and generation config, as far as they are there, by name.
Result<std::map<std::string, std::string>> read_companions(const std::filesystem::path& source);

}  // namespace lacuna
