// SPDX-License-Identifier: Apache-2.0
// Walks a parsed template: one Machine per render. It owns the scopes and namespaces that values
// point to, and the budget that ends a render which takes too much.
//
// Scoping is jinja2's: for, macro, call, filter, with and set blocks have a scope of their own,
// `if` has not; an inner scope reads the outer ones and never writes them, except through a
// namespace.
#pragma once

#include <deque>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja_ast.h"
#include "text/jinja_loop.h"

namespace lacuna::jinja {

struct Scope {
  Scope* parent = nullptr;
  std::vector<std::pair<std::string_view, Value>> names;  // names live in the tree
};

class Machine {
 public:
  // `variables` is a dict; the tree must outlive the machine.
  Machine(const Block& root, Value variables, const Limits& limits);

  Text render();                      // throws Failure, with the line
  int line() const { return line_; }  // of what is being evaluated
  Budget& budget() { return budget_; }

  // For filters, methods and functions.
  Value call(const Value& callee, const Args& args);
  Value get_attribute(const Value& object, const std::string& name);  // object.name
  Value get_item(const Value& object, const Value& key);              // object[key]
  Text text_of(const Value& v);                                       // str(v)
  Namespace* new_namespace();

 private:
  enum class Flow { kNext, kBreak, kContinue };

  // jinja_machine.cc: statements
  Flow run(const Block& block, Scope& scope);
  Flow run(const Stmt& s, Scope& scope);
  Flow run_if(const Stmt& s, Scope& scope);
  Flow run_for(const Stmt& s, Scope& scope);
  Flow run_iteration(const Stmt& s, Scope& scope, const std::shared_ptr<Loop>& loop);
  Flow run_with(const Stmt& s, Scope& scope);
  void run_set_block(const Stmt& s, Scope& scope);
  void run_call_block(const Stmt& s, Scope& scope);
  Flow capture(const Block& block, Scope& scope, Text& into);
  void assign(const Target& target, const Value& value, Scope& scope);
  void set_name(std::string_view name, Value value, Scope& scope);
  void write(const Text& text);
  Scope& new_scope(Scope* parent);
  Value call_macro(const Callable& callable, const Args& args);
  void bind_macro(const MacroDef& macro, const Args& given, Scope& scope);

  // jinja_expressions.cc
  Value eval(const Expr& e, Scope& scope);
  Value eval_name(const Expr& e, Scope& scope);
  Value eval_dict(const Expr& e, Scope& scope);
  Value eval_compare(const Expr& e, Scope& scope);
  Value eval_concat(const Expr& e, Scope& scope);
  Value eval_slice(const Expr& e, Scope& scope);
  Value eval_call(const Expr& e, Scope& scope);
  Args eval_args(const Expr& e, Scope& scope);
  Value apply(const Expr& e, const Value& input, Scope& scope);  // one filter or test
  Value apply_filters(const Expr& last, const Value& input, Scope& scope);
  std::vector<Value> eval_all(const Expr& e, Scope& scope);
  const Value* find_name(std::string_view name, Scope& scope) const;

  const Block& root_;
  Value variables_;
  Budget budget_;
  std::deque<Scope> scopes_;
  std::deque<Namespace> namespaces_;
  std::uint64_t captured_ = 0;  // macros made so far: a scope that a macro may hold is kept
  Text* out_ = nullptr;
  int line_ = 0;
};

}  // namespace lacuna::jinja
