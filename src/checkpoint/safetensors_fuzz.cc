// SPDX-License-Identifier: Apache-2.0
// Any bytes as a safetensors file; what is accepted must hold what its header says.
#include <cstddef>
#include <cstdint>

#include "base/check.h"
#include "checkpoint/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  auto parsed = lacuna::parse_safetensors({data, size}, "fuzz");
  if (!parsed) {
    LAC_CHECK(parsed.error().what.find('\n') == std::string::npos, "{}", parsed.error().what);
    return 0;
  }
  const std::uint8_t* at = data + parsed->header_bytes;
  for (const lacuna::TensorView& tensor : parsed->tensors) {
    LAC_CHECK(tensor.data == at, "{}", tensor.name);
    LAC_CHECK(
        static_cast<std::size_t>(tensor.elements()) * dtype_bytes(tensor.dtype) == tensor.bytes,
        "{}", tensor.name);
    at += tensor.bytes;
  }
  LAC_CHECK(at == data + size, "{} bytes", size);
  return 0;
}
