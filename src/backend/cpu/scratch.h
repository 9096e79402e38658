// SPDX-License-Identifier: Apache-2.0
// Scratch memory of forward passes: a stack of cache-line aligned blocks that is kept between
// passes, so that a decode step allocates nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace lacuna {

class Scratch {
 public:
  // `count` values of T, not initialised, until the mark before them is released.
  template <class T>
  T* take(std::size_t count) {
    return static_cast<T*>(take_bytes(count * sizeof(T)));
  }

  std::size_t mark() const { return used_; }
  void release(std::size_t mark);

 private:
  struct Free {
    void operator()(void* p) const;
  };
  struct Block {
    std::unique_ptr<void, Free> memory;
    std::size_t begin, bytes;  // begin: position of the block's start on the stack
  };

  void* take_bytes(std::size_t bytes);

  std::vector<Block> blocks_;
  std::size_t used_ = 0;  // top of the stack
};

}  // namespace lacuna
