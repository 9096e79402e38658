// SPDX-License-Identifier: Apache-2.0
// What an Engine holds; engine.cc fills it, session.cc runs on it.
#pragma once

#include <memory>
#include <mutex>

#include "checkpoint/checkpoint.h"
#include "lacuna/engine.h"
#include "model/model.h"
#include "ops/backend.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace lacuna {

struct Engine::Impl {
  EngineOptions options;
  ModelInfo info;
  std::unique_ptr<Checkpoint> checkpoint;  // embeddings are looked up in its mapping
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Model> model;
  Tokenizer tokenizer;
  std::unique_ptr<ChatTemplate> chat;
  std::mutex
      forward;  // sessions share the backend's threads and scratch, one forward pass at a time
};

}  // namespace lacuna
