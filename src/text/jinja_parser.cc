// SPDX-License-Identifier: Apache-2.0
#include "text/jinja_parser.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <optional>

#include "text/jinja_lexer.h"
#include "text/jinja_print.h"

namespace lacuna::jinja {
namespace {

using Words = std::initializer_list<std::string_view>;

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  Block run() { return parse_block({}); }

 private:
  // ---- tokens

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
    explicit Nested(Parser& parser) : p(parser) {
      if (++p.nesting_ > kMaxNesting)
        p.error(fmt::format("nested more than {} deep", kMaxNesting), p.now().line);
    }
    ~Nested() { --p.nesting_; }
    Parser& p;
  };

  // ---- expressions

  ExprPtr node(Expr::Kind kind, int line, std::vector<ExprPtr> children = {}) const {
    auto e = std::make_unique<Expr>();
    e->kind = kind;
    e->line = line;
    e->children = std::move(children);
    for (const ExprPtr& child : e->children) {
      if (child) e->height = std::max(e->height, child->height + 1);
    }
    if (e->height > kMaxNesting)
      error(fmt::format("an expression nested more than {} deep", kMaxNesting), line);
    return e;
  }
  static std::vector<ExprPtr> list() { return {}; }
  template <class... Rest>
  static std::vector<ExprPtr> list(ExprPtr first, Rest... rest) {
    std::vector<ExprPtr> out;
    out.push_back(std::move(first));
    (out.push_back(std::move(rest)), ...);
    return out;
  }

  ExprPtr parse_expression(bool with_condition = true) {
    const Nested nested(*this);
    return with_condition ? parse_condition() : parse_or();
  }

  ExprPtr parse_condition() {
    ExprPtr e = parse_or();
    while (is_word(now(), "if")) {
      const int line = take().line;
      ExprPtr condition = parse_or();
      ExprPtr otherwise = skip_word("else") ? parse_expression() : nullptr;
      e = node(Expr::Kind::kCondition, line,
               list(std::move(condition), std::move(e), std::move(otherwise)));
    }
    return e;
  }

  ExprPtr parse_or() {
    ExprPtr left = parse_and();
    while (is_word(now(), "or")) {
      const int line = take().line;
      left = node(Expr::Kind::kOr, line, list(std::move(left), parse_and()));
    }
    return left;
  }

  ExprPtr parse_and() {
    ExprPtr left = parse_not();
    while (is_word(now(), "and")) {
      const int line = take().line;
      left = node(Expr::Kind::kAnd, line, list(std::move(left), parse_not()));
    }
    return left;
  }

  ExprPtr parse_not() {
    if (!is_word(now(), "not")) return parse_compare();
    const Nested nested(*this);
    const int line = take().line;
    return node(Expr::Kind::kNot, line, list(parse_not()));
  }

  std::optional<Op> take_comparison() {
    static constexpr std::array<std::pair<std::string_view, Op>, 6> kOps = {{{"==", Op::kEq},
                                                                             {"!=", Op::kNe},
                                                                             {"<", Op::kLt},
                                                                             {"<=", Op::kLe},
                                                                             {">", Op::kGt},
                                                                             {">=", Op::kGe}}};
    for (const auto& [text, op] : kOps) {
      if (skip_op(text)) return op;
    }
    if (skip_word("in")) return Op::kIn;
    if (is_word(now(), "not") && is_word(look(), "in")) {
      take();
      take();
      return Op::kNotIn;
    }
    return std::nullopt;
  }

  ExprPtr parse_compare() {
    const int line = now().line;
    ExprPtr first = parse_sum();
    std::vector<ExprPtr> operands = list(std::move(first));
    std::vector<Op> ops;
    while (const std::optional<Op> op = take_comparison()) {
      ops.push_back(*op);
      operands.push_back(parse_sum());
    }
    if (ops.empty()) return std::move(operands[0]);
    ExprPtr e = node(Expr::Kind::kCompare, line, std::move(operands));
    e->ops = std::move(ops);
    return e;
  }

  ExprPtr binary(Op op, int line, ExprPtr left, ExprPtr right) const {
    ExprPtr e = node(Expr::Kind::kBinary, line, list(std::move(left), std::move(right)));
    e->ops = {op};
    return e;
  }

  ExprPtr parse_sum() {
    ExprPtr left = parse_concat();
    while (is_op(now(), "+") || is_op(now(), "-")) {
      const Token& t = take();
      left = binary(t.text == "+" ? Op::kAdd : Op::kSub, t.line, std::move(left), parse_concat());
    }
    return left;
  }

  ExprPtr parse_concat() {
    const int line = now().line;
    std::vector<ExprPtr> parts = list(parse_product());
    while (skip_op("~")) parts.push_back(parse_product());
    if (parts.size() == 1) return std::move(parts[0]);
    return node(Expr::Kind::kConcat, line, std::move(parts));
  }

  ExprPtr parse_product() {
    static constexpr std::array<std::pair<std::string_view, Op>, 4> kOps = {
        {{"*", Op::kMul}, {"/", Op::kDiv}, {"//", Op::kFloorDiv}, {"%", Op::kMod}}};
    ExprPtr left = parse_power();
    while (true) {
      const auto* found = std::find_if(kOps.begin(), kOps.end(),
                                       [&](const auto& op) { return is_op(now(), op.first); });
      if (found == kOps.end()) return left;
      const int line = take().line;
      left = binary(found->second, line, std::move(left), parse_power());
    }
  }

  // Left to right, unlike Python, and a sign binds tighter: both as in jinja2.
  ExprPtr parse_power() {
    ExprPtr left = parse_unary(true);
    while (is_op(now(), "**")) {
      const int line = take().line;
      left = binary(Op::kPow, line, std::move(left), parse_unary(true));
    }
    return left;
  }

  ExprPtr parse_unary(bool with_filters) {
    const Nested nested(*this);
    ExprPtr e;
    if (is_op(now(), "-") || is_op(now(), "+")) {
      const Token& t = take();
      e = node(t.text == "-" ? Expr::Kind::kNegative : Expr::Kind::kPositive, t.line,
               list(parse_unary(false)));
    } else {
      e = parse_primary();
    }
    e = parse_postfix(std::move(e));
    return with_filters ? parse_filters_and_tests(std::move(e)) : std::move(e);
  }

  ExprPtr constant(Value value, int line) const {
    ExprPtr e = node(Expr::Kind::kConst, line);
    e->value = std::move(value);
    return e;
  }

  ExprPtr parse_primary() {
    const Token& t = now();
    if (t.kind == Token::Kind::kName) {
      take();
      if (t.text == "true" || t.text == "True") return constant(Value(true), t.line);
      if (t.text == "false" || t.text == "False") return constant(Value(false), t.line);
      if (t.text == "none" || t.text == "None") return constant(Value(), t.line);
      ExprPtr e = node(Expr::Kind::kName, t.line);
      e->name = t.text;
      note_name(t.text);
      return e;
    }
    if (t.kind == Token::Kind::kString) {
      std::string text;
      while (now().kind == Token::Kind::kString) text += take().text;
      return constant(Value::string(text), t.line);
    }
    if (t.kind == Token::Kind::kNumber) return constant(take().value, t.line);
    if (skip_op("(")) {
      ExprPtr e = parse_tuple(true, true);
      expect_op(")");
      return e;
    }
    if (skip_op("[")) return parse_list(t.line);
    if (skip_op("{")) return parse_dict(t.line);
    error(fmt::format("unexpected {}", describe(t)), t.line);
  }

  // Macros get `caller`, `kwargs` and `varargs` only when their body reads them.
  void note_name(const std::string& name) {
    for (MacroDef* macro : macros_) {
      if (name == "caller") macro->uses_caller = true;
      if (name == "kwargs") macro->uses_kwargs = true;
      if (name == "varargs") macro->uses_varargs = true;
    }
  }

  bool at_tuple_end() const {
    return now().kind == Token::Kind::kVariableEnd || now().kind == Token::Kind::kBlockEnd ||
           is_op(now(), ")");
  }

  // One expression, or several with commas between them.
  ExprPtr parse_tuple(bool with_condition, bool in_parentheses, std::string_view end_word = {}) {
    const int line = now().line;
    std::vector<ExprPtr> items;
    bool is_tuple = false;
    while (!at_tuple_end() && !(!end_word.empty() && is_word(now(), end_word))) {
      items.push_back(parse_expression(with_condition));
      if (!skip_op(",")) break;
      is_tuple = true;
    }
    if (!is_tuple && !items.empty()) return std::move(items[0]);
    if (items.empty() && !in_parentheses)
      error(fmt::format("expected an expression, found {}", describe(now())), line);
    return node(Expr::Kind::kTuple, line, std::move(items));
  }

  ExprPtr parse_list(int line) {
    std::vector<ExprPtr> items;
    while (!is_op(now(), "]")) {
      if (!items.empty()) expect_op(",");
      if (is_op(now(), "]")) break;
      items.push_back(parse_expression());
    }
    expect_op("]");
    return node(Expr::Kind::kList, line, std::move(items));
  }

  ExprPtr parse_dict(int line) {
    std::vector<ExprPtr> items;
    while (!is_op(now(), "}")) {
      if (!items.empty()) expect_op(",");
      if (is_op(now(), "}")) break;
      items.push_back(parse_expression());
      expect_op(":");
      items.push_back(parse_expression());
    }
    expect_op("}");
    return node(Expr::Kind::kDict, line, std::move(items));
  }

  ExprPtr parse_postfix(ExprPtr e) {
    while (true) {
      if (is_op(now(), ".") || is_op(now(), "[")) {
        e = parse_subscript(std::move(e));
      } else if (is_op(now(), "(")) {
        e = parse_call(std::move(e));
      } else {
        return e;
      }
    }
  }

  ExprPtr parse_subscript(ExprPtr object) {
    const int line = now().line;
    if (skip_op(".")) {
      const Token& t = take();
      if (t.kind == Token::Kind::kName) {
        ExprPtr e = node(Expr::Kind::kAttribute, line, list(std::move(object)));
        e->name = t.text;
        return e;
      }
      if (t.kind != Token::Kind::kNumber || !t.value.is_int())
        error("expected name or number", t.line);
      return node(Expr::Kind::kItem, line, list(std::move(object), constant(t.value, line)));
    }
    expect_op("[");
    ExprPtr start;
    if (!is_op(now(), ":")) start = parse_expression();
    ExprPtr e = is_op(now(), ":") ? parse_slice(std::move(object), std::move(start))
                                  : parse_key(std::move(object), std::move(start));
    expect_op("]");
    return e;
  }

  ExprPtr parse_key(ExprPtr object, ExprPtr first) {
    const int line = first->line;
    if (!is_op(now(), ","))
      return node(Expr::Kind::kItem, line, list(std::move(object), std::move(first)));
    std::vector<ExprPtr> keys = list(std::move(first));
    while (skip_op(",")) keys.push_back(parse_expression());
    return node(Expr::Kind::kItem, line,
                list(std::move(object), node(Expr::Kind::kTuple, line, std::move(keys))));
  }

  ExprPtr parse_slice(ExprPtr object, ExprPtr start) {
    const int line = now().line;
    const auto part = [&]() -> ExprPtr {
      if (is_op(now(), ":") || is_op(now(), "]") || is_op(now(), ",")) return nullptr;
      return parse_expression();
    };
    expect_op(":");
    ExprPtr stop = part();
    ExprPtr step = skip_op(":") ? part() : nullptr;
    return node(Expr::Kind::kSlice, line,
                list(std::move(object), std::move(start), std::move(stop), std::move(step)));
  }

  // Arguments in parentheses, appended to the children and names of `e`.
  void parse_arguments(Expr& e) {
    expect_op("(");
    while (!is_op(now(), ")")) {
      if (is_op(now(), "*") || is_op(now(), "**"))
        unsupported("unpacking arguments with * or **", now().line);
      if (now().kind == Token::Kind::kName && is_op(look(), "=")) {
        std::string name = take().text;
        take();
        e.named.emplace_back(std::move(name), parse_expression());
        e.height = std::max(e.height, e.named.back().second->height + 1);
      } else {
        if (!e.named.empty()) error("positional argument after a named one", now().line);
        e.children.push_back(parse_expression());
        e.height = std::max(e.height, e.children.back()->height + 1);
      }
      if (!skip_op(",")) break;
    }
    expect_op(")");
    if (e.height > kMaxNesting)
      error(fmt::format("an expression nested more than {} deep", kMaxNesting), e.line);
  }

  ExprPtr parse_call(ExprPtr callee) {
    ExprPtr e = node(Expr::Kind::kCall, now().line, list(std::move(callee)));
    parse_arguments(*e);
    return e;
  }

  ExprPtr parse_filters_and_tests(ExprPtr e) {
    while (true) {
      if (skip_op("|")) {
        e = parse_one_filter(std::move(e));
      } else if (is_word(now(), "is")) {
        e = parse_test(std::move(e));
      } else if (is_op(now(), "(")) {
        e = parse_call(std::move(e));
      } else {
        return e;
      }
    }
  }

  std::string dotted_name() {
    std::string name = expect_name();
    while (skip_op(".")) name += '.' + expect_name();
    return name;
  }

  ExprPtr parse_one_filter(ExprPtr input) {
    const int line = now().line;
    const std::string name = dotted_name();
    ExprPtr e = node(Expr::Kind::kFilter, line, list(std::move(input)));
    e->builtin = find_filter(name);
    e->name = name;
    if (e->builtin == nullptr) unsupported(fmt::format("filter '{}'", name), line);
    if (is_op(now(), "(")) parse_arguments(*e);
    return e;
  }

  bool at_test_argument() const {
    switch (now().kind) {
      case Token::Kind::kName:
        return now().text != "else" && now().text != "or" && now().text != "and";
      case Token::Kind::kString:
      case Token::Kind::kNumber:
        return true;
      default:
        return is_op(now(), "[") || is_op(now(), "{");
    }
  }

  ExprPtr parse_test(ExprPtr input) {
    const int line = take().line;
    const bool negated = skip_word("not");
    const std::string name = dotted_name();
    ExprPtr e = node(Expr::Kind::kTest, line, list(std::move(input)));
    e->builtin = find_test(name);
    e->name = name;
    if (e->builtin == nullptr) unsupported(fmt::format("test '{}'", name), line);
    if (is_op(now(), "(")) {
      parse_arguments(*e);
    } else if (at_test_argument()) {
      if (is_word(now(), "is")) error("tests cannot be chained with is", now().line);
      e->children.push_back(parse_postfix(parse_primary()));
      e->height = std::max(e->height, e->children.back()->height + 1);
    }
    return negated ? node(Expr::Kind::kNot, line, list(std::move(e))) : std::move(e);
  }

  // ---- statements

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

  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  int nesting_ = 0;
  int fors_ = 0;                   // for blocks around this point
  int loops_ = 0;                  // those that break can leave: in the same function
  std::vector<MacroDef*> macros_;  // macros and call blocks around this point
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
