#include "model/hyperparameters.h"

#include <cmath>
#include <string>

#include "model/printable.h"

namespace neve::model {
namespace {

constexpr std::uint32_t kMostLayers = 512;
constexpr std::uint32_t kMostChannels = 576;  // of a head: LayerGeometry's limit

// Assigns the value of a Result or returns its status.
#define NEVE_MODEL_READ(target, expr)                                            \
  do {                                                                           \
    auto result_ = (expr);                                                       \
    if (!result_.ok()) return result_.status();                                  \
    (target) = static_cast<std::decay_t<decltype(target)>>(*std::move(result_)); \
  } while (false)

class Reader {
 public:
  Reader(const GgufFile& file, const Architecture& architecture) : file_(file), prefix_(architecture.name) {
    out_.architecture = &architecture;
  }

  Result<Hyperparameters> run() {
    NEVE_RETURN_IF_ERROR(refuse_unsupported());
    NEVE_RETURN_IF_ERROR(read_sizes());
    NEVE_RETURN_IF_ERROR(read_attention());
    NEVE_RETURN_IF_ERROR(read_rope());
    return std::move(out_);
  }

 private:
  std::string key(const char* name) const { return prefix_ + "." + name; }
  Status unsupported(const std::string& what) const {
    return Status(Code::kUnsupported, file_.path() + ": " + what + " (architecture " + prefix_ + ")");
  }
  Status out_of_range(const char* name, const std::string& wanted, std::uint64_t got) const {
    return Status(Code::kDamaged,
                  file_.path() + ": key '" + key(name) + "': wanted " + wanted + ", got " + std::to_string(got));
  }

  // Features that a file of a known architecture may ask for and the graph does not have.
  Status refuse_unsupported() const {
    std::uint32_t experts = 0;
    NEVE_MODEL_READ(experts, file_.u32(key("expert_count"), 0));
    if (experts > 0)
      return unsupported("mixture of experts (" + std::to_string(experts) + " experts) is not supported");
    for (const char* name : {"attention.key_length_mla", "attention.kv_lora_rank"}) {
      if (file_.has(key(name))) return unsupported("latent attention (MLA) is not supported");
    }
    if (file_.has(key("attention.sliding_window_pattern"))) {
      return unsupported("layers of different sliding windows are not supported");
    }
    if (file_.has(key("attention.clamp_kqv"))) return unsupported("clamped queries and keys are not supported");
    return ok_status();
  }

  Status read_sizes() {
    NEVE_MODEL_READ(out_.context_tokens, file_.u32(key("context_length")));
    NEVE_MODEL_READ(out_.hidden, file_.u32(key("embedding_length")));
    NEVE_MODEL_READ(out_.norm_epsilon, file_.f32(key("attention.layer_norm_rms_epsilon")));
    if (out_.context_tokens < 1) return out_of_range("context_length", "1 or more", 0);
    if (out_.hidden < 1) return out_of_range("embedding_length", "1 or more", 0);
    if (!(out_.norm_epsilon >= 0.f && out_.norm_epsilon < 1.f)) {
      return Status(Code::kDamaged, file_.path() + ": key '" + key("attention.layer_norm_rms_epsilon") +
                                        "': wanted 0 to 1, got " + std::to_string(out_.norm_epsilon));
    }
    std::uint32_t blocks = 0, predictors = 0;
    NEVE_MODEL_READ(blocks, file_.u32(key("block_count")));
    NEVE_MODEL_READ(predictors, file_.u32(key("nextn_predict_layers"), 0));
    if (blocks < 1 || blocks > kMostLayers) {
      return out_of_range("block_count", "1 to " + std::to_string(kMostLayers), blocks);
    }
    if (predictors > 0) return unsupported("layers that predict several tokens (nextn) are not supported");
    layers_ = blocks;
    std::vector<std::uint32_t> feed_forward;
    NEVE_MODEL_READ(feed_forward, file_.u32_per_layer(key("feed_forward_length"), layers_));
    out_.feed_forward.assign(feed_forward.begin(), feed_forward.end());

    const GgufTensor* const embedding = file_.find_tensor("token_embd.weight");
    if (embedding == nullptr) {
      return Status(Code::kDamaged, file_.path() + ": tensor 'token_embd.weight' is missing");
    }
    out_.vocabulary = embedding->ne[1];
    return ok_status();
  }

  Status read_attention() {
    std::vector<std::uint32_t> heads, kv_heads;
    NEVE_MODEL_READ(heads, file_.u32_per_layer(key("attention.head_count"), layers_));
    NEVE_MODEL_READ(kv_heads, file_.u32_per_layer(key("attention.head_count_kv"), layers_, 0u));
    std::uint32_t window = 0, key_channels = 0, value_channels = 0;
    float scale = 0.f;
    NEVE_MODEL_READ(window, file_.u32(key("attention.sliding_window"), 0));
    NEVE_MODEL_READ(scale, file_.f32(key("attention.scale"), 0.f));
    if (heads[0] == 0) return out_of_range("attention.head_count", "1 or more", 0);
    const auto usual = static_cast<std::uint32_t>(out_.hidden / heads[0]);
    NEVE_MODEL_READ(key_channels, file_.u32(key("attention.key_length"), usual));
    NEVE_MODEL_READ(value_channels, file_.u32(key("attention.value_length"), usual));
    if (key_channels < 1 || key_channels > kMostChannels) {
      return out_of_range("attention.key_length", "1 to " + std::to_string(kMostChannels), key_channels);
    }
    if (value_channels < 1 || value_channels > kMostChannels) {
      return out_of_range("attention.value_length", "1 to " + std::to_string(kMostChannels), value_channels);
    }
    if (!std::isfinite(scale) || scale < 0.f) {
      return Status(Code::kDamaged, file_.path() + ": key '" + key("attention.scale") + "' is not a positive number");
    }
    if (window > (1u << 30)) return out_of_range("attention.sliding_window", "at most 2^30", window);
    for (std::uint32_t i = 0; i < layers_; ++i) {
      const std::uint32_t kv = kv_heads[i] == 0 ? heads[i] : kv_heads[i];
      if (heads[i] < 1 || heads[i] > 4096) return out_of_range("attention.head_count", "1 to 4096", heads[i]);
      if (kv > heads[i] || heads[i] % kv != 0) {
        return out_of_range("attention.head_count_kv", "a divisor of " + std::to_string(heads[i]), kv);
      }
      LayerGeometry geometry;
      geometry.query_heads = static_cast<int>(heads[i]);
      geometry.kv_heads = static_cast<int>(kv);
      geometry.key_dim = static_cast<int>(key_channels);
      geometry.value_dim = static_cast<int>(value_channels);
      geometry.sliding_window = static_cast<int>(window);
      geometry.scale = scale > 0.f ? scale : 1.f / std::sqrt(static_cast<float>(key_channels));
      out_.attention.push_back(geometry);
    }
    return ok_status();
  }

  // As llama.cpp derives it (llama_context), so that the same file turns the same way.
  Status read_rope() {
    Rope& rope = out_.rope;
    rope.pairs = out_.architecture->rope_pairs;
    const int head = out_.attention[0].key_dim;
    NEVE_MODEL_READ(rope.channels, file_.u32(key("rope.dimension_count"), static_cast<std::uint32_t>(head)));
    if (rope.channels < 2 || rope.channels > head || rope.channels % 2 != 0) {
      return out_of_range("rope.dimension_count", "an even number up to " + std::to_string(head),
                          static_cast<std::uint64_t>(rope.channels));
    }
    const auto context = static_cast<std::uint32_t>(out_.context_tokens);
    NEVE_MODEL_READ(rope.original_context, file_.u32(key("rope.scaling.original_context_length"), context));
    NEVE_MODEL_READ(rope.base, file_.f32(key("rope.freq_base"), 10000.f));
    if (!(std::isfinite(rope.base) && rope.base > 0.f)) {
      return Status(Code::kDamaged, file_.path() + ": key '" + key("rope.freq_base") + "' is not a positive number");
    }
    std::string scaling;
    float factor = 0.f;
    NEVE_MODEL_READ(scaling, file_.text(key("rope.scaling.type"), "linear"));
    NEVE_MODEL_READ(factor, file_.f32(key("rope.scale_linear"), 0.f));  // its old name
    NEVE_MODEL_READ(factor, file_.f32(key("rope.scaling.factor"), factor));
    if (!std::isfinite(factor) || factor < 0.f) {
      return Status(Code::kDamaged,
                    file_.path() + ": key '" + key("rope.scaling.factor") + "' is not a positive number");
    }
    if (scaling != "none" && scaling != "linear" && scaling != "yarn") {
      return unsupported("RoPE scaling " + quoted(scaling) + " is not supported; none, linear and yarn are");
    }
    rope.scale = factor == 0.f || scaling == "none" ? 1.f : 1.f / factor;
    NEVE_MODEL_READ(rope.ext_factor, file_.f32(key("rope.scaling.yarn_ext_factor"), scaling == "yarn" ? 1.f : 0.f));
    NEVE_MODEL_READ(rope.attn_factor, file_.f32(key("rope.scaling.yarn_attn_factor"), 1.f));
    NEVE_MODEL_READ(rope.beta_fast, file_.f32(key("rope.scaling.yarn_beta_fast"), 32.f));
    NEVE_MODEL_READ(rope.beta_slow, file_.f32(key("rope.scaling.yarn_beta_slow"), 1.f));
    if (rope.ext_factor != 0.f) {
      // ggml multiplies by 1 + 0.1 ln f wherever ext_factor is set; undo what is not wanted (f <= 1).
      const float stretch = 1.f / rope.scale;
      const float wanted = stretch <= 1.f ? 1.f : 0.1f * std::log(stretch) + 1.f;
      rope.attn_factor = wanted * (1.f / (1.f + 0.1f * std::log(stretch)));
    }
    float extra = 1.f;
    NEVE_MODEL_READ(extra, file_.f32(key("rope.scaling.attn_factor"), 1.f));
    rope.attn_factor *= extra;
    return ok_status();
  }

  const GgufFile& file_;
  const std::string prefix_;
  std::uint32_t layers_ = 0;
  Hyperparameters out_;
};

}  // namespace

Result<Hyperparameters> read_hyperparameters(const GgufFile& file) {
  const Result<std::string> name = file.text("general.architecture");
  if (!name.ok()) return name.status();
  const Architecture* const architecture = find_architecture(*name);
  if (architecture == nullptr) {
    return Status(Code::kUnsupported, file.path() + ": architecture " + quoted(*name) +
                                          " is not supported; these work: " + architecture_names());
  }
  return Reader(file, *architecture).run();
}

}  // namespace neve::model
