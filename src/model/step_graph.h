// The ggml graph of one step: token ids in, logits out. Built for a shape (how many tokens, how many of their rows
// need logits), allocated once, run as often as that shape comes.
//
//   x = embedding[tokens]
//   per layer:  h = x + W_o attention(RoPE(norm(W_q n)), RoPE(norm(W_k n)), W_v n),   n = rms_norm(x)
//               x = h + W_down (silu(W_gate m) * (W_up m)),                           m = rms_norm(h)
//   logits = W_head rms_norm(x)
//
// From the last attention on, only the rows that need logits are carried.
// Threads: one step at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "ggml-alloc.h"
#include "ggml-cpu.h"
#include "ggml.h"
#include "model/attention_op.h"
#include "model/hyperparameters.h"
#include "model/thread_team.h"
#include "model/weight_set.h"
#include "neve/status.h"

namespace neve::model {

struct StepShape {
  std::int64_t tokens = 0;
  std::int64_t logit_rows = 0;  // 0 to tokens; = tokens: every row, in order
  bool operator==(const StepShape&) const = default;
};

struct StepInput {
  std::span<const std::int32_t> tokens;      // [tokens]
  std::span<const std::int32_t> positions;   // [tokens]
  std::span<const std::int32_t> logit_rows;  // [logit_rows]
};

class StepGraph {
 public:
  // `weights`, `hyperparameters`, `step` and `team` must outlive the graph. Errors: kExhausted.
  static Result<std::unique_ptr<StepGraph>> build(const Hyperparameters& hyperparameters, const WeightSet& weights,
                                                  const StepCaches& step, ThreadTeam* team, StepShape shape);
  ~StepGraph();

  const StepShape& shape() const { return shape_; }
  // Bytes that `run` needs as work space, beside the graph's own buffers.
  std::size_t work_bytes() const { return plan_.work_size; }
  std::int64_t buffer_bytes() const;

  // Returns: logits [logit_rows][vocabulary], inside the graph's buffers: valid until its next run.
  Result<std::span<const float>> run(const StepInput& input, std::span<std::uint8_t> work);

 private:
  friend class StepGraphBuilder;
  StepGraph() = default;

  StepShape shape_;
  ggml_context* context_ = nullptr;
  ggml_cgraph* graph_ = nullptr;
  ggml_gallocr_t allocator_ = nullptr;
  ggml_cplan plan_ = {};
  ThreadTeam* team_ = nullptr;
  ggml_tensor* tokens_ = nullptr;          // [tokens] i32
  ggml_tensor* positions_ = nullptr;       // [tokens] i32
  ggml_tensor* logit_rows_ = nullptr;      // [logit_rows] i32, or null
  ggml_tensor* logits_ = nullptr;          // [vocabulary, logit_rows] f32, or null
  std::vector<AttentionLayer> attention_;  // [layers]
};

}  // namespace neve::model
