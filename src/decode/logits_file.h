// SPDX-License-Identifier: Apache-2.0
// Logits of a scored text in a file, to compare other settings or engines with.
//
// The file is safetensors, so that any tool reads it: "inputs" and "targets" I32 [rows], "logits"
// F32 [rows, vocabulary], and metadata "window", the length of the windows the rows were scored in.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <utility>
#include <vector>

#include "base/mmap.h"
#include "base/output_file.h"
#include "decode/eval_math.h"
#include "lacuna/result.h"

namespace lacuna {

// Takes the place of `path` only in commit(): there is never half a file.
class LogitsWriter {
 public:
  static Result<LogitsWriter> create(const std::filesystem::path& path,
                                     std::span<const EvalWindow> windows, int window_length,
                                     int vocabulary);

  // The next rows [n, vocabulary], in the order of the windows.
  Result<void> add(std::span<const float> logits);
  // Errors: kIo; kInvalidArgument when rows are missing.
  Result<void> commit();

 private:
  explicit LogitsWriter(OutputFile file) : file_(std::move(file)) {}

  std::filesystem::path path_;
  OutputFile file_;
  std::uint64_t missing_ = 0;  // floats still to come
};

class LogitsFile {
 public:
  // Errors: kNotFound, kIo, and kCorrupt naming the file and the field.
  static Result<LogitsFile> open(const std::filesystem::path& path);

  // kInvalidArgument, with both numbers, unless the file was made from these windows.
  Result<void> check_same(std::span<const EvalWindow> windows, int window_length,
                          int vocabulary) const;

  std::uint64_t rows() const { return rows_; }
  int vocabulary() const { return vocabulary_; }
  std::vector<float> row(std::uint64_t index) const;  // index < rows()

 private:
  LogitsFile() = default;

  std::filesystem::path path_;
  MappedFile file_;
  std::uint64_t rows_ = 0;
  int vocabulary_ = 0;
  int window_length_ = 0;
  std::vector<int> inputs_, targets_;
  const std::uint8_t* logits_ = nullptr;  // into file_, not aligned
};

}  // namespace lacuna
