// SPDX-License-Identifier: Apache-2.0
// LAC_CHECK(condition, "format", values…): our own bug, so print the values and abort. Never for
// bad input.
#pragma once

#include <fmt/core.h>

#include <cstdio>
#include <cstdlib>

#define LAC_CHECK(cond, ...)                                                         \
  do {                                                                               \
    if (!(cond)) [[unlikely]] {                                                      \
      fmt::print(stderr, "{}:{}: check failed: {}: {}\n", __FILE__, __LINE__, #cond, \
                 fmt::format(__VA_ARGS__));                                          \
      std::abort();                                                                  \
    }                                                                                \
  } while (false)
