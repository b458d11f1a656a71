// Loads a model as the flags say, with a progress bar.
#pragma once

#include <memory>

#include "flags.h"
#include "neve/model.h"

namespace neve::app {

Result<std::unique_ptr<Model>> load_model(const ModelFlags& flags, Weights weights);

}  // namespace neve::app
