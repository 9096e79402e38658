// SPDX-License-Identifier: Apache-2.0
#include "text/tokenizer_json.h"

#include <fmt/core.h>

#include <unordered_set>

#include "text/json_node.h"
#include "text/utf8.h"

namespace lacuna {
namespace {

namespace dom = simdjson::dom;

constexpr int kMaxNesting = 8;  // a Sequence in a Sequence in …
constexpr std::size_t kMaxAddedBytes = 4096;

Error unsupported_type(const JsonNode& node, std::string_view type, std::string_view want) {
  return node.error(ErrorCode::kUnsupported,
                    fmt::format("type {} is not supported, want {}", shown(type), want));
}

Result<std::string_view> type_of(const JsonNode& node) {
  LAC_TRY(const JsonNode type, node.at("type"));
  return type.text();
}

Result<bool> flag(const JsonNode& node, std::string_view key, std::optional<bool> fallback = {}) {
  if (fallback && !node.find(key)) return *fallback;
  LAC_TRY(const JsonNode member, node.at(key));
  return member.boolean();
}

// added_tokens

Result<AddedToken> read_added_token(const JsonNode& node) {
  LAC_TRY_VOID(node.only_keys(
      {"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"}));
  AddedToken token;
  LAC_TRY(const JsonNode id, node.at("id"));
  LAC_TRY(token.id, id.integer(0, kMaxTokenId));
  LAC_TRY(const JsonNode content, node.at("content"));
  LAC_TRY(token.content, content.text());
  if (token.content.size() > kMaxAddedBytes) {
    return content.error(ErrorCode::kUnsupported,
                         fmt::format("{} bytes long, at most {} are supported",
                                     token.content.size(), kMaxAddedBytes));
  }
  LAC_TRY(token.single_word, flag(node, "single_word"));
  LAC_TRY(token.lstrip, flag(node, "lstrip"));
  LAC_TRY(token.rstrip, flag(node, "rstrip"));
  LAC_TRY(token.normalized, flag(node, "normalized"));
  LAC_TRY(token.special, flag(node, "special"));
  return token;
}

// Ids and contents of added tokens and vocabulary may not contradict each other.
Result<void> read_added_tokens(const JsonNode& root, TokenizerParts& parts) {
  const std::optional<JsonNode> list = root.find("added_tokens");
  if (!list) return {};
  std::unordered_set<int> vocabulary_ids;
  for (const auto& [content, id] : parts.vocabulary) vocabulary_ids.insert(id);
  std::unordered_map<std::string, int> id_of;
  std::unordered_set<int> added_ids;
  LAC_TRY(const std::vector<JsonNode> nodes, list->items());
  for (const JsonNode& node : nodes) {
    LAC_TRY(AddedToken token, read_added_token(node));
    const auto known = parts.vocabulary.find(token.content);
    const bool in_vocabulary = known != parts.vocabulary.end();
    if (in_vocabulary && known->second != token.id) {
      return node.error(ErrorCode::kCorrupt,
                        fmt::format("{} has id {}, but {} in the vocabulary", shown(token.content),
                                    token.id, known->second));
    }
    if (!added_ids.insert(token.id).second ||
        (!in_vocabulary && vocabulary_ids.contains(token.id)) ||
        !id_of.emplace(token.content, token.id).second) {
      return node.error(ErrorCode::kCorrupt, fmt::format("id {} or content {} is there twice",
                                                         token.id, shown(token.content)));
    }
    parts.added.push_back(std::move(token));
  }
  return {};
}

// normalizer, pre_tokenizer, decoder, post_processor

Result<void> check_normalizer(const JsonNode& root) {
  const std::optional<JsonNode> node = root.find("normalizer");
  if (!node) return {};
  LAC_TRY(const std::string_view type, type_of(*node));
  if (type == "Sequence") {
    LAC_TRY(const JsonNode list, node->at("normalizers"));
    LAC_TRY(const std::vector<JsonNode> items, list.items());
    if (items.empty()) return {};
  }
  return unsupported_type(*node, type, "null");
}

Result<SplitRegex> compile_pattern(std::string_view pattern, const JsonNode& node) {
  Result<SplitRegex> regex = SplitRegex::compile(pattern);
  if (!regex) return std::move(regex).error().in(node.path());
  return regex;
}

// A literal text as a pattern that matches it and nothing else.
std::string escape_pattern(std::string_view literal) {
  std::string pattern;
  for (char c : literal) {
    if (std::string_view("\\^$.|?*+()[]{}").find(c) != std::string_view::npos) pattern += '\\';
    pattern += c;
  }
  return pattern;
}

Result<SplitRegex> read_split_pattern(const JsonNode& split) {
  LAC_TRY(const JsonNode pattern, split.at("pattern"));
  LAC_TRY_VOID(pattern.only_keys({"Regex", "String"}));
  const std::optional<JsonNode> literal = pattern.find("String");
  LAC_TRY(const JsonNode source, literal ? Result<JsonNode>(*literal) : pattern.at("Regex"));
  LAC_TRY(const std::string_view text, source.text());
  if (text.empty()) return source.error(ErrorCode::kUnsupported, "an empty pattern");
  return compile_pattern(literal ? escape_pattern(text) : std::string(text), source);
}

Result<SplitBehavior> read_behavior(const JsonNode& split) {
  LAC_TRY(const JsonNode node, split.at("behavior"));
  LAC_TRY(const std::string_view name, node.text());
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "Isolated") return SplitBehavior::kIsolated;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  return node.error(ErrorCode::kUnsupported,
                    fmt::format("{} is not supported, want Removed, Isolated, MergedWithPrevious, "
                                "MergedWithNext or Contiguous",
                                shown(name)));
}

Result<void> add_byte_level(const JsonNode& node, PreTokenizer& out) {
  LAC_TRY_VOID(node.only_keys({"type", "add_prefix_space", "trim_offsets", "use_regex"}));
  LAC_TRY(const bool prefix_space, flag(node, "add_prefix_space"));
  LAC_TRY(const bool use_regex, flag(node, "use_regex", true));
  if (prefix_space) out.add(PrefixSpaceStep{});
  if (!use_regex) return {};
  LAC_TRY(SplitRegex regex, compile_pattern(kByteLevelPattern, node));
  out.add(SplitStep{std::move(regex), SplitBehavior::kIsolated, false});
  return {};
}

Result<void> add_split(const JsonNode& node, PreTokenizer& out) {
  LAC_TRY_VOID(node.only_keys({"type", "pattern", "behavior", "invert"}));
  LAC_TRY(SplitRegex regex, read_split_pattern(node));
  LAC_TRY(const SplitBehavior behavior, read_behavior(node));
  LAC_TRY(const bool invert, flag(node, "invert"));
  out.add(SplitStep{std::move(regex), behavior, invert});
  return {};
}

// Appends the steps of one component. `byte_level` tells whether ByteLevel has been met: after it
// text is in byte letters, which no step here reads, so it has to be the last.
Result<void> add_pre_tokenizer(const JsonNode& node, int depth, bool& byte_level,
                               PreTokenizer& out) {
  LAC_TRY(const std::string_view type, type_of(node));
  if (depth > kMaxNesting) return node.error(ErrorCode::kUnsupported, "nested too deeply");
  if (type == "Sequence") {
    LAC_TRY_VOID(node.only_keys({"type", "pretokenizers"}));
    LAC_TRY(const JsonNode list, node.at("pretokenizers"));
    LAC_TRY(const std::vector<JsonNode> items, list.items());
    for (const JsonNode& item : items) {
      LAC_TRY_VOID(add_pre_tokenizer(item, depth + 1, byte_level, out));
    }
    return {};
  }
  if (byte_level) {
    return node.error(ErrorCode::kUnsupported, fmt::format("{} after ByteLevel", shown(type)));
  }
  if (type == "Split") return add_split(node, out);
  if (type == "ByteLevel") {
    byte_level = true;
    return add_byte_level(node, out);
  }
  if (type == "Digits") {
    LAC_TRY_VOID(node.only_keys({"type", "individual_digits"}));
    LAC_TRY(const bool individual, flag(node, "individual_digits"));
    out.add(DigitsStep{individual});
    return {};
  }
  return unsupported_type(node, type, "Split, Digits, ByteLevel or Sequence");
}

Result<void> read_pre_tokenizer(const JsonNode& root, PreTokenizer& out) {
  LAC_TRY(const JsonNode node, root.at("pre_tokenizer"));
  bool byte_level = false;
  LAC_TRY_VOID(add_pre_tokenizer(node, 0, byte_level, out));
  if (byte_level) return {};
  return node.error(ErrorCode::kUnsupported, "no ByteLevel in it, want byte-level BPE");
}

Result<void> check_decoder(const JsonNode& root) {
  LAC_TRY(JsonNode node, root.at("decoder"));
  LAC_TRY(const std::string_view type, type_of(node));
  if (type == "ByteLevel") return {};
  if (type == "Sequence") {
    LAC_TRY(const JsonNode list, node.at("decoders"));
    LAC_TRY(const std::vector<JsonNode> items, list.items());
    if (items.size() == 1) {
      LAC_TRY(const std::string_view only, type_of(items[0]));
      if (only == "ByteLevel") return {};
    }
  }
  return unsupported_type(node, type, "ByteLevel");
}

// The ids that a TemplateProcessing puts before and after "A" in its "single" template.
Result<void> read_template(const JsonNode& node, TokenizerParts& parts) {
  LAC_TRY_VOID(node.only_keys({"type", "single", "pair", "special_tokens"}));
  LAC_TRY(const JsonNode single, node.at("single"));
  LAC_TRY(const JsonNode special_tokens, node.at("special_tokens"));
  LAC_TRY(const std::vector<JsonNode> pieces, single.items());
  int texts = 0;
  for (const JsonNode& piece : pieces) {
    if (const std::optional<JsonNode> text = piece.find("Sequence")) {
      LAC_TRY(const JsonNode id, text->at("id"));
      LAC_TRY(const std::string_view name, id.text());
      if (name != "A" || ++texts > 1) return id.error(ErrorCode::kUnsupported, "want \"A\" once");
      continue;
    }
    LAC_TRY(const JsonNode special, piece.at("SpecialToken"));
    LAC_TRY(const JsonNode id, special.at("id"));
    LAC_TRY(const std::string_view name, id.text());
    LAC_TRY(const JsonNode entry, special_tokens.at(name));
    LAC_TRY(const JsonNode ids, entry.at("ids"));
    LAC_TRY(const std::vector<JsonNode> values, ids.items());
    for (const JsonNode& value : values) {
      LAC_TRY(const int token, value.integer(0, kMaxTokenId));
      (texts == 0 ? parts.prefix : parts.suffix).push_back(token);
    }
  }
  if (texts == 1) return {};
  return single.error(ErrorCode::kUnsupported, "want \"A\" once");
}

Result<void> read_post_processor(const JsonNode& node, int depth, TokenizerParts& parts) {
  LAC_TRY(const std::string_view type, type_of(node));
  if (type == "ByteLevel") return {};  // it moves offsets, never ids
  if (depth > kMaxNesting) return node.error(ErrorCode::kUnsupported, "nested too deeply");
  if (type == "Sequence") {
    LAC_TRY(const JsonNode list, node.at("processors"));
    LAC_TRY(const std::vector<JsonNode> items, list.items());
    for (const JsonNode& item : items) {
      LAC_TRY_VOID(read_post_processor(item, depth + 1, parts));
    }
    return {};
  }
  if (type != "TemplateProcessing") {
    return unsupported_type(node, type, "ByteLevel, TemplateProcessing or Sequence");
  }
  if (!parts.prefix.empty() || !parts.suffix.empty()) {
    return node.error(ErrorCode::kUnsupported, "a second TemplateProcessing");
  }
  return read_template(node, parts);
}

// model

Result<void> read_vocabulary(const JsonNode& model, TokenizerParts& parts) {
  LAC_TRY(const JsonNode node, model.at("vocab"));
  dom::object object;
  if (node.value().get(object)) return node.error(ErrorCode::kCorrupt, "want an object");
  parts.vocabulary.reserve(object.size());
  std::vector<bool> taken;
  for (const dom::key_value_pair& entry : object) {
    std::int64_t id = 0;
    if (entry.value.get(id) || id < 0 || id > kMaxTokenId) {
      return node.error(ErrorCode::kCorrupt,
                        fmt::format("the id of {} is no whole number from 0 to {}",
                                    shown(entry.key), kMaxTokenId));
    }
    const auto at = static_cast<std::size_t>(id);
    if (at >= taken.size()) taken.resize(std::max(at + 1, 2 * taken.size()));
    const bool is_new = parts.vocabulary.emplace(entry.key, static_cast<int>(id)).second;
    if (taken[at] || !is_new) {
      return node.error(ErrorCode::kCorrupt,
                        fmt::format("token {} or id {} is there twice", shown(entry.key), id));
    }
    taken[at] = true;
  }
  return {};
}

// The two sides of a rule, written as "a b" or as ["a", "b"].
std::optional<std::pair<std::string_view, std::string_view>> merge_sides(dom::element rule) {
  std::string_view text;
  if (!rule.get(text)) {
    const std::size_t space = text.find(' ');
    if (space == std::string_view::npos || text.find(' ', space + 1) != std::string_view::npos) {
      return std::nullopt;
    }
    return std::pair(text.substr(0, space), text.substr(space + 1));
  }
  dom::array pair;
  std::string_view left, right;
  if (rule.get(pair) || pair.size() != 2 || pair.at(0).get(left) || pair.at(1).get(right)) {
    return std::nullopt;
  }
  return std::pair(left, right);
}

Result<void> read_merges(const JsonNode& model, TokenizerParts& parts) {
  LAC_TRY(const JsonNode node, model.at("merges"));
  dom::array rules;
  if (node.value().get(rules)) return node.error(ErrorCode::kCorrupt, "want an array");
  std::size_t index = 0;
  std::string joined;
  for (dom::element rule : rules) {
    const auto fail = [&](std::string_view what) {
      return node.error(ErrorCode::kCorrupt, fmt::format("rule {} {}", index, what));
    };
    std::string_view text;
    if (!rule.get(text) && text.starts_with("#version")) continue;  // the header of a merges.txt
    const auto sides = merge_sides(rule);
    if (!sides) return fail("is neither \"left right\" nor [\"left\", \"right\"]");
    std::array<int, 3> ids;
    joined.assign(sides->first).append(sides->second);
    const std::array<std::string, 3> tokens = {std::string(sides->first),
                                               std::string(sides->second), joined};
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const auto token = parts.vocabulary.find(tokens[i]);
      if (token == parts.vocabulary.end()) {
        return fail(
            fmt::format("needs token {}, which the vocabulary does not have", shown(tokens[i])));
      }
      ids[i] = token->second;
    }
    parts.merges.push_back({ids[0], ids[1], ids[2]});
    ++index;
  }
  return {};
}

// With a token for every byte of UTF-8 nothing is ever unknown, so that unk_token, fuse_unk and
// byte_fallback cannot matter.
Result<void> find_byte_tokens(const JsonNode& model, TokenizerParts& parts) {
  for (int byte = 0; byte < 256; ++byte) {
    std::string letter;
    append_utf8(letter, byte_to_letter(static_cast<unsigned char>(byte)));
    const auto token = parts.vocabulary.find(letter);
    parts.byte_ids[byte] = token == parts.vocabulary.end() ? -1 : token->second;
    const bool in_utf8 = byte != 0xC0 && byte != 0xC1 && byte < 0xF5;
    if (parts.byte_ids[byte] < 0 && in_utf8) {
      return model.error(
          ErrorCode::kUnsupported,
          fmt::format("vocab has no token for byte 0x{:02x} ({})", byte, shown(letter)));
    }
  }
  return {};
}

Result<void> read_model(const JsonNode& root, TokenizerParts& parts) {
  LAC_TRY(const JsonNode model, root.at("model"));
  LAC_TRY(const std::string_view type, type_of(model));
  if (type != "BPE") return unsupported_type(model, type, "BPE");
  LAC_TRY_VOID(model.only_keys({"type", "dropout", "unk_token", "continuing_subword_prefix",
                                "end_of_word_suffix", "fuse_unk", "byte_fallback", "ignore_merges",
                                "vocab", "merges"}));
  for (std::string_view key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    const std::optional<JsonNode> affix = model.find(key);
    if (!affix) continue;
    LAC_TRY(const std::string_view text, affix->text());
    if (!text.empty()) return affix->error(ErrorCode::kUnsupported, shown(text) + ", want null");
  }
  if (const std::optional<JsonNode> dropout = model.find("dropout")) {
    double share = 1;
    if (dropout->value().get(share) || share != 0) {
      return dropout->error(ErrorCode::kUnsupported, "random merges, want null or 0");
    }
  }
  LAC_TRY(parts.ignore_merges, flag(model, "ignore_merges", false));
  LAC_TRY_VOID(read_vocabulary(model, parts));
  LAC_TRY_VOID(find_byte_tokens(model, parts));
  return read_merges(model, parts);
}

// "bos_token": "<s>", or an object with "content", or null.
Result<std::optional<std::string>> read_token_name(const JsonNode& root, std::string_view key) {
  const std::optional<JsonNode> node = root.find(key);
  if (!node) return std::optional<std::string>();
  const std::optional<JsonNode> content = node->find("content");
  LAC_TRY(const std::string_view text, content ? content->text() : node->text());
  return std::optional<std::string>(text);
}

}  // namespace

Result<TokenizerParts> read_tokenizer_json(std::string_view json) {
  JsonParser parser;
  LAC_TRY(const JsonNode root, JsonNode::parse(json, parser));
  LAC_TRY_VOID(root.only_keys({"version", "truncation", "padding", "added_tokens", "normalizer",
                               "pre_tokenizer", "post_processor", "decoder", "model"}));
  TokenizerParts parts;
  LAC_TRY_VOID(read_model(root, parts));
  LAC_TRY_VOID(read_added_tokens(root, parts));
  LAC_TRY_VOID(check_normalizer(root));
  LAC_TRY_VOID(read_pre_tokenizer(root, parts.pre_tokenizer));
  LAC_TRY_VOID(check_decoder(root));
  if (const std::optional<JsonNode> post = root.find("post_processor")) {
    LAC_TRY_VOID(read_post_processor(*post, 0, parts));
  }
  return parts;
}

Result<TokenizerConfig> read_tokenizer_config(std::string_view json) {
  JsonParser parser;
  LAC_TRY(const JsonNode root, JsonNode::parse(json, parser));
  TokenizerConfig config;
  LAC_TRY(config.bos_token, read_token_name(root, "bos_token"));
  LAC_TRY(config.eos_token, read_token_name(root, "eos_token"));
  if (const std::optional<JsonNode> add_bos = root.find("add_bos_token")) {
    LAC_TRY(config.add_bos_token, add_bos->boolean());
  }
  return config;
}

}  // namespace lacuna
