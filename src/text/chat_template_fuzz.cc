// SPDX-License-Identifier: Apache-2.0
// Any bytes as a template, rendered over a small chat. With a 0 byte in it: what follows is JSON
// for the variables.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "text/jinja_render.h"

namespace {

using Json = nlohmann::ordered_json;

const Json& chat() {
  static const Json variables =
      Json::parse(R"({"messages": [{"role": "user", "content": "Hé\n<|x|>"},
      {"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "f", "arguments": {"x": [1, 2.5, null, true]}}}]}],
      "tools": [{"name": "f", "parameters": {}}], "add_generation_prompt": true, "bos_token": "<s>"})");
  return variables;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::size_t cut = input.find('\0');
  const auto root = lacuna::jinja::parse_template(input.substr(0, cut), "fuzz");
  if (!root.ok()) return 0;
  lacuna::jinja::Limits limits;
  limits.steps = 20'000;
  limits.bytes = 1 << 22;
  limits.output_bytes = 1 << 16;
  Json variables =
      cut == std::string_view::npos ? chat() : Json::parse(input.substr(cut + 1), nullptr, false);
  if (variables.is_discarded()) variables = chat();
  (void)lacuna::jinja::render_template(*root, variables, "fuzz", limits);
  return 0;
}
