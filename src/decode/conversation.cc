// SPDX-License-Identifier: Apache-2.0
#include "decode/conversation.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace lacuna {
namespace {

using Json = nlohmann::ordered_json;

std::string special_text(const Tokenizer& tokenizer, std::optional<int> id) {
  if (!id) return {};
  const int token = *id;
  return tokenizer.decode({&token, 1}, /*keep_special=*/true);
}

// The prompt without its first `bytes` bytes.
RenderedPrompt after(const RenderedPrompt& prompt, std::size_t bytes) {
  RenderedPrompt rest;
  for (const PromptSpan& span : prompt.spans) {
    const std::size_t cut = std::min(bytes, span.text.size());
    bytes -= cut;
    if (cut < span.text.size()) rest.spans.push_back({span.text.substr(cut), span.from_user});
  }
  return rest;
}

}  // namespace

Result<Json> template_variables(const Tokenizer& tokenizer, const Json& messages,
                                const Json& keywords) {
  const auto wrong = [](const char* what) { return Error{ErrorCode::kInvalidArgument, what}; };
  if (!keywords.is_object()) return wrong("template keywords: want a JSON object");
  if (keywords.contains("messages")) return wrong("template keywords: \"messages\" is not one");
  Json variables = {{"messages", messages},
                    {"add_generation_prompt", true},
                    {"bos_token", special_text(tokenizer, tokenizer.bos_token())},
                    {"eos_token", special_text(tokenizer, tokenizer.eos_token())}};
  variables.update(keywords);
  return variables;
}

std::vector<int> encode_text(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<int> tokens = tokenizer.encode(text);
  if (tokenizer.add_bos() && tokenizer.bos_token())
    tokens.insert(tokens.begin(), *tokenizer.bos_token());
  return tokens;
}

Conversation::Conversation(const Tokenizer& tokenizer, const ChatTemplate& chat_template,
                           Json keywords)
    : tokenizer_(tokenizer), template_(chat_template), keywords_(std::move(keywords)) {}

void Conversation::start(std::string_view system) {
  messages_ = Json::array();
  known_text_.clear();
  known_tokens_.clear();
  if (!system.empty()) messages_.push_back({{"role", "system"}, {"content", system}});
}

Result<std::vector<int>> Conversation::ask(std::string_view text) {
  Json messages = messages_;
  messages.push_back({{"role", "user"}, {"content", text}});
  LAC_TRY(const Json variables, template_variables(tokenizer_, messages, keywords_));
  LAC_TRY(const RenderedPrompt prompt, template_.render(variables));
  prompt_tokens_ = encode(prompt);
  prompt_text_ = prompt.text();
  messages_ = std::move(messages);
  return prompt_tokens_;
}

void Conversation::answer(std::string_view text, std::span<const int> tokens) {
  messages_.push_back({{"role", "assistant"}, {"content", text}});
  known_text_ = prompt_text_;
  known_text_ += text;
  known_tokens_ = prompt_tokens_;
  known_tokens_.insert(known_tokens_.end(), tokens.begin(), tokens.end());
  // A special token inside the answer, or text cut at a stop string: the tokens say something else
  // than the message does.
  if (tokenizer_.decode(tokens, /*keep_special=*/true) != text) {
    known_text_.clear();
    known_tokens_.clear();
  }
}

void Conversation::withdraw() {
  if (!messages_.empty() && messages_.back()["role"] == "user")
    messages_.erase(messages_.size() - 1);
}

// The rest may be encoded alone only where no token can span the border: when it begins with a
// special token of the template.
std::vector<int> Conversation::encode(const RenderedPrompt& prompt) const {
  if (!known_tokens_.empty() && prompt.text().starts_with(known_text_)) {
    const RenderedPrompt rest = after(prompt, known_text_.size());
    const std::vector<int> more = encode_prompt(tokenizer_, rest);
    if (!more.empty() && !rest.spans[0].from_user && tokenizer_.is_special(more[0])) {
      std::vector<int> tokens = known_tokens_;
      tokens.insert(tokens.end(), more.begin(), more.end());
      return tokens;
    }
  }
  return encode_prompt(tokenizer_, prompt);
}

}  // namespace lacuna
