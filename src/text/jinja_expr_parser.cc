// SPDX-License-Identifier: Apache-2.0
#include "text/jinja_expr_parser.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "text/jinja_print.h"

namespace lacuna::jinja {

ExprPtr ExprParser::node(Expr::Kind kind, int line, std::vector<ExprPtr> children) const {
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

ExprPtr ExprParser::parse_expression(bool with_condition) {
  const Nested nested(*this);
  return with_condition ? parse_condition() : parse_or();
}

ExprPtr ExprParser::parse_condition() {
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

ExprPtr ExprParser::parse_or() {
  ExprPtr left = parse_and();
  while (is_word(now(), "or")) {
    const int line = take().line;
    left = node(Expr::Kind::kOr, line, list(std::move(left), parse_and()));
  }
  return left;
}

ExprPtr ExprParser::parse_and() {
  ExprPtr left = parse_not();
  while (is_word(now(), "and")) {
    const int line = take().line;
    left = node(Expr::Kind::kAnd, line, list(std::move(left), parse_not()));
  }
  return left;
}

ExprPtr ExprParser::parse_not() {
  if (!is_word(now(), "not")) return parse_compare();
  const Nested nested(*this);
  const int line = take().line;
  return node(Expr::Kind::kNot, line, list(parse_not()));
}

std::optional<Op> ExprParser::take_comparison() {
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

ExprPtr ExprParser::parse_compare() {
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

ExprPtr ExprParser::binary(Op op, int line, ExprPtr left, ExprPtr right) const {
  ExprPtr e = node(Expr::Kind::kBinary, line, list(std::move(left), std::move(right)));
  e->ops = {op};
  return e;
}

ExprPtr ExprParser::parse_sum() {
  ExprPtr left = parse_concat();
  while (is_op(now(), "+") || is_op(now(), "-")) {
    const Token& t = take();
    left = binary(t.text == "+" ? Op::kAdd : Op::kSub, t.line, std::move(left), parse_concat());
  }
  return left;
}

ExprPtr ExprParser::parse_concat() {
  const int line = now().line;
  std::vector<ExprPtr> parts = list(parse_product());
  while (skip_op("~")) parts.push_back(parse_product());
  if (parts.size() == 1) return std::move(parts[0]);
  return node(Expr::Kind::kConcat, line, std::move(parts));
}

ExprPtr ExprParser::parse_product() {
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

ExprPtr ExprParser::parse_power() {
  ExprPtr left = parse_unary(true);
  while (is_op(now(), "**")) {
    const int line = take().line;
    left = binary(Op::kPow, line, std::move(left), parse_unary(true));
  }
  return left;
}

ExprPtr ExprParser::parse_unary(bool with_filters) {
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

ExprPtr ExprParser::constant(Value value, int line) const {
  ExprPtr e = node(Expr::Kind::kConst, line);
  e->value = std::move(value);
  return e;
}

ExprPtr ExprParser::parse_primary() {
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

void ExprParser::note_name(const std::string& name) {
  for (MacroDef* macro : macros_) {
    if (name == "caller") macro->uses_caller = true;
    if (name == "kwargs") macro->uses_kwargs = true;
    if (name == "varargs") macro->uses_varargs = true;
  }
}

bool ExprParser::at_tuple_end() const {
  return now().kind == Token::Kind::kVariableEnd || now().kind == Token::Kind::kBlockEnd ||
         is_op(now(), ")");
}

ExprPtr ExprParser::parse_tuple(bool with_condition, bool in_parentheses,
                                std::string_view end_word) {
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

ExprPtr ExprParser::parse_list(int line) {
  std::vector<ExprPtr> items;
  while (!is_op(now(), "]")) {
    if (!items.empty()) expect_op(",");
    if (is_op(now(), "]")) break;
    items.push_back(parse_expression());
  }
  expect_op("]");
  return node(Expr::Kind::kList, line, std::move(items));
}

ExprPtr ExprParser::parse_dict(int line) {
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

ExprPtr ExprParser::parse_postfix(ExprPtr e) {
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

ExprPtr ExprParser::parse_subscript(ExprPtr object) {
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

ExprPtr ExprParser::parse_key(ExprPtr object, ExprPtr first) {
  const int line = first->line;
  if (!is_op(now(), ","))
    return node(Expr::Kind::kItem, line, list(std::move(object), std::move(first)));
  std::vector<ExprPtr> keys = list(std::move(first));
  while (skip_op(",")) keys.push_back(parse_expression());
  return node(Expr::Kind::kItem, line,
              list(std::move(object), node(Expr::Kind::kTuple, line, std::move(keys))));
}

ExprPtr ExprParser::parse_slice(ExprPtr object, ExprPtr start) {
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

void ExprParser::parse_arguments(Expr& e) {
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

ExprPtr ExprParser::parse_call(ExprPtr callee) {
  ExprPtr e = node(Expr::Kind::kCall, now().line, list(std::move(callee)));
  parse_arguments(*e);
  return e;
}

ExprPtr ExprParser::parse_filters_and_tests(ExprPtr e) {
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

std::string ExprParser::dotted_name() {
  std::string name = expect_name();
  while (skip_op(".")) name += '.' + expect_name();
  return name;
}

ExprPtr ExprParser::parse_one_filter(ExprPtr input) {
  const int line = now().line;
  const std::string name = dotted_name();
  ExprPtr e = node(Expr::Kind::kFilter, line, list(std::move(input)));
  e->builtin = find_filter(name);
  e->name = name;
  if (e->builtin == nullptr) unsupported(fmt::format("filter '{}'", name), line);
  if (is_op(now(), "(")) parse_arguments(*e);
  return e;
}

bool ExprParser::at_test_argument() const {
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

ExprPtr ExprParser::parse_test(ExprPtr input) {
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

}  // namespace lacuna::jinja
