// SPDX-License-Identifier: Apache-2.0
// The parsed template: a tree that the Machine walks.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja_callable.h"
#include "text/jinja_value.h"

namespace lacuna::jinja {

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

enum class Op {
  kAdd,
  kSub,
  kMul,
  kDiv,
  kFloorDiv,
  kMod,
  kPow,
  kEq,
  kNe,
  kLt,
  kLe,
  kGt,
  kGe,
  kIn,
  kNotIn
};

struct Expr {
  enum class Kind {
    kConst,      // value
    kName,       // name
    kTuple,      // children
    kList,       // children
    kDict,       // children: key, value, key, value, …
    kCondition,  // children: condition, then, else or null
    kOr,         // children: left, right
    kAnd,        // children: left, right
    kNot,        // children: operand
    kNegative,   // children: operand
    kPositive,   // children: operand
    kBinary,     // ops[0]; children: left, right
    kCompare,    // children: first, second, …; ops[i] stands between i and i + 1
    kConcat,     // children
    kAttribute,  // children: object; name
    kItem,       // children: object, key
    kSlice,      // children: object, start, stop, step; the last three may be null
    kCall,       // children: callee, positional arguments; named
    kFilter,     // children: input, positional arguments; named; builtin. The input of a block's
                 // filter is null and given by the block
    kTest,       // children: input, positional arguments; named; builtin
  };
  Kind kind = Kind::kConst;
  int line = 0;
  int height = 1;  // of the tree, so that no evaluation can recurse without end
  Value value;
  std::string name;
  Builtin builtin = nullptr;
  std::vector<Op> ops;
  std::vector<ExprPtr> children;
  std::vector<std::pair<std::string, ExprPtr>> named;
};

struct Target {
  enum class Kind { kName, kAttribute, kTuple };
  Kind kind = Kind::kName;
  std::string name;
  std::string attribute;      // kAttribute: name.attribute, of a namespace
  std::vector<Target> parts;  // kTuple
};

struct Stmt;
using Block = std::vector<std::unique_ptr<Stmt>>;

// A macro, or the body of a call block. Defaults belong to the last parameters.
struct MacroDef {
  std::string name;
  std::vector<std::string> params;
  std::vector<ExprPtr> defaults;
  Block body;
  bool uses_caller = false, uses_kwargs = false, uses_varargs = false;  // names read in the body
};

struct Stmt {
  enum class Kind {
    kText,         // text
    kPrint,        // expr
    kIf,           // branches, otherwise
    kFor,          // target, expr, filter or null, body, otherwise
    kSet,          // target, expr
    kSetBlock,     // target, body, filter or null
    kWith,         // targets and values, body
    kMacro,        // macro
    kCallBlock,    // expr: the call; macro: the body
    kFilterBlock,  // filter, body
    kGeneration,   // body: what {% generation %} wraps
    kBreak,
    kContinue,
  };
  struct Branch {
    ExprPtr condition;
    Block body;
  };
  Kind kind = Kind::kText;
  int line = 0;
  std::string text;
  ExprPtr expr, filter;
  Target target;
  std::vector<std::pair<Target, ExprPtr>> assignments;  // kWith
  std::vector<Branch> branches;
  Block body, otherwise;
  MacroDef macro;
};

}  // namespace lacuna::jinja
