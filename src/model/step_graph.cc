#include "model/step_graph.h"

#include <cstring>
#include <string>

namespace neve::model {
namespace {

constexpr std::size_t kNodesPerLayer = 48;  // generous: most layers take half
constexpr std::size_t kNodesBeside = 64;

void fill(ggml_tensor* tensor, std::span<const std::int32_t> values) {
  std::memcpy(tensor->data, values.data(), values.size_bytes());
}

}  // namespace

class StepGraphBuilder {
 public:
  StepGraphBuilder(const Hyperparameters& hyperparameters, const WeightSet& weights, const StepCaches& step,
                   StepShape shape)
      : hyper_(hyperparameters), weights_(weights), graph_(new StepGraph) {
    graph_->shape_ = shape;
    graph_->attention_.resize(static_cast<std::size_t>(hyper_.layers()));
    for (int i = 0; i < hyper_.layers(); ++i) graph_->attention_[static_cast<std::size_t>(i)] = {&step, i};
  }

  Result<std::unique_ptr<StepGraph>> run(ThreadTeam* team) {
    const std::size_t nodes = kNodesBeside + kNodesPerLayer * static_cast<std::size_t>(hyper_.layers());
    const std::size_t structs = nodes * ggml_tensor_overhead() + ggml_graph_overhead_custom(nodes, false);
    context_ = ggml_init({.mem_size = structs, .mem_buffer = nullptr, .no_alloc = true});
    if (context_ == nullptr) return exhausted(structs);
    graph_->context_ = context_;
    graph_->graph_ = ggml_new_graph_custom(context_, nodes, false);
    graph_->team_ = team;

    build_inputs();
    ggml_tensor* x = ggml_get_rows(context_, weights_.token_embedding(), graph_->tokens_);
    for (int i = 0; i < hyper_.layers() && x != nullptr; ++i) x = build_layer(i, x);
    if (x != nullptr) build_head(x);

    graph_->allocator_ = ggml_gallocr_new(ggml_backend_cpu_buffer_type());
    if (graph_->allocator_ == nullptr || !ggml_gallocr_alloc_graph(graph_->allocator_, graph_->graph_)) {
      return exhausted(static_cast<std::size_t>(graph_->buffer_bytes()));
    }
    graph_->plan_ = ggml_graph_plan(graph_->graph_, team->threads(), team->pool());
    return std::move(graph_);
  }

 private:
  static Status exhausted(std::size_t bytes) {
    return Status(Code::kExhausted, "no memory for the graph of a step (" + std::to_string(bytes) + " bytes)");
  }

  ggml_tensor* input(std::int64_t length) {
    ggml_tensor* const tensor = ggml_new_tensor_1d(context_, GGML_TYPE_I32, length);
    ggml_set_input(tensor);
    return tensor;
  }
  void build_inputs() {
    const StepShape& shape = graph_->shape_;
    graph_->tokens_ = input(shape.tokens);
    graph_->positions_ = input(shape.tokens);
    const bool some = shape.logit_rows > 0 && shape.logit_rows < shape.tokens;
    if (some) graph_->logit_rows_ = input(shape.logit_rows);
  }

  // x: [features, ...]; weight: [features]
  ggml_tensor* norm(ggml_tensor* x, ggml_tensor* weight) {
    return ggml_mul(context_, ggml_rms_norm(context_, x, hyper_.norm_epsilon), weight);
  }
  ggml_tensor* apply(const Linear& linear, ggml_tensor* x) {
    ggml_tensor* const y = ggml_mul_mat(context_, linear.weight, x);
    return linear.bias == nullptr ? y : ggml_add(context_, y, linear.bias);
  }
  // x: [key_dim, heads, tokens]
  ggml_tensor* rotate(ggml_tensor* x) {
    const Rope& rope = hyper_.rope;
    const int mode = rope.pairs == RopePairs::kNeighbours ? GGML_ROPE_TYPE_NORMAL : GGML_ROPE_TYPE_NEOX;
    return ggml_rope_ext(context_, x, graph_->positions_, weights_.rope_factors(), rope.channels, mode,
                         rope.original_context, rope.base, rope.scale, rope.ext_factor, rope.attn_factor,
                         rope.beta_fast, rope.beta_slow);
  }
  // `heads` heads of `dim` channels each out of the rows of x: [features, tokens], from feature `first` on.
  ggml_tensor* heads_of(ggml_tensor* x, std::int64_t dim, std::int64_t heads, std::int64_t first) {
    return ggml_view_3d(context_, x, dim, heads, x->ne[1], static_cast<std::size_t>(dim) * sizeof(float), x->nb[1],
                        static_cast<std::size_t>(first) * sizeof(float));
  }

  struct Heads {
    ggml_tensor* query = nullptr;  // [key_dim, query_heads, tokens], rotated
    ggml_tensor* key = nullptr;    // [key_dim, kv_heads, tokens], rotated
    ggml_tensor* value = nullptr;  // [value_dim, kv_heads, tokens]
  };
  Heads build_heads(const LayerWeights& layer, const LayerGeometry& geometry, ggml_tensor* x) {
    const std::int64_t key_dim = geometry.key_dim, queries = geometry.query_heads, kv = geometry.kv_heads;
    Heads heads;
    if (layer.query_key_value.weight != nullptr) {
      ggml_tensor* const joined = apply(layer.query_key_value, x);
      heads.value = heads_of(joined, geometry.value_dim, kv, (queries + kv) * key_dim);
      if (layer.query_norm == nullptr) {
        // Keys lie behind queries and turn the same way: one rotation for both.
        ggml_tensor* const rotated = rotate(heads_of(joined, key_dim, queries + kv, 0));
        heads.query = ggml_view_3d(context_, rotated, key_dim, queries, x->ne[1], rotated->nb[1], rotated->nb[2], 0);
        heads.key = ggml_view_3d(context_, rotated, key_dim, kv, x->ne[1], rotated->nb[1], rotated->nb[2],
                                 static_cast<std::size_t>(queries) * rotated->nb[1]);
        return heads;
      }
      heads.query = heads_of(joined, key_dim, queries, 0);
      heads.key = heads_of(joined, key_dim, kv, queries * key_dim);
    } else {
      heads.query = heads_of(apply(layer.query, x), key_dim, queries, 0);
      heads.key = heads_of(apply(layer.key, x), key_dim, kv, 0);
      heads.value = heads_of(apply(layer.value, x), geometry.value_dim, kv, 0);
    }
    if (layer.query_norm != nullptr) heads.query = norm(heads.query, layer.query_norm);
    if (layer.key_norm != nullptr) heads.key = norm(heads.key, layer.key_norm);
    heads.query = rotate(heads.query);
    heads.key = rotate(heads.key);
    return heads;
  }

  // Returns: the next layer's input; null where nothing behind this layer's keys and values is wanted.
  ggml_tensor* build_layer(int index, ggml_tensor* x) {
    const LayerWeights& layer = weights_.layers()[static_cast<std::size_t>(index)];
    const LayerGeometry& geometry = hyper_.attention[static_cast<std::size_t>(index)];
    AttentionLayer* const node = &graph_->attention_[static_cast<std::size_t>(index)];
    const bool last = index + 1 == hyper_.layers();

    const Heads heads = build_heads(layer, geometry, norm(x, layer.attention_norm));
    ggml_tensor* const append = build_append(context_, node, heads.query, heads.key, heads.value);
    if (last && graph_->shape_.logit_rows == 0) {
      ggml_build_forward_expand(graph_->graph_, append);
      return nullptr;
    }
    ggml_tensor* attention = build_attend(context_, node, geometry, append, heads.query);
    if (last && graph_->logit_rows_ != nullptr) {
      attention = ggml_get_rows(context_, attention, graph_->logit_rows_);
      x = ggml_get_rows(context_, x, graph_->logit_rows_);
    }
    ggml_tensor* const h = ggml_add(context_, apply(layer.attention_output, attention), x);
    return ggml_add(context_, build_feed_forward(layer, norm(h, layer.feed_forward_norm)), h);
  }

  ggml_tensor* build_feed_forward(const LayerWeights& layer, ggml_tensor* x) {
    ggml_tensor* const up = apply(layer.up, x);
    return apply(layer.down, ggml_swiglu_split(context_, apply(layer.gate, x), up));
  }

  void build_head(ggml_tensor* x) {
    graph_->logits_ = apply(weights_.output_head(), norm(x, weights_.output_norm()));
    ggml_set_output(graph_->logits_);
    ggml_build_forward_expand(graph_->graph_, graph_->logits_);
  }

  const Hyperparameters& hyper_;
  const WeightSet& weights_;
  std::unique_ptr<StepGraph> graph_;
  ggml_context* context_ = nullptr;
};

Result<std::unique_ptr<StepGraph>> StepGraph::build(const Hyperparameters& hyperparameters, const WeightSet& weights,
                                                    const StepCaches& step, ThreadTeam* team, StepShape shape) {
  return StepGraphBuilder(hyperparameters, weights, step, shape).run(team);
}

StepGraph::~StepGraph() {
  if (allocator_ != nullptr) ggml_gallocr_free(allocator_);
  if (context_ != nullptr) ggml_free(context_);
}

std::int64_t StepGraph::buffer_bytes() const {
  return allocator_ == nullptr ? 0 : static_cast<std::int64_t>(ggml_gallocr_get_buffer_size(allocator_, 0));
}

Result<std::span<const float>> StepGraph::run(const StepInput& input, std::span<std::uint8_t> work) {
  fill(tokens_, input.tokens);
  fill(positions_, input.positions);
  if (logit_rows_ != nullptr) fill(logit_rows_, input.logit_rows);
  plan_.work_data = work.data();
  ggml_status status = GGML_STATUS_SUCCESS;
  {
    const ThreadTeam::Turn turn(team_);
    status = ggml_graph_compute(graph_, &plan_);
  }
  if (status != GGML_STATUS_SUCCESS) {
    return Status(Code::kInternal, std::string("ggml_graph_compute: ") + ggml_status_to_string(status));
  }
  if (logits_ == nullptr) return std::span<const float>();
  return std::span<const float>(static_cast<const float*>(logits_->data),
                                static_cast<std::size_t>(ggml_nelements(logits_)));
}

}  // namespace neve::model
