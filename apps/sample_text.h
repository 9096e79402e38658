// SPDX-License-Identifier: Apache-2.0
// The text that is read when speed or sparsity is measured: a real one, since what is live depends
// on it.
#pragma once

#include <string>

#include "lacuna/result.h"

namespace lacuna {

struct SampleText {
  std::string name;  // as the user gave it; "val_prose.txt" for the bundled one
  std::string text;  // not empty
};

// The file `named`, or for an empty name the prose beside the bundled model. kInvalidArgument names
// the file, kNotFound where the bundled model is missing.
Result<SampleText> read_sample_text(const std::string& named);

}  // namespace lacuna
