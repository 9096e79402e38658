// SPDX-License-Identifier: Apache-2.0
#include "text/tokenizer.h"

#include <fmt/core.h>

#include <algorithm>
#include <unordered_map>

#include "base/mmap.h"
#include "text/added_tokens.h"
#include "text/bpe.h"
#include "text/json_node.h"
#include "text/pretokenizer.h"
#include "text/tokenizer_json.h"
#include "text/utf8.h"

namespace lacuna {
namespace {

// What a token of the vocabulary stands for. Tokens with a character outside the byte letters were
// never made by merging bytes: they stand for themselves, as in Hugging Face's decoder.
std::string bytes_of(std::string_view letters) {
  std::string bytes;
  for (std::size_t pos = 0; pos < letters.size();) {
    const Utf8Char c = utf8_at(letters, pos);
    const int byte = letter_to_byte(c.code);
    if (c.kind != Utf8Char::Kind::kWhole || byte < 0) return std::string(letters);
    bytes.push_back(static_cast<char>(byte));
    pos += c.length;
  }
  return bytes;
}

Bpe make_bpe(const TokenizerParts& parts) {
  std::unordered_map<std::string, int> whole_pieces;
  if (parts.ignore_merges) {
    for (const auto& [letters, id] : parts.vocabulary) whole_pieces.emplace(bytes_of(letters), id);
  }
  return Bpe(parts.byte_ids, parts.merges, std::move(whole_pieces));
}

std::string_view as_text(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

}  // namespace

struct Tokenizer::Impl {
  explicit Impl(TokenizerParts parts);
  Result<void> apply(const TokenizerConfig& config);
  Result<std::optional<int>> named(const std::optional<std::string>& content,
                                   std::string_view key) const;

  AddedTokens added;
  PreTokenizer pre_tokenizer;
  Bpe bpe;
  std::vector<std::string> bytes;            // by id
  std::vector<bool> special;                 // by id
  std::unordered_map<std::string, int> ids;  // by content
  std::vector<int> prefix, suffix;
  std::optional<int> bos, eos;
  std::optional<bool> add_bos;
};

Tokenizer::Impl::Impl(TokenizerParts parts)
    : added(parts.added),
      pre_tokenizer(std::move(parts.pre_tokenizer)),
      bpe(make_bpe(parts)),
      ids(std::move(parts.vocabulary)),
      prefix(std::move(parts.prefix)),
      suffix(std::move(parts.suffix)) {
  int last = -1;
  for (const auto& [content, id] : ids) last = std::max(last, id);
  for (const AddedToken& token : parts.added) last = std::max(last, token.id);
  bytes.resize(last + 1);
  special.resize(last + 1);
  for (const auto& [content, id] : ids) bytes[id] = bytes_of(content);
  for (AddedToken& token : parts.added) {
    bytes[token.id] = token.content;
    special[token.id] = token.special;
    ids.emplace(std::move(token.content), token.id);
  }
}

Result<std::optional<int>> Tokenizer::Impl::named(const std::optional<std::string>& content,
                                                  std::string_view key) const {
  if (!content) return std::optional<int>();
  const auto at = ids.find(*content);
  if (at != ids.end()) return std::optional<int>(at->second);
  return Error{ErrorCode::kCorrupt,
               fmt::format("{}: {} is no token of tokenizer.json", key, shown(*content))};
}

Result<void> Tokenizer::Impl::apply(const TokenizerConfig& config) {
  LAC_TRY(bos, named(config.bos_token, "bos_token"));
  LAC_TRY(eos, named(config.eos_token, "eos_token"));
  add_bos = config.add_bos_token;
  return {};
}

Tokenizer::Tokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Result<Tokenizer> Tokenizer::parse(std::string_view tokenizer_json, std::string_view name) {
  Result<TokenizerParts> parts = read_tokenizer_json(tokenizer_json);
  if (!parts) return std::move(parts).error().in(std::string(name));
  return Tokenizer(std::make_unique<Impl>(*std::move(parts)));
}

Result<Tokenizer> Tokenizer::open(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "tokenizer.json";
  LAC_TRY(const MappedFile file, MappedFile::open(path));
  LAC_TRY(Tokenizer tokenizer, parse(as_text(file), path.string()));

  const std::filesystem::path config_path = folder / "tokenizer_config.json";
  std::error_code ignored;
  if (!std::filesystem::exists(config_path, ignored)) return tokenizer;
  LAC_TRY(const std::string config_text, read_text_file(config_path));
  Result<TokenizerConfig> config = read_tokenizer_config(config_text);
  if (!config) return std::move(config).error().in(config_path.string());
  if (auto applied = tokenizer.impl_->apply(*config); !applied) {
    return std::move(applied).error().in(config_path.string());
  }
  return tokenizer;
}

std::vector<int> Tokenizer::encode(std::string_view text, SpecialTokens special) const {
  const TextPart part{text, special};
  return encode_parts({&part, 1});
}

std::vector<int> Tokenizer::encode_parts(std::span<const TextPart> parts) const {
  std::string text;
  std::vector<PlainRange> plain;
  for (const TextPart& part : parts) {
    const std::size_t begin = text.size();
    text += repair_utf8(part.text);
    if (part.special == SpecialTokens::kParse || begin == text.size()) continue;
    if (!plain.empty() && plain.back().end == begin) {
      plain.back().end = text.size();
    } else {
      plain.push_back({begin, text.size()});
    }
  }

  std::vector<int> ids;
  PreTokenizeScratch scratch;
  BpeScratch bpe_scratch;
  for (const Segment& segment : impl_->added.split(text, plain)) {
    if (segment.id >= 0) {
      ids.push_back(segment.id);
      continue;
    }
    const std::string_view view(text.data() + segment.begin, segment.end - segment.begin);
    impl_->pre_tokenizer.split(view, scratch);
    for (std::string_view piece : scratch.pieces) impl_->bpe.encode(piece, bpe_scratch, ids);
  }
  return ids;
}

std::string_view Tokenizer::token_bytes(int id) const {
  return id < 0 || id >= vocabulary_size() ? std::string_view() : impl_->bytes[id];
}

std::string Tokenizer::decode(std::span<const int> ids, bool keep_special) const {
  std::string text;
  for (int id : ids) {
    if (keep_special || !is_special(id)) text += token_bytes(id);
  }
  return text;
}

int Tokenizer::vocabulary_size() const { return static_cast<int>(impl_->bytes.size()); }

bool Tokenizer::is_special(int id) const {
  return id >= 0 && id < vocabulary_size() && impl_->special[id];
}

std::optional<int> Tokenizer::find_token(std::string_view content) const {
  const auto at = impl_->ids.find(std::string(content));
  return at == impl_->ids.end() ? std::nullopt : std::optional<int>(at->second);
}

std::optional<int> Tokenizer::bos_token() const { return impl_->bos; }
std::optional<int> Tokenizer::eos_token() const { return impl_->eos; }
std::span<const int> Tokenizer::prefix_tokens() const { return impl_->prefix; }
std::span<const int> Tokenizer::suffix_tokens() const { return impl_->suffix; }

bool Tokenizer::add_bos() const {
  if (impl_->add_bos) return *impl_->add_bos;
  return impl_->bos && !impl_->prefix.empty() && impl_->prefix.front() == *impl_->bos;
}

}  // namespace lacuna
