#include "model/peer_llama.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <vector>

#include "llama.h"
#include "model/available_memory.h"
#include "model/ggml_log.h"
#include "model/model_impl.h"
#include "model/peer_state.h"
#include "model/printable.h"
#include "model/thread_team.h"
#include "neve/kv_spec.h"

namespace neve::model {
namespace {

struct FreeContext {
  void operator()(llama_context* context) const { llama_free(context); }
};

// One llama_model per file, as long as a peer uses it.
Result<std::shared_ptr<llama_model>> shared_model(const std::string& path, std::int64_t weights_bytes) {
  static std::mutex mutex;
  static std::map<std::string, std::weak_ptr<llama_model>> loaded;
  const std::lock_guard<std::mutex> lock(mutex);
  if (std::shared_ptr<llama_model> model = loaded[path].lock()) return model;
  const std::int64_t available = available_memory_bytes();
  if (weights_bytes > available) {
    return Status(Code::kExhausted, path + ": no memory for llama.cpp's own weights: they take " +
                                        format_bytes(static_cast<unsigned long long>(weights_bytes)) +
                                        ", available are " + format_bytes(static_cast<unsigned long long>(available)));
  }
  const LogCapture log;
  std::shared_ptr<llama_model> model(llama_model_load_from_file(path.c_str(), llama_model_default_params()),
                                     llama_model_free);
  if (model == nullptr) return Status(Code::kUnsupported, path + ": llama.cpp cannot load it: " + log.reason());
  loaded[path] = model;
  return model;
}

Result<ggml_type> cache_type(const std::string& name) {
  for (const ggml_type type : {GGML_TYPE_F16, GGML_TYPE_Q8_0, GGML_TYPE_Q4_0, GGML_TYPE_F32}) {
    if (name == ggml_type_name(type)) return type;
  }
  return Status(Code::kInvalidArgument, "llama.cpp's cache: wanted f16, q8_0, q4_0 or f32, got " + quoted(name));
}

// What llama.cpp's graphs of these architectures assert.
Status check_geometry(const ModelInfo& info, const Rope& rope) {
  for (const LayerGeometry& layer : info.layers) {
    if (layer.key_dim == layer.value_dim && layer.key_dim == rope.channels) continue;
    return Status(Code::kUnsupported, info.path + ": llama.cpp wants key, value and rotated channels to be as many");
  }
  return ok_status();
}

}  // namespace

struct PeerLlama::Impl {
  PeerOptions options;
  ggml_type type = GGML_TYPE_F16;
  std::vector<LayerGeometry> layers;
  std::int64_t vocabulary = 0;
  std::shared_ptr<llama_model> model;
  std::unique_ptr<ThreadTeam> team;  // outlives the context that uses it
  std::unique_ptr<llama_context, FreeContext> context;
  std::vector<std::int64_t> tokens;  // [sequences] that each holds
  std::vector<float> joined;         // logits of a step of several batches

  std::vector<std::int32_t> ids, positions, counts, sequences;
  std::vector<std::int32_t*> sequence_pointers;
  std::vector<std::int8_t> wanted;

  void add(std::int32_t token, int sequence, std::int64_t position, bool logits) {
    ids.push_back(token);
    positions.push_back(static_cast<std::int32_t>(position));
    counts.push_back(1);
    sequences.push_back(sequence);
    wanted.push_back(logits ? 1 : 0);
  }

  // Runs what was added. Returns: logits of the wanted rows, in order.
  Result<std::span<const float>> decode() {
    sequence_pointers.clear();
    for (std::int32_t& sequence : sequences) sequence_pointers.push_back(&sequence);
    const auto rows = static_cast<std::size_t>(std::count(wanted.begin(), wanted.end(), 1));
    llama_batch batch = {};
    batch.n_tokens = static_cast<std::int32_t>(ids.size());
    batch.token = ids.data();
    batch.pos = positions.data();
    batch.n_seq_id = counts.data();
    batch.seq_id = sequence_pointers.data();
    batch.logits = wanted.data();
    const LogCapture log;
    std::int32_t result = 0;
    {
      const ThreadTeam::Turn turn(team.get());
      result = llama_decode(context.get(), batch);
    }
    for (std::vector<std::int32_t>* list : {&ids, &positions, &counts}) list->clear();
    const std::vector<std::int32_t> ran = std::move(sequences);
    sequences.clear();
    wanted.clear();
    if (result == 1) return Status(Code::kBudget, "llama.cpp's context is full");
    if (result != 0) return Status(Code::kInternal, "llama_decode: " + log.reason());
    for (const std::int32_t sequence : ran) ++tokens[static_cast<std::size_t>(sequence)];
    if (rows == 0) return std::span<const float>();
    return std::span<const float>(llama_get_logits(context.get()), rows * static_cast<std::size_t>(vocabulary));
  }

  Status check(int sequence, std::span<const std::int32_t> ids_to_run) const {
    if (sequence < 0 || sequence >= options.sequences) {
      return Status(Code::kNotFound, "llama.cpp's cache has no sequence " + std::to_string(sequence));
    }
    for (const std::int32_t id : ids_to_run) {
      if (id < 0 || id >= vocabulary) {
        return Status(Code::kInvalidArgument, "token " + std::to_string(id) + " is outside the vocabulary");
      }
    }
    return ok_status();
  }
};

Result<std::unique_ptr<PeerLlama>> PeerLlama::create(const Model& model, const PeerOptions& options) {
  auto impl = std::make_unique<Impl>();
  impl->options = options;
  impl->layers = model.info().layers;
  impl->vocabulary = model.info().vocabulary;
  const Result<ggml_type> type = cache_type(options.cache_type);
  if (!type.ok()) return type.status();
  impl->type = *type;
  if (options.sequences < 1 || options.context_tokens < 1 || options.batch < 1 || options.threads < 1) {
    return Status(Code::kInvalidArgument, "llama.cpp's cache: sequences, context, batch and threads must be positive");
  }
  NEVE_RETURN_IF_ERROR(check_geometry(model.info(), model.impl().hyperparameters.rope));
  Result<std::shared_ptr<llama_model>> shared = shared_model(model.impl().weights_path, model.info().weights_bytes);
  if (!shared.ok()) return shared.status();
  impl->model = std::move(*shared);
  impl->team = ThreadTeam::create(options.threads);
  if (impl->team == nullptr) return Status(Code::kExhausted, "no more threads");

  llama_context_params params = llama_context_default_params();
  const std::int64_t each = (options.context_tokens + options.sequences - 1) / options.sequences;
  params.n_ctx = static_cast<std::uint32_t>((each + 255) / 256 * 256 * options.sequences);  // it rounds so itself
  params.n_batch = static_cast<std::uint32_t>(std::max(options.batch, options.sequences));
  params.n_ubatch = params.n_batch;
  params.n_seq_max = static_cast<std::uint32_t>(options.sequences);
  params.n_threads = options.threads;
  params.n_threads_batch = options.threads;
  params.flash_attn_type =
      options.flash == FlashAttention::kOn ? LLAMA_FLASH_ATTN_TYPE_ENABLED : LLAMA_FLASH_ATTN_TYPE_DISABLED;
  params.type_k = impl->type;
  params.type_v = impl->type;
  params.no_perf = true;
  const LogCapture log;
  impl->context.reset(llama_init_from_model(impl->model.get(), params));
  if (impl->context == nullptr) return Status(Code::kUnsupported, "llama.cpp's cache: " + log.reason());
  llama_attach_threadpool(impl->context.get(), impl->team->pool(), impl->team->pool());
  impl->tokens.assign(static_cast<std::size_t>(options.sequences), 0);
  return std::unique_ptr<PeerLlama>(new PeerLlama(std::move(impl)));
}

PeerLlama::PeerLlama(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
PeerLlama::~PeerLlama() = default;

Result<std::span<const float>> PeerLlama::step(int sequence, std::span<const std::int32_t> tokens, bool last_only) {
  NEVE_RETURN_IF_ERROR(impl_->check(sequence, tokens));
  if (tokens.empty()) return Status(Code::kInvalidArgument, "step: no tokens");
  const std::size_t most = llama_n_batch(impl_->context.get());
  const bool pieces = tokens.size() > most;
  impl_->joined.clear();
  std::span<const float> logits;
  while (!tokens.empty()) {
    const std::size_t count = std::min(most, tokens.size());
    const std::int64_t first = impl_->tokens[static_cast<std::size_t>(sequence)];
    for (std::size_t i = 0; i < count; ++i) {
      const bool last = i + 1 == tokens.size();
      impl_->add(tokens[i], sequence, first + static_cast<std::int64_t>(i), last || !last_only);
    }
    const Result<std::span<const float>> part = impl_->decode();
    if (!part.ok()) return part.status();
    logits = *part;
    if (pieces && !last_only) impl_->joined.insert(impl_->joined.end(), logits.begin(), logits.end());
    tokens = tokens.subspan(count);
  }
  return pieces && !last_only ? std::span<const float>(impl_->joined) : logits;
}

Result<std::span<const float>> PeerLlama::step_all(std::span<const std::int32_t> tokens) {
  if (tokens.empty()) return Status(Code::kInvalidArgument, "step: no tokens");
  NEVE_RETURN_IF_ERROR(impl_->check(static_cast<int>(tokens.size()) - 1, tokens));
  for (std::size_t i = 0; i < tokens.size(); ++i) impl_->add(tokens[i], static_cast<int>(i), impl_->tokens[i], true);
  return impl_->decode();
}

Status PeerLlama::truncate(int sequence, std::int64_t tokens) {
  NEVE_RETURN_IF_ERROR(impl_->check(sequence, {}));
  std::int64_t& held = impl_->tokens[static_cast<std::size_t>(sequence)];
  if (tokens < 0 || tokens > held) {
    return Status(Code::kInvalidArgument,
                  "truncate: wanted 0 to " + std::to_string(held) + " tokens, got " + std::to_string(tokens));
  }
  llama_memory_seq_rm(llama_get_memory(impl_->context.get()), sequence, static_cast<llama_pos>(tokens), -1);
  held = tokens;
  return ok_status();
}

Status PeerLlama::fill_synthetic(int sequence, std::int64_t tokens, std::uint64_t seed) {
  NEVE_RETURN_IF_ERROR(impl_->check(sequence, {}));
  const std::int64_t most = llama_n_ctx_seq(impl_->context.get());
  if (tokens < 1 || tokens > most) {
    return Status(Code::kInvalidArgument,
                  "fill: wanted 1 to " + std::to_string(most) + " tokens, got " + std::to_string(tokens));
  }
  PeerStateShape shape;
  shape.layers = impl_->layers;
  shape.type = impl_->type;
  shape.values = impl_->options.flash == FlashAttention::kOn ? ValueLayout::kRows : ValueLayout::kTransposed;
  shape.streams = impl_->options.sequences;
  shape.sequence = sequence;
  shape.tokens = tokens;
  const std::vector<std::uint8_t> state = synthetic_peer_state(shape, seed);
  const LogCapture log;
  if (llama_state_seq_set_data(impl_->context.get(), state.data(), state.size(), sequence) != state.size()) {
    return Status(Code::kInternal, "llama_state_seq_set_data: " + log.reason());
  }
  impl_->tokens[static_cast<std::size_t>(sequence)] = tokens;
  return ok_status();
}

std::int64_t PeerLlama::tokens(int sequence) const {
  return impl_->check(sequence, {}).ok() ? impl_->tokens[static_cast<std::size_t>(sequence)] : -1;
}

std::uint64_t PeerLlama::kv_bytes() const { return kv_bytes_for(llama_n_ctx(impl_->context.get())); }

std::uint64_t PeerLlama::kv_bytes_for(std::int64_t sequence_tokens) const {
  std::uint64_t bytes = 0;
  for (const LayerGeometry& layer : impl_->layers) {
    bytes += ggml_row_size(impl_->type, std::int64_t{layer.kv_heads} * layer.key_dim);
    bytes += ggml_row_size(impl_->type, std::int64_t{layer.kv_heads} * layer.value_dim);
  }
  return bytes * static_cast<std::uint64_t>(sequence_tokens);
}

}  // namespace neve::model
