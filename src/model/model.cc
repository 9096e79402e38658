// SPDX-License-Identifier: Apache-2.0
#include "model/model.h"

#include "model/glm_dsa.h"
#include "model/nemotron_h.h"

namespace lacuna {

Result<std::unique_ptr<Model>> make_model(const Checkpoint& checkpoint, Backend& backend,
                                          const ModelOptions& options) {
  if (is_glm_dsa(checkpoint.config())) return GlmDsa::make(checkpoint, backend, options);
  return NemotronH::make(checkpoint, backend);  // its config parser names what it does not know
}

}  // namespace lacuna
