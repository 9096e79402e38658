// SPDX-License-Identifier: Apache-2.0
// From --model to an open engine.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "lacuna/engine.h"
#include "lacuna/result.h"
#include "options.h"

namespace lacuna {

// The folder --model names; for an empty name the bundled model: beside the installed program
// (../share/lacuna/models), else in the source tree it was built from. kNotFound names what was
// looked for; a name is never looked up elsewhere.
Result<std::filesystem::path> find_model(const std::string& name);

// Opens it, with a progress line while weights are packed. Unless quiet, tells the notes of the
// load.
Result<std::unique_ptr<Engine>> open_engine(const ModelFlags& flags);

}  // namespace lacuna
