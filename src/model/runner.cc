#include "model/runner.h"

#include <algorithm>
#include <cstdlib>
#include <list>
#include <string>

#include "model/model_impl.h"
#include "model/step_graph.h"
#include "model/thread_team.h"

namespace neve::model {
namespace {

// Shapes come in threes: a prompt's chunks, its remainder, one token at a time.
constexpr std::size_t kKeptGraphs = 3;

bool same_geometry(const LayerGeometry& a, const LayerGeometry& b) {
  return a.query_heads == b.query_heads && a.kv_heads == b.kv_heads && a.key_dim == b.key_dim &&
         a.value_dim == b.value_dim && a.sliding_window == b.sliding_window && a.shares_layer == b.shares_layer &&
         a.scale == b.scale && a.logit_softcap == b.logit_softcap;
}

// Memory that grows, at the start of a page: ggml quantises activations into it, and rows that straddle cache lines make
// its tile loads slower.
class AlignedBytes {
 public:
  bool reserve(std::size_t bytes) {
    if (bytes <= size_) return true;
    constexpr std::size_t kPage = 4096;
    const std::size_t rounded = (bytes + kPage - 1) / kPage * kPage;
    data_.reset(static_cast<std::uint8_t*>(std::aligned_alloc(kPage, rounded)));
    size_ = data_ == nullptr ? 0 : rounded;
    return data_ != nullptr;
  }
  std::span<std::uint8_t> bytes() const { return {data_.get(), size_}; }

 private:
  struct Free {
    void operator()(std::uint8_t* data) const { std::free(data); }
  };
  std::unique_ptr<std::uint8_t, Free> data_;
  std::size_t size_ = 0;
};

Status invalid(const std::string& what) { return Status(Code::kInvalidArgument, "step: " + what); }

}  // namespace

struct Runner::Impl {
  const Model::Impl* model = nullptr;
  std::unique_ptr<ThreadTeam> team;
  StepCaches caches;                             // of the step in hand; graphs point to it
  std::list<std::unique_ptr<StepGraph>> graphs;  // most recently used first
  AlignedBytes work;                             // of the graph that runs

  std::vector<StepPart> parts;          // of all caches, grouped
  std::vector<std::size_t> first_part;  // of each cache, and the end
  std::vector<std::int32_t> tokens, positions, logit_rows;

  Status check_cache(const KvCache& cache) const {
    const std::vector<LayerGeometry>& wanted = model->info.layers;
    const std::vector<LayerGeometry>& got = cache.layers();
    if (!std::equal(wanted.begin(), wanted.end(), got.begin(), got.end(), same_geometry)) {
      return invalid("a cache was made for other layers than those of " + model->info.path);
    }
    if (cache.options().threads < team->threads()) {
      return invalid("wanted a cache for " + std::to_string(team->threads()) + " threads, got one for " +
                     std::to_string(cache.options().threads));
    }
    return ok_status();
  }

  // Lays the rows of all parts one behind another.
  Status gather(std::span<const RunnerPart> asked) {
    caches.caches.clear();
    parts.clear();
    first_part.clear();
    tokens.clear();
    positions.clear();
    logit_rows.clear();
    for (const RunnerPart& part : asked) {
      if (part.cache == nullptr || part.tokens.empty()) return invalid("a part without a cache or without tokens");
      if (!part.positions.empty() && part.positions.size() != part.tokens.size()) {
        return invalid("wanted as many positions as tokens");
      }
      if (caches.caches.empty() || caches.caches.back().cache != part.cache) {
        NEVE_RETURN_IF_ERROR(check_cache(*part.cache));
        for (const CacheRows& earlier : caches.caches) {
          if (earlier.cache == part.cache) return invalid("parts of the same cache must follow each other");
        }
        caches.caches.push_back({part.cache, std::ssize(tokens)});
        first_part.push_back(parts.size());
      }
      NEVE_RETURN_IF_ERROR(gather_rows(part));
    }
    first_part.push_back(parts.size());
    if (tokens.empty()) return invalid("no tokens");
    return ok_status();
  }

  Status gather_rows(const RunnerPart& part) {
    const std::int64_t committed = part.cache->tokens(part.sequence);
    if (committed < 0) return Status(Code::kNotFound, "step: there is no sequence " + std::to_string(part.sequence));
    const auto first = static_cast<std::int32_t>(tokens.size());
    const auto count = static_cast<std::int32_t>(part.tokens.size());
    for (std::int32_t i = 0; i < count; ++i) {
      const std::int32_t token = part.tokens[static_cast<std::size_t>(i)];
      if (token < 0 || token >= model->info.vocabulary) {
        return invalid("token " + std::to_string(token) + " is outside the vocabulary of " +
                       std::to_string(model->info.vocabulary));
      }
      tokens.push_back(token);
      positions.push_back(part.positions.empty() ? static_cast<std::int32_t>(committed) + i
                                                 : part.positions[static_cast<std::size_t>(i)]);
      const bool wanted = part.logits == LogitRows::kAll || (part.logits == LogitRows::kLast && i + 1 == count);
      if (wanted) logit_rows.push_back(first + i);
    }
    parts.push_back({part.sequence, count, part.positions.empty() ? nullptr : part.positions.data()});
    return ok_status();
  }

  Result<StepGraph*> graph_for(StepShape shape) {
    const auto found = std::find_if(graphs.begin(), graphs.end(), [&](const auto& g) { return g->shape() == shape; });
    if (found != graphs.end()) {
      graphs.splice(graphs.begin(), graphs, found);
      return graphs.front().get();
    }
    while (graphs.size() >= kKeptGraphs) graphs.pop_back();
    Result<std::unique_ptr<StepGraph>> built =
        StepGraph::build(model->hyperparameters, *model->weights, caches, team.get(), shape);
    if (!built.ok()) return built.status();
    graphs.push_front(std::move(*built));
    if (!work.reserve(graphs.front()->work_bytes())) {
      graphs.pop_front();
      return Status(Code::kExhausted, "no memory for the work space of a step");
    }
    return graphs.front().get();
  }

  Status begin() {
    for (std::size_t i = 0; i < caches.caches.size(); ++i) {
      Status status = caches.caches[i].cache->begin_step(
          std::span(parts).subspan(first_part[i], first_part[i + 1] - first_part[i]));
      if (status.ok()) continue;
      abandon(0, i);
      return status;
    }
    return ok_status();
  }
  void abandon(std::size_t from, std::size_t to) {
    for (std::size_t i = from; i < to; ++i) caches.caches[i].cache->abandon_step();
  }
  Status commit() {
    for (std::size_t i = 0; i < caches.caches.size(); ++i) {
      Status status = caches.caches[i].cache->commit_step();
      if (status.ok()) continue;
      abandon(i + 1, caches.caches.size());
      return status;
    }
    return ok_status();
  }
};

Result<std::unique_ptr<Runner>> Runner::create(const Model& model, int threads) {
  auto impl = std::make_unique<Impl>();
  impl->model = &model.impl();
  if (threads < 1 || threads > GGML_MAX_N_THREADS) {
    return Status(Code::kInvalidArgument,
                  "threads: wanted 1 to " + std::to_string(GGML_MAX_N_THREADS) + ", got " + std::to_string(threads));
  }
  impl->team = ThreadTeam::create(threads);
  if (impl->team == nullptr) return Status(Code::kExhausted, "no more threads");
  return std::unique_ptr<Runner>(new Runner(std::move(impl)));
}

Runner::Runner(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Runner::~Runner() = default;

Result<std::span<const float>> Runner::step(std::span<const RunnerPart> parts) {
  NEVE_RETURN_IF_ERROR(impl_->gather(parts));
  const StepShape shape = {std::ssize(impl_->tokens), std::ssize(impl_->logit_rows)};
  const Result<StepGraph*> graph = impl_->graph_for(shape);
  if (!graph.ok()) return graph.status();
  NEVE_RETURN_IF_ERROR(impl_->begin());
  const Result<std::span<const float>> logits =
      (*graph)->run({impl_->tokens, impl_->positions, impl_->logit_rows}, impl_->work.bytes());
  if (!logits.ok()) {
    impl_->abandon(0, impl_->caches.caches.size());
    return logits.status();
  }
  NEVE_RETURN_IF_ERROR(impl_->commit());
  return *logits;
}

std::int64_t Runner::compute_bytes() const {
  std::int64_t bytes = std::ssize(impl_->work.bytes());
  for (const auto& graph : impl_->graphs) bytes += graph->buffer_bytes();
  return bytes;
}

}  // namespace neve::model
