#include "model/peer_ggml_attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "ggml-alloc.h"
#include "ggml-backend.h"
#include "ggml-cpu.h"
#include "ggml.h"
#include "model/peer_state.h"
#include "model/printable.h"
#include "model/thread_team.h"

namespace neve::model {
namespace {

// Rows that are drawn; the rest repeat them. Prime, so that tiles of a power of two do not all hold the same rows.
constexpr std::int64_t kBankRows = 1021;

void fill(ggml_tensor* tensor, std::uint64_t seed) {
  const std::int64_t rows = ggml_nrows(tensor);
  const std::int64_t drawn = std::min(rows, kBankRows);
  const std::vector<std::uint8_t> bank = random_rows(tensor->type, drawn, tensor->ne[0], seed);
  const std::size_t row_bytes = ggml_row_size(tensor->type, tensor->ne[0]);
  auto* const data = static_cast<std::uint8_t*>(tensor->data);
  for (std::int64_t row = 0; row < rows; row += drawn) {
    const std::int64_t run = std::min(drawn, rows - row);
    std::memcpy(data + static_cast<std::size_t>(row) * row_bytes, bank.data(),
                static_cast<std::size_t>(run) * row_bytes);
  }
}

}  // namespace

struct PeerGgmlAttention::Impl {
  PeerAttentionShape shape;
  std::unique_ptr<ThreadTeam> team;
  ggml_context* context = nullptr;  // keys, values, queries, mask: filled once
  ggml_context* graph_context = nullptr;
  ggml_backend_buffer_t buffer = nullptr;
  ggml_gallocr_t allocator = nullptr;
  ggml_cgraph* graph = nullptr;
  ggml_cplan plan = {};
  std::vector<std::uint8_t> work;
  std::vector<ggml_tensor*> outputs;  // [layers]
  std::uint64_t bytes = 0;

  ~Impl() {
    if (allocator != nullptr) ggml_gallocr_free(allocator);
    if (graph_context != nullptr) ggml_free(graph_context);
    if (buffer != nullptr) ggml_backend_buffer_free(buffer);
    if (context != nullptr) ggml_free(context);
  }

  Status build(ggml_type type, AttentionPath path, std::uint64_t seed) {
    const bool flash = path == AttentionPath::kFlash;
    const std::int64_t dim = shape.head_dim, heads = std::int64_t{shape.kv_heads} * shape.gqa;
    const auto layers = static_cast<std::size_t>(shape.layers);
    const std::size_t tensors = 3 * layers + 1, nodes = 8 * layers + 8;
    context = ggml_init({.mem_size = tensors * ggml_tensor_overhead(), .mem_buffer = nullptr, .no_alloc = true});
    graph_context = ggml_init({.mem_size = nodes * ggml_tensor_overhead() + ggml_graph_overhead_custom(nodes, false),
                               .mem_buffer = nullptr,
                               .no_alloc = true});
    if (context == nullptr || graph_context == nullptr) return exhausted();
    std::vector<ggml_tensor*> keys, values, queries;
    for (std::size_t i = 0; i < layers; ++i) {
      keys.push_back(ggml_new_tensor_3d(context, type, dim, shape.tokens, shape.kv_heads));
      values.push_back(flash ? ggml_new_tensor_3d(context, type, dim, shape.tokens, shape.kv_heads)
                             : ggml_new_tensor_3d(context, type, shape.tokens, dim, shape.kv_heads));
      queries.push_back(ggml_new_tensor_3d(context, GGML_TYPE_F32, dim, 1, heads));
    }
    ggml_tensor* const mask = ggml_new_tensor_2d(context, GGML_TYPE_F16, shape.tokens, 1);
    buffer = ggml_backend_alloc_ctx_tensors_from_buft(context, ggml_backend_cpu_buffer_type());
    if (buffer == nullptr) return exhausted();
    ggml_backend_buffer_clear(buffer, 0);  // the mask hides nothing
    for (std::size_t i = 0; i < layers; ++i) {
      fill(keys[i], seed + 3 * i);
      fill(values[i], seed + 3 * i + 1);
      fill(queries[i], seed + 3 * i + 2);
      bytes += ggml_nbytes(keys[i]) + ggml_nbytes(values[i]);
    }

    graph = ggml_new_graph_custom(graph_context, nodes, false);
    const float scale = 1.f / std::sqrt(static_cast<float>(dim));
    for (std::size_t i = 0; i < layers; ++i) {
      ggml_tensor* const out = flash ? flash_attention(queries[i], keys[i], values[i], mask, scale)
                                     : softmax_attention(queries[i], keys[i], values[i], mask, scale);
      ggml_set_output(out);
      ggml_build_forward_expand(graph, out);
      outputs.push_back(out);
    }
    allocator = ggml_gallocr_new(ggml_backend_cpu_buffer_type());
    if (allocator == nullptr || !ggml_gallocr_alloc_graph(allocator, graph)) return exhausted();
    plan = ggml_graph_plan(graph, team->threads(), team->pool());
    work.resize(plan.work_size);
    plan.work_data = work.data();
    return ok_status();
  }

  ggml_tensor* flash_attention(ggml_tensor* query, ggml_tensor* key, ggml_tensor* value, ggml_tensor* mask,
                               float scale) const {
    ggml_tensor* const out = ggml_flash_attn_ext(graph_context, query, key, value, mask, scale, 0.f, 0.f);
    ggml_prec_set_acc(out, GGML_PREC_F32);
    return out;
  }
  ggml_tensor* softmax_attention(ggml_tensor* query, ggml_tensor* key, ggml_tensor* value, ggml_tensor* mask,
                                 float scale) const {
    ggml_tensor* const scores = ggml_mul_mat(graph_context, key, query);  // [tokens, 1, query_heads]
    ggml_prec_set_acc(scores, GGML_PREC_F32);
    ggml_tensor* const weights = ggml_soft_max_ext(graph_context, scores, mask, scale, 0.f);
    return ggml_mul_mat(graph_context, value, weights);  // [head_dim, 1, query_heads]
  }

  Status exhausted() const {
    return Status(Code::kExhausted, "ggml attention: no memory for " + std::to_string(shape.layers) + " layers of " +
                                        std::to_string(shape.tokens) + " tokens");
  }
};

Result<std::unique_ptr<PeerGgmlAttention>> PeerGgmlAttention::create(const PeerAttentionShape& shape,
                                                                     const std::string& type, AttentionPath path,
                                                                     std::uint64_t seed) {
  ggml_type kind = GGML_TYPE_COUNT;
  for (const ggml_type candidate : {GGML_TYPE_F16, GGML_TYPE_Q8_0, GGML_TYPE_Q4_0}) {
    if (type == ggml_type_name(candidate)) kind = candidate;
  }
  if (kind == GGML_TYPE_COUNT) {
    return Status(Code::kInvalidArgument, "ggml attention: wanted f16, q8_0 or q4_0, got " + quoted(type));
  }
  if (shape.head_dim < 1 || shape.kv_heads < 1 || shape.gqa < 1 || shape.layers < 1 || shape.tokens < 1) {
    return Status(Code::kInvalidArgument, "ggml attention: every number of the shape must be positive");
  }
  if (path == AttentionPath::kSoftmax && ggml_is_quantized(kind)) {
    return Status(Code::kUnsupported, "ggml attention: transposed values cannot be " + type);
  }
  if (shape.head_dim % ggml_blck_size(kind) != 0) {
    return Status(Code::kUnsupported,
                  "ggml attention: blocks of " + type + " do not divide a head of " + std::to_string(shape.head_dim));
  }
  auto impl = std::make_unique<Impl>();
  impl->shape = shape;
  impl->team = ThreadTeam::create(shape.threads);
  if (impl->team == nullptr) return Status(Code::kExhausted, "no more threads");
  NEVE_RETURN_IF_ERROR(impl->build(kind, path, seed));
  return std::unique_ptr<PeerGgmlAttention>(new PeerGgmlAttention(std::move(impl)));
}

PeerGgmlAttention::PeerGgmlAttention(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
PeerGgmlAttention::~PeerGgmlAttention() = default;

Status PeerGgmlAttention::pass() {
  const ThreadTeam::Turn turn(impl_->team.get());
  const ggml_status status = ggml_graph_compute(impl_->graph, &impl_->plan);
  if (status == GGML_STATUS_SUCCESS) return ok_status();
  return Status(Code::kInternal, std::string("ggml_graph_compute: ") + ggml_status_to_string(status));
}

std::span<const float> PeerGgmlAttention::output(int layer) const {
  const ggml_tensor* const out = impl_->outputs[static_cast<std::size_t>(layer)];
  return {static_cast<const float*>(out->data), static_cast<std::size_t>(ggml_nelements(out))};
}

std::uint64_t PeerGgmlAttention::bytes() const { return impl_->bytes; }

}  // namespace neve::model
