// SPDX-License-Identifier: Apache-2.0
#include "model/convert_files.h"

#include <array>
#include <cmath>
#include <utility>

#include "base/mmap.h"

namespace lacuna {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array kCompanions = {"tokenizer.json",     "tokenizer_config.json",
                                    "tokenizer.model",    "special_tokens_map.json",
                                    "added_tokens.json",  "vocab.json",
                                    "merges.txt",         "chat_template.jinja",
                                    "chat_template.json", "generation_config.json"};

void write_python(const Json& value, int indent, int depth, std::string& out) {
  const auto new_line = [&](int at) { out += "\n" + std::string(at * indent, ' '); };
  if (!value.is_structured()) {
    const bool number = value.is_number_float();
    const double number_value = number ? value.get<double>() : 0;
    if (number && std::isnan(number_value)) {
      out += "NaN";
    } else if (number && std::isinf(number_value)) {
      out += number_value > 0 ? "Infinity" : "-Infinity";
    } else {
      out += value.dump(-1, ' ', true);
    }
    return;
  }
  out += value.is_object() ? '{' : '[';
  bool first = true;
  for (const auto& item : value.items()) {
    if (!std::exchange(first, false)) out += ',';
    new_line(depth + 1);
    if (value.is_object()) out += Json(item.key()).dump(-1, ' ', true) + ": ";
    write_python(item.value(), indent, depth + 1, out);
  }
  if (!value.empty()) new_line(depth);
  out += value.is_object() ? '}' : ']';
}

}  // namespace

std::string python_json(const Json& value, int indent) {
  std::string out;
  write_python(value, indent, 0, out);
  return out;
}

std::string converted_config(const Json& source, const Json& quantization) {
  Json config = source;
  for (const char* key : {"quantization", "quantization_config"}) {
    config.erase(key);
    config[key] = quantization;
  }
  return python_json(config, 2);
}

std::string converted_index(std::uint64_t bytes, std::uint64_t parameters,
                            const std::map<std::string, std::string>& files) {
  return python_json(Json{{"metadata", {{"total_size", bytes}, {"total_parameters", parameters}}},
                          {"weight_map", files}},
                     1);
}

Result<std::map<std::string, std::string>> read_companions(const std::filesystem::path& source) {
  std::map<std::string, std::string> out;
  for (const char* name : kCompanions) {
    auto content = read_text_file(source / name);
    if (content) {
      out[name] = *std::move(content);
    } else if (content.error().code != ErrorCode::kNotFound) {
      return std::move(content).error();
    }
  }
  return out;
}

}  // namespace lacuna
