#include "neve/model.h"

#include <algorithm>
#include <thread>

#include "model/f32_weights.h"
#include "model/fingerprint.h"
#include "model/ggml_log.h"
#include "model/gguf_file.h"
#include "model/model_impl.h"

namespace neve {
namespace {

// llama.cpp asserts for these; libllama runs the peer of the same file.
constexpr int kMostThreads = 512;

Result<ModelInfo> make_info(const model::GgufFile& file, const model::Hyperparameters& hyperparameters) {
  Result<std::string> fingerprint = model::fingerprint(file);
  if (!fingerprint.ok()) return fingerprint.status();
  Result<std::string> name = file.text("general.name", "");
  if (!name.ok()) return name.status();
  ModelInfo info;
  info.path = file.path();
  info.name = std::move(*name);
  info.architecture = hyperparameters.architecture->name;
  info.fingerprint = std::move(*fingerprint);
  info.context_tokens = hyperparameters.context_tokens;
  info.vocabulary = hyperparameters.vocabulary;
  info.hidden = hyperparameters.hidden;
  for (const model::GgufTensor& tensor : file.tensors()) info.weights_bytes += static_cast<std::int64_t>(tensor.bytes);
  info.layers = hyperparameters.attention;
  return info;
}

}  // namespace

Result<ModelInfo> read_model_info(const std::string& path) {
  model::install_log_sink(model::Talk::kQuiet);
  const Result<model::GgufFile> file = model::GgufFile::open(path);
  if (!file.ok()) return file.status();
  const Result<model::Hyperparameters> hyperparameters = model::read_hyperparameters(*file);
  if (!hyperparameters.ok()) return hyperparameters.status();
  return make_info(*file, *hyperparameters);
}

Result<std::unique_ptr<Model>> Model::load(const std::string& path, LoadOptions options) {
  model::install_log_sink(options.verbose ? model::Talk::kVerbose : model::Talk::kQuiet);
  auto impl = std::make_unique<Impl>();
  impl->threads = options.threads > 0 ? options.threads : static_cast<int>(std::thread::hardware_concurrency());
  impl->threads = std::clamp(impl->threads, 1, kMostThreads);

  const Result<model::GgufFile> file = model::GgufFile::open(path);
  if (!file.ok()) return file.status();
  Result<model::Hyperparameters> hyperparameters = model::read_hyperparameters(*file);
  if (!hyperparameters.ok()) return hyperparameters.status();
  impl->hyperparameters = std::move(*hyperparameters);
  Result<ModelInfo> info = make_info(*file, impl->hyperparameters);
  if (!info.ok()) return info.status();
  impl->info = std::move(*info);
  Result<std::unique_ptr<model::Vocabulary>> vocabulary =
      model::Vocabulary::load(*file, impl->hyperparameters.vocabulary);
  if (!vocabulary.ok()) return vocabulary.status();
  impl->vocabulary = std::move(*vocabulary);

  const auto load_weights = [&](const model::GgufFile& from) -> Status {
    Result<std::unique_ptr<model::WeightSet>> weights =
        model::WeightSet::load(from, impl->hyperparameters, options.progress);
    if (!weights.ok()) return weights.status();
    impl->weights = std::move(*weights);
    impl->weights_path = from.path();
    return ok_status();
  };
  if (options.weights == Weights::kFile) {
    NEVE_RETURN_IF_ERROR(load_weights(*file));
  } else {
    const Result<std::string> converted = model::f32_weights(*file, impl->info.fingerprint, impl->threads);
    if (!converted.ok()) return converted.status();
    const Result<model::GgufFile> f32_file = model::GgufFile::open(*converted);
    if (!f32_file.ok()) return f32_file.status();
    NEVE_RETURN_IF_ERROR(load_weights(*f32_file));
  }
  return std::unique_ptr<Model>(new Model(std::move(impl)));
}

Model::Model(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Model::~Model() = default;

const ModelInfo& Model::info() const { return impl_->info; }
int Model::threads() const { return impl_->threads; }
std::int64_t Model::mapped_bytes() const { return impl_->weights->mapped_bytes(); }
std::int64_t Model::copied_bytes() const { return impl_->weights->copied_bytes(); }

Result<std::vector<std::int32_t>> Model::tokenize(std::string_view text, bool with_specials) const {
  return impl_->vocabulary->tokenize(text,
                                     with_specials ? model::Specials::kRecogniseAndBegin : model::Specials::kPlain);
}
std::string Model::token_text(std::int32_t token) const { return impl_->vocabulary->text(token); }
bool Model::is_end(std::int32_t token) const { return impl_->vocabulary->is_end(token); }
Result<std::string> Model::chat_prompt(std::span<const Message> messages) const {
  return impl_->vocabulary->chat_prompt(messages);
}
bool Model::has_chat_template() const { return impl_->vocabulary->has_chat_template(); }

}  // namespace neve
