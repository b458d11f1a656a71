#include <chrono>
#include <vector>

#include "eval/attend_engine.h"
#include "model/peer_ggml_attention.h"

namespace neve::eval {
namespace {

class GgmlAttend final : public AttendEngine {
 public:
  GgmlAttend(std::unique_ptr<model::PeerGgmlAttention> peer, std::string path)
      : peer_(std::move(peer)), path_(std::move(path)) {}

  // ggml keeps its threads between graphs; waking them is part of a pass, as it is of a step of llama.cpp.
  Result<double> pass() override {
    const auto start = std::chrono::steady_clock::now();
    NEVE_RETURN_IF_ERROR(peer_->pass());
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

  std::uint64_t bytes() const override { return peer_->bytes(); }
  std::string path() const override { return path_; }

 private:
  std::unique_ptr<model::PeerGgmlAttention> peer_;
  std::string path_;
};

struct Path {
  model::AttentionPath path;
  const char* name;
};
constexpr Path kPaths[] = {{model::AttentionPath::kFlash, "flash"}, {model::AttentionPath::kSoftmax, "softmax"}};

// Passes that decide between the paths; the first of each only warms up.
constexpr int kTrials = 3;

Result<double> best_of_trials(AttendEngine* engine) {
  double best = 0;
  for (int trial = 0; trial < kTrials; ++trial) {
    const auto seconds = engine->pass();
    if (!seconds.ok()) return seconds;
    if (trial == 1 || (trial > 1 && *seconds < best)) best = *seconds;
  }
  return best;
}

}  // namespace

Result<std::unique_ptr<AttendEngine>> make_ggml_attend(const AttendShape& shape, const std::string& type) {
  model::PeerAttentionShape peer_shape;
  peer_shape.head_dim = shape.head_dim;
  peer_shape.kv_heads = shape.kv_heads;
  peer_shape.gqa = shape.gqa;
  peer_shape.layers = shape.layers;
  peer_shape.tokens = shape.tokens;
  peer_shape.threads = shape.threads;
  std::unique_ptr<AttendEngine> fastest;
  double fastest_s = 0;
  Status refused;
  for (const Path& path : kPaths) {
    auto peer = model::PeerGgmlAttention::create(peer_shape, type, path.path, shape.seed);
    if (!peer.ok()) {
      // ggml cannot do every type in every way; only if it can in none is that an error.
      refused = peer.status();
      continue;
    }
    auto engine = std::make_unique<GgmlAttend>(std::move(*peer), path.name);
    const auto seconds = best_of_trials(engine.get());
    if (!seconds.ok()) return seconds.status();
    if (fastest == nullptr || *seconds < fastest_s) {
      fastest = std::move(engine);
      fastest_s = *seconds;
    }
  }
  if (fastest == nullptr) return refused;
  return fastest;
}

}  // namespace neve::eval
