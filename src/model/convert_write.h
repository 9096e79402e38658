// SPDX-License-Identifier: Apache-2.0
// Reads the parts of a conversion from the mapped source, quantises them and writes them, all
// threads at once, a few megabytes of each part at a time. Pages of the source that were read are
// dropped.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/threads.h"
#include "checkpoint/output_folder.h"
#include "lacuna/result.h"
#include "model/convert_plan.h"

namespace lacuna {

class PartWriter {
 public:
  // `advance` is called with the bytes that were written since the last call; an error it returns
  // ends the writing.
  PartWriter(int threads, std::function<Result<void>(std::uint64_t)> advance);

  // The part's tensors lie in `file` one after the other from `offset` on. kCorrupt names the
  // tensor and the row that hold what cannot be quantised; the file's errors are kIo.
  Result<void> write(const ConvertPart& part, const PartialFile& file, std::uint64_t offset);

 private:
  struct Buffers {
    std::vector<float> row, scales, biases;
    std::vector<std::uint8_t> codes, bytes;
  };
  struct Job;

  static std::int64_t convert_rows(const Job& job, std::int64_t task, Buffers& buffers);
  static int write_rows(const Job& job, std::int64_t task, Buffers& buffers);

  ThreadPool pool_;
  std::vector<Buffers> buffers_;
  std::function<Result<void>(std::uint64_t)> advance_;
};

}  // namespace lacuna
