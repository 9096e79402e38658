// SPDX-License-Identifier: Apache-2.0
// Tokens to expression trees, by recursive descent: the half of the parser below the statements.
#pragma once

#include <fmt/core.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja_ast.h"
#include "text/jinja_lexer.h"
#include "text/jinja_parser.h"

namespace lacuna::jinja {

class ExprParser {
 protected:
  explicit ExprParser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& now() const { return tokens_[at_]; }
  const Token& look() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  const Token& take() {
    const Token& t = tokens_[at_];
    if (t.kind != Token::Kind::kEnd) ++at_;
    return t;
  }

  static bool is_op(const Token& t, std::string_view op) {
    return t.kind == Token::Kind::kOperator && t.text == op;
  }
  static bool is_word(const Token& t, std::string_view word) {
    return t.kind == Token::Kind::kName && t.text == word;
  }
  bool skip_op(std::string_view op) { return is_op(now(), op) && (take(), true); }
  bool skip_word(std::string_view word) { return is_word(now(), word) && (take(), true); }

  static std::string describe(const Token& t) {
    switch (t.kind) {
      case Token::Kind::kVariableEnd:
        return "end of print statement";
      case Token::Kind::kBlockEnd:
        return "end of statement block";
      case Token::Kind::kString:
        return "a string";
      case Token::Kind::kEnd:
        return "end of template";
      default:
        return fmt::format("'{}'", t.text);
    }
  }

  [[noreturn]] void error(const std::string& message, int line) const {
    throw Failure{.code = ErrorCode::kCorrupt, .message = message, .line = line};
  }
  [[noreturn]] void unsupported(const std::string& what, int line) const {
    throw Failure{
        .code = ErrorCode::kUnsupported, .message = what + " is not supported", .line = line};
  }
  void expect_op(std::string_view op) {
    if (!skip_op(op))
      error(fmt::format("expected '{}', found {}", op, describe(now())), now().line);
  }
  void expect(Token::Kind kind, std::string_view what) {
    if (now().kind != kind)
      error(fmt::format("expected {}, found {}", what, describe(now())), now().line);
    take();
  }
  std::string expect_name() {
    if (now().kind != Token::Kind::kName)
      error(fmt::format("expected a name, found {}", describe(now())), now().line);
    return take().text;
  }

  // One level of nesting, for as long as it lives.
  struct Nested {
    explicit Nested(ExprParser& parser) : p(parser) {
      if (++p.nesting_ > kMaxNesting)
        p.error(fmt::format("nested more than {} deep", kMaxNesting), p.now().line);
    }
    ~Nested() { --p.nesting_; }
    ExprParser& p;
  };

  ExprPtr node(Expr::Kind kind, int line, std::vector<ExprPtr> children = {}) const;
  static std::vector<ExprPtr> list() { return {}; }
  template <class... Rest>
  static std::vector<ExprPtr> list(ExprPtr first, Rest... rest) {
    std::vector<ExprPtr> out;
    out.push_back(std::move(first));
    (out.push_back(std::move(rest)), ...);
    return out;
  }
  ExprPtr parse_expression(bool with_condition = true);
  ExprPtr parse_condition();
  ExprPtr parse_or();
  ExprPtr parse_and();
  ExprPtr parse_not();
  std::optional<Op> take_comparison();
  ExprPtr parse_compare();
  ExprPtr binary(Op op, int line, ExprPtr left, ExprPtr right) const;
  ExprPtr parse_sum();
  ExprPtr parse_concat();
  ExprPtr parse_product();
  // Left to right, unlike Python, and a sign binds tighter: both as in jinja2.
  ExprPtr parse_power();
  ExprPtr parse_unary(bool with_filters);
  ExprPtr constant(Value value, int line) const;
  ExprPtr parse_primary();
  // Macros get `caller`, `kwargs` and `varargs` only when their body reads them.
  void note_name(const std::string& name);
  bool at_tuple_end() const;
  // One expression, or several with commas between them.
  ExprPtr parse_tuple(bool with_condition, bool in_parentheses, std::string_view end_word = {});
  ExprPtr parse_list(int line);
  ExprPtr parse_dict(int line);
  ExprPtr parse_postfix(ExprPtr e);
  ExprPtr parse_subscript(ExprPtr object);
  ExprPtr parse_key(ExprPtr object, ExprPtr first);
  ExprPtr parse_slice(ExprPtr object, ExprPtr start);
  // Arguments in parentheses, appended to the children and names of `e`.
  void parse_arguments(Expr& e);
  ExprPtr parse_call(ExprPtr callee);
  ExprPtr parse_filters_and_tests(ExprPtr e);
  std::string dotted_name();
  ExprPtr parse_one_filter(ExprPtr input);
  bool at_test_argument() const;
  ExprPtr parse_test(ExprPtr input);

  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  int nesting_ = 0;
  std::vector<MacroDef*> macros_;  // macros and call blocks around this point
};

}  // namespace lacuna::jinja
