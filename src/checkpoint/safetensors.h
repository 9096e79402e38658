// SPDX-License-Identifier: Apache-2.0
// One safetensors file: 8 bytes of header length (little-endian), a JSON header, the tensors'
// bytes.
//
// Layout  The header maps a name to {"dtype", "shape", "data_offsets": [begin, end)}, counted
//         from the header's end. The optional "__metadata__" maps strings to strings.
// Checks  All that checkpoint.h promises of one file. The tensors cover the data without hole or
//         overlap and end where the file ends, so a file that was cut or grew is refused.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "lacuna/result.h"
#include "tensor/dtype.h"

namespace lacuna {

// One tensor of a file, valid while its bytes stay mapped. `data` is not aligned for its dtype: the
// format does not promise it, so read through memcpy.
struct TensorView {
  std::string name;  // one line of UTF-8, no control characters
  Dtype dtype = Dtype::kF32;
  std::vector<std::int64_t> shape;
  const std::uint8_t* data = nullptr;
  std::size_t bytes = 0;  // the product of `shape` times the dtype's bytes
  std::string file;       // the shard's file name

  std::int64_t elements() const;  // the product of `shape`; cannot overflow, the parser has checked
};

std::string shape_text(const std::vector<std::int64_t>& shape);  // "[2688, 1856]"

inline constexpr std::size_t kMaxSafetensorsHeader = 25'000'000;  // bytes of JSON

struct SafetensorsFile {
  std::vector<TensorView> tensors;              // by rising offset
  std::map<std::string, std::string> metadata;  // "__metadata__"
  std::size_t header_bytes = 0;                 // where the data begins
};

// `file` is the whole file, `name` its name in errors and in TensorView::file.
// Errors: kCorrupt, and kUnsupported for a dtype that dtype.h does not list; both name file and
// tensor.
Result<SafetensorsFile> parse_safetensors(std::span<const std::uint8_t> file,
                                          const std::string& name);

}  // namespace lacuna
