// SPDX-License-Identifier: Apache-2.0
// The Machine's expressions: names, subscripts, calls, and the operators of jinja_operators.h.
#include <fmt/core.h>

#include <array>

#include "text/jinja_machine.h"
#include "text/jinja_operators.h"
#include "text/jinja_print.h"

namespace lacuna::jinja {
namespace {

// What jinja2's messages call an object.
std::string object_name(const Value& v) {
  if (v.is_none()) return "None";
  if (v.is_namespace()) return "jinja2.utils.Namespace object";
  if (v.is_loop()) return "jinja2.runtime.LoopContext object";
  return type_name(v) + " object";
}

Value no_attribute(const Value& object, std::string_view name) {
  return Value::undefined(
      fmt::format("'{}' has no attribute {}", object_name(object), quoted(name)));
}

bool is_hidden_name(const std::string& name) {
  return name.starts_with("__") && name.ends_with("__");
}

}  // namespace

const Value* Machine::find_name(std::string_view name, Scope& scope) const {
  for (const Scope* s = &scope; s != nullptr; s = s->parent) {
    for (const auto& [known, value] : s->names) {
      if (known == name) return &value;
    }
  }
  return variables_.as_dict().find(name);
}

Value Machine::eval(const Expr& e, Scope& scope) {
  const Budget::Level level(budget_);
  budget_.step();
  line_ = e.line;
  const auto child = [&](std::size_t i) { return eval(*e.children[i], scope); };
  switch (e.kind) {
    case Expr::Kind::kConst:
      return e.value;
    case Expr::Kind::kName:
      return eval_name(e, scope);
    case Expr::Kind::kTuple:
      return make_tuple(eval_all(e, scope), budget_);
    case Expr::Kind::kList:
      return make_list(eval_all(e, scope), budget_);
    case Expr::Kind::kDict:
      return eval_dict(e, scope);
    case Expr::Kind::kCondition:
      if (truth(child(0))) return child(1);
      if (e.children[2]) return child(2);
      return Value::undefined(fmt::format(
          "the inline if-expression on line {} evaluated to false and no else section was defined.",
          e.line));
    case Expr::Kind::kOr: {
      Value left = child(0);
      return truth(left) ? left : child(1);
    }
    case Expr::Kind::kAnd: {
      Value left = child(0);
      return truth(left) ? child(1) : left;
    }
    case Expr::Kind::kNot:
      return Value(!truth(child(0)));
    case Expr::Kind::kNegative:
      return negative(child(0));
    case Expr::Kind::kPositive:
      return binary(Op::kAdd, Value::integer(0), child(0), budget_);
    case Expr::Kind::kBinary: {
      const Value left = child(0);
      return binary(e.ops[0], left, child(1), budget_);
    }
    case Expr::Kind::kCompare:
      return eval_compare(e, scope);
    case Expr::Kind::kConcat:
      return eval_concat(e, scope);
    case Expr::Kind::kAttribute:
      return get_attribute(child(0), e.name);
    case Expr::Kind::kItem: {
      const Value object = child(0);
      return get_item(object, child(1));
    }
    case Expr::Kind::kSlice:
      return eval_slice(e, scope);
    case Expr::Kind::kCall:
      return eval_call(e, scope);
    case Expr::Kind::kFilter:
    case Expr::Kind::kTest:
      break;
  }
  return apply(e, child(0), scope);
}

std::vector<Value> Machine::eval_all(const Expr& e, Scope& scope) {
  std::vector<Value> out;
  for (const ExprPtr& child : e.children) out.push_back(eval(*child, scope));
  return out;
}

Value Machine::eval_name(const Expr& e, Scope& scope) {
  if (const Value* v = find_name(e.name, scope)) return *v;
  if (const Builtin function = find_function(e.name)) {
    return Value(std::make_shared<const Callable>(
        Callable{.name = e.name, .builtin = function, .self = {}}));
  }
  for (const char* known : {"lipsum", "cycler", "joiner"}) {
    if (e.name == known) fail_unsupported(fmt::format("function '{}' is not supported", known));
  }
  return Value::undefined(fmt::format("{} is undefined", quoted(e.name)));
}

Value Machine::eval_dict(const Expr& e, Scope& scope) {
  auto dict = std::make_shared<Dict>();
  for (std::size_t i = 0; i < e.children.size(); i += 2) {
    const Value key = eval(*e.children[i], scope);
    budget_.allocate(4 * sizeof(Value));
    dict->set(key, eval(*e.children[i + 1], scope));
  }
  return Value(std::shared_ptr<const Dict>(std::move(dict)));
}

Value Machine::eval_compare(const Expr& e, Scope& scope) {
  Value left = eval(*e.children[0], scope);
  for (std::size_t i = 0; i < e.ops.size(); ++i) {
    Value right = eval(*e.children[i + 1], scope);
    if (!compare(e.ops[i], left, right, budget_)) return Value(false);
    left = std::move(right);
  }
  return Value(true);
}

Value Machine::eval_concat(const Expr& e, Scope& scope) {
  Text out;
  for (const ExprPtr& part : e.children) out.append(text_of(eval(*part, scope)));
  budget_.allocate(out.size());
  return Value(std::move(out));
}

Value Machine::eval_slice(const Expr& e, Scope& scope) {
  std::array<Value, 4> part;
  for (std::size_t i = 0; i < part.size(); ++i) {
    if (e.children[i]) part[i] = eval(*e.children[i], scope);
  }
  return slice(part[0], part[1], part[2], part[3], budget_);
}

Args Machine::eval_args(const Expr& e, Scope& scope) {
  Args args;
  for (std::size_t i = 1; i < e.children.size(); ++i)
    args.positional.push_back(eval(*e.children[i], scope));
  for (const auto& [name, value] : e.named) args.named.emplace_back(name, eval(*value, scope));
  return args;
}

Value Machine::eval_call(const Expr& e, Scope& scope) {
  const Value callee = eval(*e.children[0], scope);
  const Args args = eval_args(e, scope);
  line_ = e.line;
  return call(callee, args);
}

Value Machine::apply(const Expr& e, const Value& input, Scope& scope) {
  const Args args = eval_args(e, scope);
  line_ = e.line;
  return e.builtin(*this, input, args);
}

Value Machine::apply_filters(const Expr& last, const Value& input, Scope& scope) {
  if (!last.children[0]) return apply(last, input, scope);
  return apply(last, apply_filters(*last.children[0], input, scope), scope);
}

Value Machine::call(const Value& callee, const Args& args) {
  const Budget::Level level(budget_);
  budget_.step();
  if (callee.is_undefined()) fail(callee.as_undefined().message);
  if (!callee.is_callable()) fail(fmt::format("'{}' object is not callable", type_name(callee)));
  const Callable& c = callee.as_callable();
  return c.kind == Callable::Kind::kMacro ? call_macro(c, args) : c.builtin(*this, c.self, args);
}

Value Machine::get_attribute(const Value& object, const std::string& name) {
  if (object.is_undefined()) fail(object.as_undefined().message);
  if (object.is_namespace()) {
    const Value* v = object.as_namespace().attributes.find(name);
    return v != nullptr ? *v : no_attribute(object, name);
  }
  if (is_hidden_name(name)) {
    return Value::undefined(fmt::format("access to attribute {} of '{}' object is unsafe.",
                                        quoted(name), type_name(object)),
                            true);
  }
  if (std::optional<Value> method = find_method(object, name)) return *std::move(method);
  if (object.is_dict()) {
    if (const Value* v = object.as_dict().find(name)) return *v;
  }
  return no_attribute(object, name);
}

Value Machine::get_item(const Value& object, const Value& key) {
  if (object.is_undefined()) fail(object.as_undefined().message);
  if (object.is_dict()) {
    if (const Value* v = object.as_dict().find(key)) return *v;
  } else if (key.is_integral()) {
    if (object.is_string()) budget_.step(object.bytes().size() / 16);
    if (std::optional<Value> v = element_at(object, key.as_int())) return *std::move(v);
  }
  if (key.is_string()) return get_attribute(object, key.bytes());
  return Value::undefined(
      fmt::format("{} has no element {}", object_name(object), repr(key, budget_).bytes()));
}

}  // namespace lacuna::jinja
