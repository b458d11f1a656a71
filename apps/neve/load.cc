#include "load.h"

#include "progress.h"

namespace neve::app {

Result<std::unique_ptr<Model>> load_model(const ModelFlags& flags, Weights weights) {
  Progress progress("loading");
  LoadOptions options;
  options.weights = weights;
  options.threads = flags.threads;
  options.verbose = flags.verbose;
  options.progress = progress.callback();
  return Model::load(flags.path, options);
}

}  // namespace neve::app
