// SPDX-License-Identifier: Apache-2.0
// Chat messages to prompt text, by the checkpoint's own Jinja template, bounded in depth, steps and
// output.
//
// The text equals Python jinja2's with Hugging Face's settings, byte for byte. Which bytes came
// from the messages and not from the template is kept, so that "<|im_end|>" typed by a user is
// encoded as plain text and cannot end a turn. User text is every string and key of the variables,
// apart from: a message's "role" when it is made of letters, digits, '_' and '-' (templates build
// tokens from it), and top-level variables named …_token (bos_token, eos_token).
#pragma once

#include <nlohmann/json.hpp>

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lacuna/result.h"

namespace lacuna {

class Tokenizer;

// A piece of rendered prompt and where it came from.
struct PromptSpan {
  std::string text;
  bool from_user = false;  // true: special tokens in it are plain text
};

struct RenderedPrompt {
  std::vector<PromptSpan> spans;
  std::string text() const;  // all spans joined
};

class ChatTemplate {
 public:
  // chat_template.jinja, else the "chat_template" key of tokenizer_config.json (a string, or a list
  // of named ones: "default" is taken). kNotFound when neither is there; a template that does not
  // parse is kUnsupported or kCorrupt with its line.
  static Result<ChatTemplate> open(const std::filesystem::path& folder);
  static Result<ChatTemplate> parse(std::string_view source, std::string_view name);

  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;
  ~ChatTemplate();

  // `variables` is what Hugging Face passes: messages, tools, add_generation_prompt, bos_token, and
  // any template keyword such as enable_thinking. Errors carry the template line; raise_exception's
  // own message is kept. May be called from several threads. No state is kept between calls.
  Result<RenderedPrompt> render(const nlohmann::ordered_json& variables) const;

 private:
  struct Impl;
  explicit ChatTemplate(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Ids of a rendered prompt. A user span is never joined with a special token of the template's, but
// ordinary text on both sides of a span border is encoded as one piece, as Hugging Face does.
std::vector<int> encode_prompt(const Tokenizer& tokenizer, const RenderedPrompt& prompt);

}  // namespace lacuna
