// SPDX-License-Identifier: Apache-2.0
// A chat: messages in, the whole prompt of the next answer out.
//
// What was generated stays as it was generated. Encoding an answer's text anew may give other
// tokens than the model chose, and then the state computed for them is lost; so when the template
// renders the earlier conversation to the very text it had, the earlier tokens are taken and only
// the rest is encoded.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lacuna/result.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace lacuna {

// What a template sees beside the messages: bos_token, eos_token, add_generation_prompt, and
// `keywords` (a JSON object such as {"enable_thinking": false}) over them.
// kInvalidArgument when `keywords` is no object or replaces "messages".
Result<nlohmann::ordered_json> template_variables(const Tokenizer& tokenizer,
                                                  const nlohmann::ordered_json& messages,
                                                  const nlohmann::ordered_json& keywords);

// Ids of a text that is no chat: the begin-of-text token when the tokenizer wants one, then the
// text, control tokens in it included.
std::vector<int> encode_text(const Tokenizer& tokenizer, std::string_view text);

class Conversation {
 public:
  // Both outlive the conversation.
  Conversation(const Tokenizer& tokenizer, const ChatTemplate& chat_template,
               nlohmann::ordered_json keywords);

  // Forgets all messages; a system message that is empty is left out.
  void start(std::string_view system);

  // Adds the user's message and gives the prompt for the answer to it. Errors are the template's;
  // the message is then not added.
  Result<std::vector<int>> ask(std::string_view text);
  // Adds the answer to the last prompt: its text, and the tokens it came from.
  void answer(std::string_view text, std::span<const int> tokens);
  // Takes back the last message asked, when it got no answer.
  void withdraw();

  const nlohmann::ordered_json& messages() const { return messages_; }

 private:
  std::vector<int> encode(const RenderedPrompt& prompt) const;

  const Tokenizer& tokenizer_;
  const ChatTemplate& template_;
  nlohmann::ordered_json keywords_;
  nlohmann::ordered_json messages_ = nlohmann::ordered_json::array();
  // The conversation up to the last answer, and its tokens. Empty when they cannot be reused.
  std::string known_text_;
  std::vector<int> known_tokens_;
  // The same for the prompt last given.
  std::string prompt_text_;
  std::vector<int> prompt_tokens_;
};

}  // namespace lacuna
