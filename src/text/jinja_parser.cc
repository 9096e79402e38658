// SPDX-License-Identifier: Apache-2.0
#include "text/jinja_parser.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <initializer_list>

#include "text/jinja_expr_parser.h"

namespace lacuna::jinja {
namespace {

using Words = std::initializer_list<std::string_view>;

class Parser : private ExprParser {
 public:
  explicit Parser(std::vector<Token> tokens) : ExprParser(std::move(tokens)) {}

  Block run() { return parse_block({}); }

 private:
  static bool is_one_of(const Token& t, Words words) {
    return std::any_of(words.begin(), words.end(),
                       [&](std::string_view w) { return is_word(t, w); });
  }

  // Statements up to a tag that begins with one of `ends` (its name is the current token then), or
  // to the end of the template when there are none.
  Block parse_block(Words ends) {
    const Nested nested(*this);
    const int line = now().line;
    Block block;
    while (true) {
      const Token& t = take();
      switch (t.kind) {
        case Token::Kind::kEnd:
          if (ends.size() > 0)
            error(fmt::format("the template ends without '{}'", *(ends.end() - 1)), line);
          return block;
        case Token::Kind::kVariableBegin:
          block.push_back(statement(Stmt::Kind::kPrint, t.line));
          block.back()->expr = parse_tuple(true, false);
          expect(Token::Kind::kVariableEnd, "end of print statement");
          break;
        case Token::Kind::kBlockBegin:
          if (is_one_of(now(), ends)) return block;
          parse_statement(block);
          expect(Token::Kind::kBlockEnd, "end of statement block");
          break;
        default:
          block.push_back(statement(Stmt::Kind::kText, t.line));
          block.back()->text = t.text;
      }
    }
  }

  static std::unique_ptr<Stmt> statement(Stmt::Kind kind, int line) {
    auto s = std::make_unique<Stmt>();
    s->kind = kind;
    s->line = line;
    return s;
  }

  // The rest of a tag, then a block; the tag that ends it is taken up to and with its name.
  Block parse_body(Words ends) {
    skip_op(":");
    expect(Token::Kind::kBlockEnd, "end of statement block");
    return parse_block(ends);
  }

  void parse_statement(Block& block) {
    const Token& t = take();
    const std::string& tag = t.text;
    if (t.kind != Token::Kind::kName) error("tag name expected", t.line);
    if (tag == "print") return parse_print(block);
    static constexpr std::array<std::string_view, 6> kRefused = {"include", "import", "from",
                                                                 "extends", "block",  "autoescape"};
    if (std::find(kRefused.begin(), kRefused.end(), tag) != kRefused.end())
      unsupported(fmt::format("tag '{}'", tag), t.line);
    block.push_back(statement(Stmt::Kind::kText, t.line));
    Stmt& s = *block.back();
    if (tag == "if") return parse_if(s);
    if (tag == "for") return parse_for(s);
    if (tag == "set") return parse_set(s);
    if (tag == "with") return parse_with(s);
    if (tag == "macro") return parse_macro(s);
    if (tag == "call") return parse_call_block(s);
    if (tag == "filter") return parse_filter_block(s);
    if (tag == "generation") return parse_generation(s);
    if (tag == "break" || tag == "continue") {
      if (loops_ == 0) error(fmt::format("'{}' outside a loop", tag), t.line);
      s.kind = tag == "break" ? Stmt::Kind::kBreak : Stmt::Kind::kContinue;
      return;
    }
    error(fmt::format("unknown tag '{}'", tag), t.line);
  }

  void parse_print(Block& block) {
    while (now().kind != Token::Kind::kBlockEnd) {
      block.push_back(statement(Stmt::Kind::kPrint, now().line));
      block.back()->expr = parse_expression();
      if (!skip_op(",")) break;
    }
  }

  void parse_if(Stmt& s) {
    s.kind = Stmt::Kind::kIf;
    do {
      ExprPtr condition = parse_tuple(false, false);
      s.branches.push_back({std::move(condition), parse_body({"elif", "else", "endif"})});
    } while (skip_word("elif"));
    if (skip_word("else")) s.otherwise = parse_body({"endif"});
    take();
  }

  void parse_for(Stmt& s) {
    s.kind = Stmt::Kind::kFor;
    ++fors_;
    s.target = parse_target("in", false);
    if (!skip_word("in"))
      error(fmt::format("expected 'in', found {}", describe(now())), now().line);
    s.expr = parse_tuple(false, false, "recursive");
    if (skip_word("if")) s.filter = parse_expression();
    if (is_word(now(), "recursive")) unsupported("a recursive loop", now().line);
    ++loops_;
    s.body = parse_body({"endfor", "else"});
    --loops_;
    if (skip_word("else")) s.otherwise = parse_body({"endfor"});
    --fors_;
    take();
  }

  Target parse_one_target(bool with_attribute) {
    if (skip_op("(")) {
      Target t = parse_target({}, with_attribute);
      expect_op(")");
      return t;
    }
    const int line = now().line;
    Target t{.kind = Target::Kind::kName, .name = expect_name(), .attribute = {}, .parts = {}};
    for (const std::string_view word : {"true", "false", "none", "True", "False", "None"}) {
      if (t.name == word) error(fmt::format("cannot assign to '{}'", word), line);
    }
    if (with_attribute && skip_op(".")) {
      t.kind = Target::Kind::kAttribute;
      t.attribute = expect_name();
    } else if (fors_ > 0 && t.name == "loop") {
      error("cannot assign to the special variable 'loop'", line);
    }
    return t;
  }

  Target parse_target(std::string_view end_word, bool with_attribute) {
    const Nested nested(*this);
    Target first = parse_one_target(with_attribute);
    if (!is_op(now(), ",")) return first;
    Target tuple{.kind = Target::Kind::kTuple, .name = {}, .attribute = {}, .parts = {}};
    tuple.parts.push_back(std::move(first));
    while (skip_op(",")) {
      if (at_tuple_end() || is_op(now(), "=") || (!end_word.empty() && is_word(now(), end_word)))
        break;
      tuple.parts.push_back(parse_one_target(with_attribute));
    }
    return tuple;
  }

  void parse_set(Stmt& s) {
    s.target = parse_target({}, true);
    if (skip_op("=")) {
      s.kind = Stmt::Kind::kSet;
      s.expr = parse_tuple(true, false);
      return;
    }
    s.kind = Stmt::Kind::kSetBlock;
    while (skip_op("|")) s.filter = parse_one_filter(std::move(s.filter));
    s.body = parse_body({"endset"});
    take();
  }

  void parse_with(Stmt& s) {
    s.kind = Stmt::Kind::kWith;
    while (now().kind != Token::Kind::kBlockEnd) {
      if (!s.assignments.empty()) expect_op(",");
      Target target = parse_target({}, false);
      expect_op("=");
      s.assignments.emplace_back(std::move(target), parse_expression());
    }
    s.body = parse_body({"endwith"});
    take();
  }

  // The body of what Python compiles to a function: break cannot leave it.
  Block parse_function_body(MacroDef& macro, std::string_view end) {
    const int loops = std::exchange(loops_, 0);
    macros_.push_back(&macro);
    const int line = now().line;
    Block body = parse_body({end});
    macros_.pop_back();
    const auto caller = std::find(macro.params.begin(), macro.params.end(), "caller");
    if (macro.uses_caller &&
        macro.params.end() - caller > static_cast<std::ptrdiff_t>(macro.defaults.size())) {
      error("a parameter named 'caller' needs a default", line);
    }
    loops_ = loops;
    take();
    return body;
  }

  void parse_signature(MacroDef& macro) {
    expect_op("(");
    while (!is_op(now(), ")")) {
      if (!macro.params.empty()) expect_op(",");
      macro.params.push_back(expect_name());
      if (skip_op("=")) {
        macro.defaults.push_back(parse_expression());
      } else if (!macro.defaults.empty()) {
        error("a parameter without a default follows one with", now().line);
      }
    }
    expect_op(")");
  }

  void parse_macro(Stmt& s) {
    s.kind = Stmt::Kind::kMacro;
    s.macro.name = expect_name();
    parse_signature(s.macro);
    s.macro.body = parse_function_body(s.macro, "endmacro");
  }

  void parse_call_block(Stmt& s) {
    s.kind = Stmt::Kind::kCallBlock;
    s.macro.name = "caller";
    if (is_op(now(), "(")) parse_signature(s.macro);
    s.expr = parse_expression();
    if (s.expr->kind != Expr::Kind::kCall) error("expected a call", s.line);
    s.macro.body = parse_function_body(s.macro, "endcall");
  }

  void parse_filter_block(Stmt& s) {
    s.kind = Stmt::Kind::kFilterBlock;
    s.filter = parse_one_filter(nullptr);
    while (skip_op("|")) s.filter = parse_one_filter(std::move(s.filter));
    s.body = parse_body({"endfilter"});
    take();
  }

  void parse_generation(Stmt& s) {
    s.kind = Stmt::Kind::kGeneration;
    s.macro.body = parse_function_body(s.macro, "endgeneration");
  }

  int fors_ = 0;   // for blocks around this point
  int loops_ = 0;  // those that break can leave: in the same function
};

}  // namespace

Block parse(std::string_view source) {
  if (source.size() > kMaxSourceBytes) {
    throw Failure{.code = ErrorCode::kCorrupt,
                  .message = fmt::format("a template of {} bytes, the most is {}", source.size(),
                                         kMaxSourceBytes)};
  }
  return Parser(tokenize(source)).run();
}

}  // namespace lacuna::jinja
