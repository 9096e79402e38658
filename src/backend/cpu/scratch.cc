// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/scratch.h"

#include <algorithm>
#include <cstdlib>
#include <new>

#include "base/check.h"

namespace lacuna {
namespace {

constexpr std::size_t kAlign = 64;
constexpr std::size_t kLeast = std::size_t{4} << 20;

}  // namespace

void Scratch::Free::operator()(void* p) const { std::free(p); }

void* Scratch::take_bytes(std::size_t bytes) {
  bytes = (bytes + kAlign - 1) / kAlign * kAlign;
  for (Block& b : blocks_) {
    // The first block that has room above the top; a gap at a block's end is skipped.
    const std::size_t at = std::max(used_, b.begin);
    if (at + bytes > b.begin + b.bytes) continue;
    used_ = at + bytes;
    return static_cast<std::uint8_t*>(b.memory.get()) + (at - b.begin);
  }
  const std::size_t begin = blocks_.empty() ? 0 : blocks_.back().begin + blocks_.back().bytes;
  const std::size_t size = (std::max({bytes, kLeast, begin / 2}) + kAlign - 1) / kAlign * kAlign;
  void* p = std::aligned_alloc(kAlign, size);
  if (p == nullptr) throw std::bad_alloc();
  blocks_.push_back({std::unique_ptr<void, Free>(p), begin, size});
  used_ = begin + bytes;
  return p;
}

void Scratch::release(std::size_t mark) {
  LAC_CHECK(mark <= used_, "mark {} above the top {}", mark, used_);
  used_ = mark;
}

}  // namespace lacuna
