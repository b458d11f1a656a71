// Attention of one query token, neve against ggml, shape by shape.
#include <cmath>

#include "eval/attend_engine.h"
#include "eval/samples.h"
#include "neve/bench.h"

namespace neve {
namespace {

Status check(const AttendBenchOptions& options) {
  auto wrong = [](const std::string& what, std::int64_t got) {
    return Status(Code::kInvalidArgument, "bench attend: wanted " + what + ", got " + std::to_string(got));
  };
  if (options.caches.empty()) return Status(Code::kInvalidArgument, "bench attend: no cache to measure");
  if (options.depth_tokens < 1) return wrong("a depth of at least 1 token", options.depth_tokens);
  if (options.kv_heads < 1) return wrong("at least 1 KV head", options.kv_heads);
  if (options.threads < 1) return wrong("at least 1 thread", options.threads);
  if (options.repeats < 1) return wrong("at least 1 repeat", options.repeats);
  for (const int head_dim : options.head_dims) {
    if (head_dim < 1 || head_dim > 576) return wrong("head sizes of 1 to 576", head_dim);
  }
  for (const int gqa : options.gqa) {
    if (gqa < 1) return wrong("at least 1 query head per KV head", gqa);
  }
  return ok_status();
}

// As many layers as a 4-bit cache (codes alone) needs to reach the working set.
int layers_for(const AttendBenchOptions& options, int head_dim) {
  const double layer_bytes = static_cast<double>(options.depth_tokens) * options.kv_heads * head_dim;  // keys + values
  return std::max(1, static_cast<int>(std::ceil(static_cast<double>(options.working_set_bytes) / layer_bytes)));
}

struct Contestant {
  AttendBenchRow row;
  std::unique_ptr<eval::AttendEngine> engine;
  eval::Samples values_per_s, step_us;
};

Result<Contestant> make_contestant(const eval::AttendShape& shape, const KvSpec& spec) {
  const bool peer = spec.mode == KvMode::kPeer;
  auto engine = peer ? eval::make_ggml_attend(shape, spec.peer_type) : eval::make_neve_attend(shape, spec);
  if (!engine.ok()) return Status(engine.status().code(), spec.text + ": " + engine.status().message());
  Contestant contestant;
  contestant.row.engine = peer ? "ggml" : "neve";
  contestant.row.kv = peer ? spec.peer_type : spec.text;
  contestant.row.path = (*engine)->path();
  contestant.row.head_dim = shape.head_dim;
  contestant.row.gqa = shape.gqa;
  contestant.row.layers = shape.layers;
  contestant.row.tokens = shape.tokens;
  contestant.row.bytes = (*engine)->bytes();
  contestant.engine = std::move(*engine);
  return contestant;
}

}  // namespace

Result<std::vector<AttendBenchRow>> bench_attend(const AttendBenchOptions& options) {
  NEVE_RETURN_IF_ERROR(check(options));
  std::vector<AttendBenchRow> rows;
  const double shapes = static_cast<double>(options.head_dims.size() * options.gqa.size());
  double shapes_done = 0;
  for (const int head_dim : options.head_dims) {
    for (const int gqa : options.gqa) {
      eval::AttendShape shape;
      shape.head_dim = head_dim;
      shape.kv_heads = options.kv_heads;
      shape.gqa = gqa;
      shape.layers = layers_for(options, head_dim);
      shape.tokens = options.depth_tokens;
      shape.threads = options.threads;
      shape.seed = options.seed;

      std::vector<Contestant> contestants;
      for (const KvSpec& spec : options.caches) {
        auto contestant = make_contestant(shape, spec);
        if (!contestant.ok()) return contestant.status();
        contestants.push_back(std::move(*contestant));
      }
      // Round 0 warms up: page tables, branch predictors, clock.
      for (int round = 0; round <= options.repeats; ++round) {
        for (Contestant& contestant : contestants) {
          if (options.control.cancelled && options.control.cancelled()) {
            return Status(Code::kCancelled, "bench attend: stopped");
          }
          const auto seconds = contestant.engine->pass();
          if (!seconds.ok()) return seconds.status();
          if (round == 0) continue;
          contestant.values_per_s.add(shape.values() / *seconds);
          contestant.step_us.add(*seconds * 1e6 / shape.layers);
        }
        if (options.control.progress) {
          options.control.progress((shapes_done + (round + 1.0) / (options.repeats + 1.0)) / shapes);
        }
      }
      ++shapes_done;
      double f16 = 0, q4_0 = 0;
      for (Contestant& contestant : contestants) {
        AttendBenchRow& row = contestant.row;
        row.values_per_s = contestant.values_per_s.median();
        row.best_values_per_s = contestant.values_per_s.largest();
        row.step_us = contestant.step_us.median();
        if (row.engine == "ggml" && row.kv == "f16") f16 = row.values_per_s;
        if (row.engine == "ggml" && row.kv == "q4_0") q4_0 = row.values_per_s;
      }
      for (Contestant& contestant : contestants) {
        if (f16 > 0) contestant.row.over_f16 = contestant.row.values_per_s / f16;
        if (q4_0 > 0) contestant.row.over_q4_0 = contestant.row.values_per_s / q4_0;
        rows.push_back(contestant.row);
      }
    }
  }
  return rows;
}

}  // namespace neve
