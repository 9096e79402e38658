// SPDX-License-Identifier: Apache-2.0
// Text to token ids and back, as the checkpoint's tokenizer.json says: byte-level BPE.
//
// The ids equal those of Hugging Face `tokenizers` for the same file. Unknown component types are
// an error at load, never a guess.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lacuna/result.h"

namespace lacuna {

// Whether "<|im_end|>" in the text becomes the control token or stays eleven plain characters.
enum class SpecialTokens { kParse, kPlainText };

// A stretch of a longer text that has its own say about special tokens.
struct TextPart {
  std::string_view text;
  SpecialTokens special = SpecialTokens::kParse;
};

class Tokenizer {
 public:
  // Reads tokenizer.json (and tokenizer_config.json beside it when there). Errors name file and
  // field.
  static Result<Tokenizer> open(const std::filesystem::path& folder);
  // The same from memory; `name` stands for the file in errors. Untrusted: never crashes.
  static Result<Tokenizer> parse(std::string_view tokenizer_json, std::string_view name);

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // Any bytes are accepted: each invalid UTF-8 sequence is read as U+FFFD, as Python's
  // bytes.decode("utf-8", "replace") does. Nothing is put around the text (see prefix_tokens).
  // Thread-safe, O(n log n), and total: a pattern that would backtrack without end is cut short at
  // a point that depends on the text only (split_regex.h).
  std::vector<int> encode(std::string_view text,
                          SpecialTokens special = SpecialTokens::kParse) const;

  // The parts as one text: pieces and merges cross their borders, a special token does so only when
  // every byte of it lies in kParse parts. A character must not be cut by a border.
  std::vector<int> encode_parts(std::span<const TextPart> parts) const;

  // The bytes of the tokens, an added token's being its content; control tokens are left out unless
  // `keep_special`. Ids outside the vocabulary give nothing. The bytes may not be whole UTF-8: use
  // StreamDecoder for display.
  std::string decode(std::span<const int> ids, bool keep_special = false) const;
  // The bytes of one token.
  std::string_view token_bytes(int id) const;

  int vocabulary_size() const;  // one more than the largest id
  bool is_special(int id) const;
  std::optional<int> find_token(
      std::string_view content) const;  // an exact vocabulary or added token
  std::optional<int> bos_token() const;
  std::optional<int> eos_token() const;
  // tokenizer_config.json's add_bos_token; without it, whether prefix_tokens() begins with bos.
  bool add_bos() const;
  // What the file's post-processor puts before and after one text (Hugging Face does so with
  // add_special_tokens=True). encode() leaves it to the caller: chat templates write their own.
  std::span<const int> prefix_tokens() const;
  std::span<const int> suffix_tokens() const;

 private:
  struct Impl;
  explicit Tokenizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Turns a stream of tokens into text that is whole UTF-8 at every moment: an incomplete character
// is held back until its last byte arrives; bytes that cannot become a character are U+FFFD.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer, bool keep_special = false);
  std::string push(int id);  // what can be shown now
  std::string finish();      // what was held back, incomplete bytes as U+FFFD

 private:
  const Tokenizer* tokenizer_;
  bool keep_special_;
  std::string pending_;
};

}  // namespace lacuna
