// For tests: drives a KvCache as a model would, with numbers from token_source.h, and remembers what it gave.
//
// Rows are passed with odd strides and NaN between them: what is read or written between rows shows.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "kv/cache_impl.h"
#include "kv/token_source.h"
#include "neve/kv_cache.h"

namespace neve::kv {

// A token as it was given: the numbers of token `id` of source `seed`.
struct GivenToken {
  std::uint64_t seed = 0;
  std::int64_t id = 0;
  std::int32_t position = 0;
};

struct RunnerPart {
  int sequence = 0;
  int tokens = 0;
};

class CacheRunner {
 public:
  using Positions = std::function<std::int32_t(std::int64_t)>;
  // Called for every number that is passed in; may change it.
  using Tamper =
      std::function<void(int sequence, std::int64_t index, Row row, int layer, int head, int channel, float*)>;

  explicit CacheRunner(std::unique_ptr<KvCache> cache, int slices = 1)
      : cache_(std::move(cache)), slices_(slices), out_(cache_->layers().size()) {}

  KvCache& cache() { return *cache_; }
  KvCache::Impl& impl() { return KvCache::Impl::of(*cache_); }
  std::uint64_t bytes() const { return cache_->memory().bytes; }

  // A new sequence whose tokens come from `seed`; -1 if there is no room.
  int add(std::uint64_t seed) {
    const Result<int> id = cache_->add_sequence();
    if (!id.ok()) return -1;
    remember(*id).clear();
    set_seed(*id, seed);
    return *id;
  }
  Result<int> fork(int sequence, std::uint64_t seed) {
    Result<int> id = cache_->fork_sequence(sequence);
    if (!id.ok()) return id;
    remember(*id) = std::vector<GivenToken>(given(sequence));
    set_seed(*id, seed);
    return id;
  }
  Status truncate(int sequence, std::int64_t tokens) {
    const Status status = cache_->truncate(sequence, tokens);
    if (status.ok()) remember(sequence).resize(static_cast<std::size_t>(tokens));
    return status;
  }
  Status remove(int sequence) { return cache_->remove_sequence(sequence); }
  // Where the sequence's next tokens come from.
  void set_seed(int sequence, std::uint64_t seed) { seeds_[static_cast<std::size_t>(sequence)] = seed; }
  // Position by index, instead of index = position.
  void set_positions(Positions positions) { positions_ = std::move(positions); }
  void set_tamper(Tamper tamper) { tamper_ = std::move(tamper); }

  const std::vector<GivenToken>& given(int sequence) const { return given_[static_cast<std::size_t>(sequence)]; }

  // begin, append and, if asked, attend of all layers, commit. Outputs of the step: out().
  Status step(const std::vector<RunnerPart>& parts) { return run(parts, true); }
  // The same without attention.
  Status fill(const std::vector<RunnerPart>& parts) { return run(parts, false); }

  // Tokens of one sequence until it has `tokens`, in steps that end at boundaries and have at most `most` tokens.
  Status fill_to(int sequence, std::int64_t tokens, std::int64_t most = 128) {
    for (std::int64_t at = cache_->tokens(sequence); at < tokens; at = cache_->tokens(sequence)) {
      const std::int64_t stop = std::min({tokens, cache_->next_boundary(sequence), at + most});
      NEVE_RETURN_IF_ERROR(fill({{sequence, static_cast<int>(stop - at)}}));
    }
    return ok_status();
  }

  Status begin(const std::vector<RunnerPart>& parts) {
    std::vector<StepPart> step;
    std::vector<std::vector<std::int32_t>> positions;
    new_tokens_.clear();
    for (const RunnerPart& part : parts) {
      std::vector<std::int32_t>& list = positions.emplace_back();
      const auto& before = given(part.sequence);
      for (int t = 0; t < part.tokens; ++t) {
        const std::int64_t index = static_cast<std::int64_t>(before.size()) + t;
        const std::int32_t next = t > 0 ? list.back() + 1 : before.empty() ? 0 : before.back().position + 1;
        list.push_back(positions_ ? positions_(index) : next);
        new_tokens_.push_back(
            {part.sequence, index, {seeds_[static_cast<std::size_t>(part.sequence)], index, list.back()}});
      }
      step.push_back({part.sequence, part.tokens, positions_ ? list.data() : nullptr});
    }
    return cache_->begin_step(step);
  }

  void append(int layer) {
    make_rows(layer);
    const LayerGeometry& g = geometry(layer);
    in_slices([&](int slice) {
      cache_->append(layer, slice, slices_, rows(queries_, g.query_heads, g.key_dim),
                     rows(keys_, g.kv_heads, g.key_dim), rows(values_, g.kv_heads, g.value_dim));
    });
  }

  // After append: the outputs of the layer, [rows][query_heads][value_dim].
  const std::vector<float>& attend(int layer) {
    const LayerGeometry& g = geometry(layer);
    in_slices([&](int slice) { cache_->attend(layer, slice, slices_, rows(queries_, g.query_heads, g.key_dim)); });
    const std::int64_t head_stride = g.value_dim + 1, token_stride = g.query_heads * head_stride + 3;
    std::vector<float> wide(new_tokens_.size() * static_cast<std::size_t>(token_stride), kGap);
    in_slices([&](int slice) { cache_->merge(layer, slice, slices_, {wide.data(), token_stride, head_stride}); });
    std::vector<float>& tight = out_[static_cast<std::size_t>(layer)];
    tight.clear();
    gaps_kept_ = gaps_kept_ && std::isnan(wide.back());
    for (std::size_t row = 0; row < new_tokens_.size(); ++row) {
      for (int head = 0; head < g.query_heads; ++head) {
        const float* from = wide.data() + static_cast<std::int64_t>(row) * token_stride + head * head_stride;
        tight.insert(tight.end(), from, from + g.value_dim);
        gaps_kept_ = gaps_kept_ && std::isnan(from[g.value_dim]);
      }
    }
    return tight;
  }

  Status commit() {
    const Status status = cache_->commit_step();
    for (const NewToken& t : new_tokens_) {
      std::vector<GivenToken>& list = remember(t.sequence);
      if (t.index < cache_->tokens(t.sequence)) list.push_back(t.token);
    }
    return status;
  }

  // The tokens of the step that was begun, by row.
  std::vector<GivenToken> step_tokens() const {
    std::vector<GivenToken> tokens;
    for (const NewToken& t : new_tokens_) tokens.push_back(t.token);
    return tokens;
  }

  const std::vector<float>& out(int layer) const { return out_[static_cast<std::size_t>(layer)]; }
  // The query of a row of the step, as it was passed.
  std::vector<float> query(int layer, std::size_t row, int head) const {
    const LayerGeometry& g = geometry(layer);
    std::vector<float> q(static_cast<std::size_t>(g.key_dim));
    for (int c = 0; c < g.key_dim; ++c)
      q[static_cast<std::size_t>(c)] = number(new_tokens_[row], Row::kQuery, layer, head, c);
    return q;
  }
  // False if merge ever wrote between rows.
  bool gaps_kept() const { return gaps_kept_; }

 private:
  static constexpr float kGap = std::numeric_limits<float>::quiet_NaN();
  struct NewToken {
    int sequence = 0;
    std::int64_t index = 0;
    GivenToken token;
  };

  const LayerGeometry& geometry(int layer) const { return cache_->layers()[static_cast<std::size_t>(layer)]; }

  std::vector<GivenToken>& remember(int sequence) {
    const auto at = static_cast<std::size_t>(sequence);
    if (given_.size() <= at) {
      given_.resize(at + 1);
      seeds_.resize(at + 1, 0);
    }
    return given_[at];
  }

  float number(const NewToken& t, Row row, int layer, int head, int channel) const {
    float x = token_number(t.token.seed, t.token.id, row, layer, head, channel);
    if (tamper_) tamper_(t.sequence, t.index, row, layer, head, channel, &x);
    return x;
  }

  static HeadRows rows(const std::vector<float>& x, int heads, int dim) {
    return {x.data(), heads * (dim + 1) + 3, dim + 1};
  }

  void make_rows(int layer) {
    const LayerGeometry& g = geometry(layer);
    const auto make = [&](Row row, int heads, int dim, std::vector<float>* x) {
      const auto stride = static_cast<std::size_t>(heads * (dim + 1) + 3);
      x->assign(new_tokens_.size() * stride, kGap);
      for (std::size_t r = 0; r < new_tokens_.size(); ++r) {
        for (int head = 0; head < heads; ++head) {
          float* to = x->data() + r * stride + static_cast<std::size_t>(head * (dim + 1));
          for (int c = 0; c < dim; ++c) to[c] = number(new_tokens_[r], row, layer, head, c);
        }
      }
    };
    make(Row::kQuery, g.query_heads, g.key_dim, &queries_);
    make(Row::kKey, g.kv_heads, g.key_dim, &keys_);
    make(Row::kValue, g.kv_heads, g.value_dim, &values_);
  }

  void in_slices(const std::function<void(int)>& work) const {
    std::vector<std::thread> threads;
    for (int slice = 1; slice < slices_; ++slice) threads.emplace_back(work, slice);
    work(0);
    for (std::thread& thread : threads) thread.join();
  }

  Status run(const std::vector<RunnerPart>& parts, bool with_attention) {
    NEVE_RETURN_IF_ERROR(begin(parts));
    for (int layer = 0; layer < static_cast<int>(out_.size()); ++layer) {
      append(layer);
      if (with_attention) attend(layer);
    }
    return commit();
  }

  std::unique_ptr<KvCache> cache_;
  int slices_;
  Positions positions_;
  Tamper tamper_;
  std::vector<std::uint64_t> seeds_;            // by sequence
  std::vector<std::vector<GivenToken>> given_;  // by sequence
  std::vector<NewToken> new_tokens_;            // rows of the step
  std::vector<float> queries_, keys_, values_;
  std::vector<std::vector<float>> out_;  // by layer
  bool gaps_kept_ = true;
};

}  // namespace neve::kv
