// SPDX-License-Identifier: Apache-2.0
// Reads tokenizer.json and tokenizer_config.json into the parts of a Tokenizer.
//
// Every component is checked by its type and keys: what is not known here is refused with its JSON
// path, so that no file is tokenised by a guess. "truncation" and "padding" are settings of a batch
// call in Hugging Face's API, which this engine does not have, and are the only keys left unread.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "lacuna/result.h"
#include "text/added_tokens.h"
#include "text/bpe.h"
#include "text/pretokenizer.h"

namespace lacuna {

inline constexpr int kMaxTokenId = (1 << 22) - 1;

struct TokenizerParts {
  std::vector<AddedToken> added;  // ids agree with the vocabulary's where both have the content
  PreTokenizer pre_tokenizer;
  std::unordered_map<std::string, int> vocabulary;  // of the model, in byte letters; ids differ
  std::array<int, 256> byte_ids;                    // -1 for bytes that UTF-8 never holds
  std::vector<MergeRule> merges;
  bool ignore_merges = false;
  std::vector<int> prefix, suffix;  // what the post-processor puts around a text
};

struct TokenizerConfig {
  std::optional<std::string> bos_token, eos_token;
  std::optional<bool> add_bos_token;
};

Result<TokenizerParts> read_tokenizer_json(std::string_view json);
Result<TokenizerConfig> read_tokenizer_config(std::string_view json);

}  // namespace lacuna
