// What a loaded model is made of.
#pragma once

#include <memory>
#include <string>

#include "model/hyperparameters.h"
#include "model/vocabulary.h"
#include "model/weight_set.h"
#include "neve/model.h"

namespace neve {

struct Model::Impl {
  ModelInfo info;
  model::Hyperparameters hyperparameters;
  std::string weights_path;  // the file whose weights run: info.path, or its f32 conversion
  std::unique_ptr<model::WeightSet> weights;
  std::unique_ptr<model::Vocabulary> vocabulary;
  int threads = 1;
};

}  // namespace neve
