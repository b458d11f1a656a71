#include "model/weight_set.h"

#include <algorithm>
#include <map>
#include <string>
#include <unordered_set>

#include "ggml-cpu.h"
#include "model/available_memory.h"
#include "model/printable.h"
#include "model/weight_placement.h"

namespace neve::model {
namespace {

enum class Need { kRequired, kOptional };

std::string shape_text(const std::int64_t* ne) {
  return "[" + std::to_string(ne[0]) + ", " + std::to_string(ne[1]) + "]";
}

std::uint64_t padded(std::uint64_t bytes, std::uint64_t alignment) {
  return (bytes + alignment - 1) / alignment * alignment;
}

}  // namespace

// Three passes: which tensors of the file go where (nothing is touched yet), whether that fits, then the copying.
class WeightLoader {
 public:
  WeightLoader(const GgufFile& file, const Hyperparameters& hyperparameters)
      : file_(file), hyper_(hyperparameters), set_(new WeightSet) {}

  Result<std::unique_ptr<WeightSet>> run(const std::function<void(double)>& progress) {
    NEVE_RETURN_IF_ERROR(plan_model());
    NEVE_RETURN_IF_ERROR(refuse_unknown_tensors());
    NEVE_RETURN_IF_ERROR(check_memory());
    Result<MappedFile> map = MappedFile::open(file_.path());
    if (!map.ok()) return map.status();
    set_->map_ = std::move(*map);
    NEVE_RETURN_IF_ERROR(create_tensors());
    NEVE_RETURN_IF_ERROR(allocate_copies());
    fill_copies(progress);
    return std::move(set_);
  }

 private:
  // A tensor to be. `place` null: as it lies in the file.
  struct Planned {
    const GgufTensor* source = nullptr;
    ggml_tensor** slot = nullptr;
    ggml_backend_buffer_type_t place = nullptr;
  };
  // The tensors of one Linear in the file; `weight` null if it is not there.
  struct Source {
    const GgufTensor* weight = nullptr;
    const GgufTensor* bias = nullptr;
  };

  // ---- which tensors go where -------------------------------------------------------------------------------------
  // Finds a tensor and checks its shape [ne0, ne1] and that it is f32 where the graph adds or scales by it.
  Status take(const GgufTensor** out, const std::string& name, std::int64_t ne0, std::int64_t ne1, Need need) {
    *out = nullptr;
    const GgufTensor* const tensor = file_.find_tensor(name);
    if (tensor == nullptr) {
      if (need == Need::kOptional) return ok_status();
      return Status(Code::kDamaged, file_.path() + ": tensor '" + name + "' is missing");
    }
    const std::int64_t wanted[2] = {ne0, ne1};
    if (tensor->ne[0] != ne0 || tensor->ne[1] != ne1 || tensor->ne[2] != 1 || tensor->ne[3] != 1) {
      return Status(Code::kDamaged, file_.path() + ": tensor '" + name + "': wanted shape " + shape_text(wanted) +
                                        ", got " + shape_text(tensor->ne));
    }
    const bool vector = ne1 == 1;
    if (vector ? tensor->type != GGML_TYPE_F32 : !can_multiply(tensor->type)) {
      return Status(Code::kUnsupported, file_.path() + ": tensor '" + name + "' of type " +
                                            ggml_type_name(tensor->type) + " cannot be " +
                                            (vector ? "used (f32 can)" : "multiplied"));
    }
    used_.insert(name);
    *out = tensor;
    return ok_status();
  }
  Status take_vector(ggml_tensor** slot, const std::string& name, std::int64_t length, Need need) {
    const GgufTensor* tensor = nullptr;
    NEVE_RETURN_IF_ERROR(take(&tensor, name, length, 1, need));
    if (tensor != nullptr) planned_.push_back({tensor, slot, nullptr});
    return ok_status();
  }
  Status take_linear(Source* out, const std::string& name, std::int64_t inputs, std::int64_t outputs, Need need) {
    NEVE_RETURN_IF_ERROR(take(&out->weight, name + ".weight", inputs, outputs, need));
    return take(&out->bias, name + ".bias", outputs, 1, Need::kOptional);
  }

  void place(Linear* linear, const Source& source) {
    const GgufTensor& weight = *source.weight;
    planned_.push_back({&weight, &linear->weight, faster_buffer_type(weight.type, weight.ne[0], weight.ne[1])});
    if (source.bias != nullptr) planned_.push_back({source.bias, &linear->bias, nullptr});
  }

  Status plan_model() {
    const std::int64_t hidden = hyper_.hidden, vocabulary = hyper_.vocabulary;
    const GgufTensor* embedding = nullptr;
    NEVE_RETURN_IF_ERROR(take(&embedding, "token_embd.weight", hidden, vocabulary, Need::kRequired));
    if (!can_look_up(embedding->type)) {
      return Status(Code::kUnsupported, file_.path() + ": tensor 'token_embd.weight' of type " +
                                            ggml_type_name(embedding->type) + " cannot be looked up by row");
    }
    planned_.push_back({embedding, &set_->token_embedding_, nullptr});
    NEVE_RETURN_IF_ERROR(take_vector(&set_->output_norm_, "output_norm.weight", hidden, Need::kRequired));
    NEVE_RETURN_IF_ERROR(
        take_vector(&set_->rope_factors_, "rope_freqs.weight", hyper_.rope.channels / 2, Need::kOptional));
    Source head;
    NEVE_RETURN_IF_ERROR(take_linear(&head, "output", hidden, vocabulary, Need::kOptional));
    if (head.weight == nullptr) head.weight = embedding;
    place(&set_->output_head_, head);

    set_->layers_.resize(static_cast<std::size_t>(hyper_.layers()));
    for (int i = 0; i < hyper_.layers(); ++i) {
      NEVE_RETURN_IF_ERROR(plan_attention(i, "blk." + std::to_string(i) + "."));
      NEVE_RETURN_IF_ERROR(plan_feed_forward(i, "blk." + std::to_string(i) + "."));
    }
    return ok_status();
  }

  Status plan_attention(int index, const std::string& block) {
    LayerWeights& layer = set_->layers_[static_cast<std::size_t>(index)];
    const LayerGeometry& geometry = hyper_.attention[static_cast<std::size_t>(index)];
    const std::int64_t hidden = hyper_.hidden;
    const std::int64_t queries = std::int64_t{geometry.query_heads} * geometry.key_dim;
    const std::int64_t keys = std::int64_t{geometry.kv_heads} * geometry.key_dim;
    const std::int64_t values = std::int64_t{geometry.kv_heads} * geometry.value_dim;
    const std::int64_t outputs = std::int64_t{geometry.query_heads} * geometry.value_dim;

    NEVE_RETURN_IF_ERROR(take_vector(&layer.attention_norm, block + "attn_norm.weight", hidden, Need::kRequired));
    if (hyper_.architecture->head_norm == HeadNorm::kQueryAndKey) {
      const std::int64_t channels = geometry.key_dim;
      NEVE_RETURN_IF_ERROR(take_vector(&layer.query_norm, block + "attn_q_norm.weight", channels, Need::kRequired));
      NEVE_RETURN_IF_ERROR(take_vector(&layer.key_norm, block + "attn_k_norm.weight", channels, Need::kRequired));
    }
    Source joined;
    NEVE_RETURN_IF_ERROR(take_linear(&joined, block + "attn_qkv", hidden, queries + keys + values, Need::kOptional));
    if (joined.weight != nullptr) {
      place(&layer.query_key_value, joined);
    } else {
      Source query, key, value;
      NEVE_RETURN_IF_ERROR(take_linear(&query, block + "attn_q", hidden, queries, Need::kRequired));
      NEVE_RETURN_IF_ERROR(take_linear(&key, block + "attn_k", hidden, keys, Need::kRequired));
      NEVE_RETURN_IF_ERROR(take_linear(&value, block + "attn_v", hidden, values, Need::kRequired));
      place(&layer.query, query);
      place(&layer.key, key);
      place(&layer.value, value);
    }
    Source output;
    NEVE_RETURN_IF_ERROR(take_linear(&output, block + "attn_output", outputs, hidden, Need::kRequired));
    place(&layer.attention_output, output);
    return ok_status();
  }

  Status plan_feed_forward(int index, const std::string& block) {
    LayerWeights& layer = set_->layers_[static_cast<std::size_t>(index)];
    const std::int64_t hidden = hyper_.hidden, inner = hyper_.feed_forward[static_cast<std::size_t>(index)];
    NEVE_RETURN_IF_ERROR(take_vector(&layer.feed_forward_norm, block + "ffn_norm.weight", hidden, Need::kRequired));
    Source gate, up, down;
    NEVE_RETURN_IF_ERROR(take_linear(&gate, block + "ffn_gate", hidden, inner, Need::kRequired));
    NEVE_RETURN_IF_ERROR(take_linear(&up, block + "ffn_up", hidden, inner, Need::kRequired));
    NEVE_RETURN_IF_ERROR(take_linear(&down, block + "ffn_down", inner, hidden, Need::kRequired));
    place(&layer.gate, gate);
    place(&layer.up, up);
    place(&layer.down, down);
    return ok_status();
  }

  // A tensor that the graph would not use means that the graph is not this model's.
  Status refuse_unknown_tensors() const {
    for (const GgufTensor& tensor : file_.tensors()) {
      if (used_.count(tensor.name) != 0) continue;
      return Status(Code::kUnsupported, file_.path() + ": tensor " + quoted(tensor.name) +
                                            " is none that neve knows for architecture " + hyper_.architecture->name);
    }
    return ok_status();
  }

  // ---- whether that fits ------------------------------------------------------------------------------------------
  Status check_memory() {
    std::unordered_set<const GgufTensor*> mapped;
    for (const Planned& planned : planned_) {
      const auto bytes = static_cast<std::int64_t>(planned.source->bytes);
      if (planned.place != nullptr) set_->copied_bytes_ += bytes;
      if (planned.place == nullptr && mapped.insert(planned.source).second) set_->mapped_bytes_ += bytes;
    }
    const std::int64_t wanted = set_->mapped_bytes_ + set_->copied_bytes_;
    const std::int64_t available = available_memory_bytes();
    if (wanted <= available) return ok_status();
    return Status(Code::kExhausted, file_.path() + ": too large for this machine: the weights take " +
                                        format_bytes(static_cast<unsigned long long>(wanted)) + ", available are " +
                                        format_bytes(static_cast<unsigned long long>(available)));
  }

  // ---- loading ----------------------------------------------------------------------------------------------------
  Status create_tensors() {
    const std::size_t structs = (planned_.size() + 1) * ggml_tensor_overhead();
    set_->context_ = ggml_init({.mem_size = structs, .mem_buffer = nullptr, .no_alloc = true});
    // ggml writes to no weight; its interface has no const.
    auto* const base = const_cast<std::byte*>(set_->map_.data());
    ggml_backend_buffer_t const file = ggml_backend_cpu_buffer_from_ptr(base, set_->map_.bytes());
    if (set_->context_ == nullptr || file == nullptr) {
      return Status(Code::kExhausted,
                    file_.path() + ": no memory for " + std::to_string(structs) + " bytes of tensors");
    }
    ggml_backend_buffer_set_usage(file, GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
    set_->buffers_.push_back(file);
    for (Planned& planned : planned_) {
      const GgufTensor& source = *planned.source;
      ggml_tensor* const tensor = source.ne[1] == 1
                                      ? ggml_new_tensor_1d(set_->context_, source.type, source.ne[0])
                                      : ggml_new_tensor_2d(set_->context_, source.type, source.ne[0], source.ne[1]);
      ggml_set_name(tensor, source.name.c_str());
      *planned.slot = tensor;
      if (planned.place == nullptr) {
        ggml_backend_tensor_alloc(file, tensor, base + source.offset);
        set_->map_.populate(source.offset, source.bytes);
      }
    }
    return ok_status();
  }

  // One buffer for each layout.
  Status allocate_copies() {
    std::map<ggml_backend_buffer_type_t, std::vector<ggml_tensor*>> by_place;
    for (const Planned& planned : planned_) {
      if (planned.place != nullptr) by_place[planned.place].push_back(*planned.slot);
    }
    set_->copied_bytes_ = 0;
    for (const auto& [place, tensors] : by_place) {
      const std::uint64_t alignment = ggml_backend_buft_get_alignment(place);
      std::uint64_t bytes = 0;
      for (const ggml_tensor* tensor : tensors) {
        bytes += padded(ggml_backend_buft_get_alloc_size(place, tensor), alignment);
      }
      ggml_backend_buffer_t const buffer = ggml_backend_buft_alloc_buffer(place, bytes);
      if (buffer == nullptr) {
        return Status(Code::kExhausted, file_.path() + ": no memory for weights in layout " +
                                            ggml_backend_buft_name(place) + " (" + format_bytes(bytes) + ")");
      }
      ggml_backend_buffer_set_usage(buffer, GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
      set_->buffers_.push_back(buffer);
      set_->copied_bytes_ += static_cast<std::int64_t>(bytes);
      auto* at = static_cast<std::byte*>(ggml_backend_buffer_get_base(buffer));
      for (ggml_tensor* tensor : tensors) {
        ggml_backend_tensor_alloc(buffer, tensor, at);
        at += padded(ggml_backend_buft_get_alloc_size(place, tensor), alignment);
      }
    }
    return ok_status();
  }

  // A buffer of an extra type takes a tensor whole, at offset 0.
  void fill_copies(const std::function<void(double)>& progress) {
    std::uint64_t wanted = 0, done = 0;
    for (const Planned& planned : planned_) {
      if (planned.place != nullptr) wanted += planned.source->bytes;
    }
    for (const Planned& planned : planned_) {
      if (planned.place == nullptr) continue;
      const GgufTensor& source = *planned.source;
      ggml_backend_tensor_set(*planned.slot, set_->map_.data() + source.offset, 0, source.bytes);
      set_->map_.release(source.offset, source.bytes);
      done += source.bytes;
      if (progress) progress(static_cast<double>(done) / static_cast<double>(wanted));
    }
    if (progress && wanted == 0) progress(1.0);
  }

  const GgufFile& file_;
  const Hyperparameters& hyper_;
  std::unique_ptr<WeightSet> set_;
  std::vector<Planned> planned_;
  std::unordered_set<std::string> used_;
};

Result<std::unique_ptr<WeightSet>> WeightSet::load(const GgufFile& file, const Hyperparameters& hyperparameters,
                                                   const std::function<void(double)>& progress) {
  return WeightLoader(file, hyperparameters).run(progress);
}

WeightSet::~WeightSet() {
  for (ggml_backend_buffer_t buffer : buffers_) ggml_backend_buffer_free(buffer);
  if (context_ != nullptr) ggml_free(context_);
}

}  // namespace neve::model
