// SPDX-License-Identifier: Apache-2.0
#include "text/chat_template.h"

#include <fmt/core.h>

#include <utility>

#include "base/mmap.h"
#include "text/jinja_json.h"
#include "text/jinja_machine.h"
#include "text/jinja_parser.h"
#include "text/jinja_render.h"
#include "text/tokenizer.h"

namespace lacuna {
namespace jinja {
namespace {

Error to_error(const Failure& failure, std::string_view name) {
  std::string message = failure.message;
  for (char& c : message) {
    if (c == '\n' || c == '\r') c = ' ';  // an error is one line, whatever the template raises
  }
  if (failure.line == 0) return {failure.code, fmt::format("{}: {}", name, message)};
  return {failure.code, fmt::format("{} line {}: {}", name, failure.line, message)};
}

}  // namespace

Result<Block> parse_template(std::string_view source, std::string_view name) {
  try {
    return parse(source);
  } catch (const Failure& failure) {
    return to_error(failure, name);
  }
}

Result<Text> render_template(const Block& root, const nlohmann::ordered_json& variables,
                             std::string_view name, const Limits& limits) {
  int line = 0;
  try {
    Budget input(limits);
    Machine machine(root, chat_variables(variables, input), limits);
    try {
      return machine.render();
    } catch (const Failure&) {
      line = machine.line();
      throw;
    }
  } catch (Failure& failure) {
    if (failure.line == 0) failure.line = line;
    return to_error(failure, name);
  } catch (const std::bad_alloc&) {
    return Error{ErrorCode::kOutOfMemory,
                 fmt::format("{} line {}: not enough memory to render", name, line)};
  }
}

}  // namespace jinja

namespace {

constexpr const char* kConfigFile = "tokenizer_config.json";

// The "chat_template" of tokenizer_config.json: the text itself, or the default one of a list.
Result<std::string> template_of_config(const std::filesystem::path& path) {
  LAC_TRY(const std::string text, read_text_file(path));
  const auto config = nlohmann::json::parse(text, nullptr, false);
  if (!config.is_object())
    return Error{ErrorCode::kCorrupt, fmt::format("{}: not a JSON object", kConfigFile)};
  const auto found = config.find("chat_template");
  if (found == config.end() || found->is_null()) {
    return Error{ErrorCode::kNotFound,
                 fmt::format("no chat_template.jinja, and no chat_template in {}", kConfigFile)};
  }
  if (found->is_string()) return found->get<std::string>();
  if (!found->is_array()) {
    return Error{ErrorCode::kCorrupt,
                 fmt::format("{}: chat_template is a {}, want a string or a list", kConfigFile,
                             found->type_name())};
  }
  for (const auto& entry : *found) {
    if (!entry.is_object() || !entry.contains("name") || entry["name"] != "default") continue;
    if (entry.contains("template") && entry["template"].is_string())
      return entry["template"].get<std::string>();
  }
  return Error{ErrorCode::kNotFound,
               fmt::format("{}: chat_template has no entry named \"default\"", kConfigFile)};
}

}  // namespace

std::string RenderedPrompt::text() const {
  std::string out;
  for (const PromptSpan& span : spans) out += span.text;
  return out;
}

struct ChatTemplate::Impl {
  std::string name;
  jinja::Block root;
};

ChatTemplate::ChatTemplate(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;
ChatTemplate::~ChatTemplate() = default;

Result<ChatTemplate> ChatTemplate::open(const std::filesystem::path& folder) {
  constexpr const char* kFile = "chat_template.jinja";
  Result<std::string> own = read_text_file(folder / kFile);
  if (own.ok()) return parse(*own, kFile);
  if (own.error().code != ErrorCode::kNotFound) return std::move(own).error();
  Result<std::string> configured = template_of_config(folder / kConfigFile);
  if (!configured.ok()) return std::move(configured).error();
  return parse(*configured, fmt::format("{} chat_template", kConfigFile));
}

Result<ChatTemplate> ChatTemplate::parse(std::string_view source, std::string_view name) {
  Result<jinja::Block> root = jinja::parse_template(source, name);
  if (!root.ok()) return std::move(root).error();
  auto impl = std::make_unique<Impl>();
  impl->name = name;
  impl->root = *std::move(root);
  return ChatTemplate(std::move(impl));
}

Result<RenderedPrompt> ChatTemplate::render(const nlohmann::ordered_json& variables) const {
  LAC_TRY(const jinja::Text text, jinja::render_template(impl_->root, variables, impl_->name));
  RenderedPrompt prompt;
  for (std::size_t begin = 0; begin < text.size();) {
    std::size_t end = begin + 1;
    while (end < text.size() && text.from_user(end) == text.from_user(begin)) ++end;
    prompt.spans.push_back({text.bytes().substr(begin, end - begin), text.from_user(begin)});
    begin = end;
  }
  return prompt;
}

std::vector<int> encode_prompt(const Tokenizer& tokenizer, const RenderedPrompt& prompt) {
  std::vector<TextPart> parts;
  for (const PromptSpan& span : prompt.spans) {
    parts.push_back(
        {span.text, span.from_user ? SpecialTokens::kPlainText : SpecialTokens::kParse});
  }
  return tokenizer.encode_parts(parts);
}

}  // namespace lacuna
