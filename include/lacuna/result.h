// SPDX-License-Identifier: Apache-2.0
// What a function returns when bad input can make it fail: a value, or an Error that names the
// thing.
//
// Bad input (a file, a flag, a request, memory that is not there) is a Result. Our own bugs are
// LAC_CHECK (base/check.h). Nothing throws across the door. Mirrors std::expected for a later swap.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <variant>

namespace lacuna {

enum class ErrorCode {
  kInvalidArgument,  // a flag, a request field, a prompt: the caller can mend it
  kNotFound,         // no such file, folder or model
  kUnsupported,      // a known thing that this build does not do
  kCorrupt,          // a file that contradicts itself or its config
  kOutOfMemory,      // does not fit; the message carries both numbers
  kIo,               // the system refused a read or a write
  kContextLength,    // the prompt is longer than the context; the message carries both numbers
  kCancelled,        // the caller asked to stop
};

// `what` is one line for a person: what was wrong, where, and what was wanted.
struct Error {
  ErrorCode code = ErrorCode::kInvalidArgument;
  std::string what;

  // The same error with "where: " in front.
  Error in(const std::string& where) && { return {code, where + ": " + what}; }
};

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }
  T& operator*() & { return std::get<0>(state_); }
  const T& operator*() const& { return std::get<0>(state_); }
  T&& operator*() && { return std::get<0>(std::move(state_)); }
  T* operator->() { return &std::get<0>(state_); }
  const T* operator->() const { return &std::get<0>(state_); }
  const Error& error() const& { return std::get<1>(state_); }
  Error&& error() && { return std::get<1>(std::move(state_)); }

 private:
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}

  bool ok() const { return !error_.has_value(); }
  explicit operator bool() const { return ok(); }
  const Error& error() const& { return *error_; }
  Error&& error() && { return *std::move(error_); }

 private:
  std::optional<Error> error_;
};

}  // namespace lacuna

// Takes the value of a Result into a new variable, or returns its error from the calling function.
#define LAC_CONCAT_(a, b) a##b
#define LAC_CONCAT(a, b) LAC_CONCAT_(a, b)
#define LAC_TRY(decl, expr) LAC_TRY_(decl, expr, LAC_CONCAT(lac_result_, __LINE__))
#define LAC_TRY_(decl, expr, tmp)               \
  auto tmp = (expr);                            \
  if (!tmp.ok()) return std::move(tmp).error(); \
  decl = *std::move(tmp)
// The same for a Result<void>.
#define LAC_TRY_VOID(expr)                                                 \
  do {                                                                     \
    if (auto lac_r = (expr); !lac_r.ok()) return std::move(lac_r).error(); \
  } while (false)
