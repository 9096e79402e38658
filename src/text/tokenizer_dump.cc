// SPDX-License-Identifier: Apache-2.0
// Encodes texts for tools/record_tokenizer.py: tokenizer_dump TOKENIZER.json [plain] < TEXTS > IDS
//
// TEXTS end with a NUL byte each. Every text gives one line: its ids in decimal with spaces
// between, or with a last argument "decode" the texts are such lines and every one gives its bytes
// and a NUL.
#include <fmt/core.h>

#include <charconv>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

#include "base/mmap.h"
#include "text/tokenizer.h"

namespace {

std::vector<int> read_ids(std::string_view line) {
  std::vector<int> ids;
  const char* at = line.data();
  const char* end = at + line.size();
  while (at < end) {
    int id = 0;
    const auto [next, error] = std::from_chars(at, end, id);
    if (error != std::errc()) break;
    ids.push_back(id);
    at = next + (next < end);
  }
  return ids;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 2 ? argv[2] : "";
  const auto file = lacuna::MappedFile::open(argc > 1 ? argv[1] : "");
  if (!file.ok()) {
    fmt::print(stderr, "{}\n", file.error().what);
    return 2;
  }
  const std::string_view json(reinterpret_cast<const char*>(file->bytes().data()),
                              file->bytes().size());
  const auto tokenizer = lacuna::Tokenizer::parse(json, argv[1]);
  if (!tokenizer.ok()) {
    fmt::print(stderr, "{}\n", tokenizer.error().what);
    return 2;
  }
  const auto special =
      mode == "plain" ? lacuna::SpecialTokens::kPlainText : lacuna::SpecialTokens::kParse;
  std::string text, out;
  while (std::getline(std::cin, text, '\0')) {
    if (mode == "decode") {
      out += tokenizer->decode(read_ids(text));
      out += '\0';
      continue;
    }
    for (int id : tokenizer->encode(text, special)) out += fmt::format("{} ", id);
    if (!out.empty() && out.back() == ' ')
      out.back() = '\n';
    else
      out += '\n';
  }
  std::cout << out;
  return 0;
}
