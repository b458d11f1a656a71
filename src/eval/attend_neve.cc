#include <random>
#include <vector>

#include "eval/attend_engine.h"
#include "eval/timed_team.h"
#include "model/thread_team.h"
#include "neve/kv_cache.h"
#include "neve/machine.h"

namespace neve::eval {
namespace {

std::vector<float> normal_numbers(std::size_t n, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> numbers(n);
  for (float& x : numbers) x = normal(random);
  return numbers;
}

class NeveAttend final : public AttendEngine {
 public:
  NeveAttend(const AttendShape& shape, std::string isa, std::unique_ptr<KvCache> cache, int sequence)
      : shape_(shape), isa_(std::move(isa)), cache_(std::move(cache)), sequence_(sequence) {
    const auto kv = static_cast<std::size_t>(shape.kv_heads) * static_cast<std::size_t>(shape.head_dim);
    const std::size_t query = kv * static_cast<std::size_t>(shape.gqa);
    queries_ = normal_numbers(query, shape.seed);
    keys_ = normal_numbers(kv, shape.seed + 1);
    values_ = normal_numbers(kv, shape.seed + 2);
    out_.resize(query);
  }

  Result<double> pass() override {
    model::ThreadTeam::rest();  // ggml's threads would spin through the whole pass
    const StepPart part = {sequence_, 1, nullptr};
    NEVE_RETURN_IF_ERROR(cache_->begin_step({&part, 1}));
    const HeadRows queries = rows(queries_), keys = rows(keys_), values = rows(values_);
    const MutableHeadRows out = {out_.data(), std::ssize(out_), shape_.head_dim};
    for (int layer = 0; layer < shape_.layers; ++layer) cache_->append(layer, 0, 1, queries, keys, values);
    const int threads = shape_.threads;
    const double seconds = timed_team(threads, [&](int worker, SpinBarrier& barrier) {
      for (int layer = 0; layer < shape_.layers; ++layer) {
        cache_->attend(layer, worker, threads, queries);
        barrier.arrive_and_wait();
        cache_->merge(layer, worker, threads, out);
        barrier.arrive_and_wait();
      }
    });
    cache_->abandon_step();
    return seconds;
  }

  std::uint64_t bytes() const override { return cache_->memory().bytes; }
  std::string path() const override { return isa_; }

 private:
  HeadRows rows(const std::vector<float>& data) const { return {data.data(), std::ssize(data), shape_.head_dim}; }

  AttendShape shape_;
  std::string isa_;
  std::unique_ptr<KvCache> cache_;
  int sequence_;
  std::vector<float> queries_, keys_, values_, out_;
};

}  // namespace

Result<std::unique_ptr<AttendEngine>> make_neve_attend(const AttendShape& shape, const KvSpec& spec) {
  const auto machine = machine_info();
  if (!machine.ok()) return machine.status();
  LayerGeometry layer;
  layer.query_heads = shape.kv_heads * shape.gqa;
  layer.kv_heads = shape.kv_heads;
  layer.key_dim = layer.value_dim = shape.head_dim;
  CacheOptions options;
  options.spec = spec;
  options.max_tokens = shape.tokens + 1;
  options.threads = shape.threads;
  auto cache = KvCache::create(std::vector<LayerGeometry>(static_cast<std::size_t>(shape.layers), layer), options);
  if (!cache.ok()) return cache.status();
  const auto sequence = (*cache)->add_sequence();
  if (!sequence.ok()) return sequence.status();
  NEVE_RETURN_IF_ERROR((*cache)->fill_synthetic(*sequence, shape.tokens, shape.seed));
  return std::unique_ptr<AttendEngine>(std::make_unique<NeveAttend>(shape, machine->isa, std::move(*cache), *sequence));
}

}  // namespace neve::eval
