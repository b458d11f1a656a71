// Making a cache, and what it says of itself.
#include <algorithm>
#include <string>

#include "kv/cache_impl.h"

namespace neve {

using kv::Kind;
using kv::kKinds;
using kv::StoredLayer;

KvCache::Impl::Impl(kv::Shape shape_in, const CacheOptions& options_in, const simd::Kernels& kernels_in,
                    kv::Storage storage_in)
    : shape_owner(std::make_unique<kv::Shape>(std::move(shape_in))),
      shape(*shape_owner),
      options(options_in),
      kernels(kernels_in),
      layer_level(shape.stored.size(), 0),
      storage(std::move(storage_in)),
      coder(shape, options.spec, kernels),
      queue(shape.lowest()),
      scratch(static_cast<std::size_t>(options.threads)),
      next_item(std::make_unique<std::atomic<std::int64_t>[]>(shape.layers.size())) {
  storage.attach(shape);
}

KvCache::KvCache(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
KvCache::~KvCache() = default;

void KvCache::Impl::set_layer_budgets() {
  const bool paper = options.spec.mode == KvMode::kPaper;
  const bool by_choice =
      options.spec.mode == KvMode::kAuto && options.demote == Demote::kLayer && options.budget_bytes > 0;
  if (!paper && !by_choice) return;
  const std::int64_t columns = kv::columns_of(options.spec, options.max_tokens);
  const std::int64_t high = std::min<std::int64_t>(columns, 1 + (window() + kv::kPageTokens - 1) / kv::kPageTokens);
  const auto bytes = [&](const StoredLayer& layer, std::int64_t at_top, std::int64_t at_lowest) {
    std::uint64_t sum = 0;
    for (const Kind kind : kKinds) {
      sum += static_cast<std::uint64_t>(layer.kv_heads) *
             (static_cast<std::uint64_t>(at_top) * shape.block_bytes(layer, kind, 0) +
              static_cast<std::uint64_t>(at_lowest) * shape.block_bytes(layer, kind, shape.lowest()));
    }
    return sum * static_cast<std::uint64_t>(options.max_sequences);
  };
  if (options.budget_bytes == 0) {
    // The paper's budget in whole blocks: what max_tokens tokens hold at the final width, recent ones at 16 bit.
    for (const StoredLayer& layer : shape.stored) layer_budget.push_back(bytes(layer, high, columns - high));
    return;
  }
  // A total budget is shared in proportion to the layers' 16-bit sizes. A pool may round up by one block.
  std::uint64_t held = shape.sink_bytes(options.spec.sinks) * static_cast<std::uint64_t>(options.max_sequences);
  for (const kv::PoolShape& pool : shape.pools) held += 2 * pool.top_bytes;
  const std::uint64_t left = options.budget_bytes > held ? options.budget_bytes - held : 0;
  std::uint64_t all = 0;
  for (const StoredLayer& layer : shape.stored) all += bytes(layer, 1, 0);
  for (const StoredLayer& layer : shape.stored) {
    layer_budget.push_back(static_cast<std::uint64_t>(static_cast<double>(left) / static_cast<double>(all) *
                                                      static_cast<double>(bytes(layer, 1, 0))));
  }
}

Result<std::unique_ptr<KvCache>> KvCache::Impl::make(std::vector<LayerGeometry> layers, CacheOptions options,
                                                     kv::Backing backing) {
  Result<const simd::Kernels*> kernels = simd::select_kernels();
  if (!kernels.ok()) return kernels.status();
  if (options.max_tokens < 1 || options.max_sequences < 1 || options.threads < 1) {
    return Status(Code::kInvalidArgument, "cache: wanted max_tokens, max_sequences and threads of at least 1, got " +
                                              std::to_string(options.max_tokens) + ", " +
                                              std::to_string(options.max_sequences) + ", " +
                                              std::to_string(options.threads));
  }
  if (options.spec.mode == KvMode::kAuto && options.spec.width > 0.0 && options.budget_bytes == 0) {
    options.budget_bytes = 1;  // so that the shape has its spare blocks; the real figure follows
    Result<kv::Shape> sized = kv::Shape::create(layers, options);
    if (!sized.ok()) return sized.status();
    const std::uint64_t at16 = kv::f16_bytes(*sized, options, options.max_tokens, options.max_sequences);
    options.budget_bytes = static_cast<std::uint64_t>(static_cast<double>(at16) * options.spec.width / 16.0);
  }
  Result<kv::Shape> shape = kv::Shape::create(std::move(layers), options);
  if (!shape.ok()) return shape.status();
  if (options.budget_bytes > 0) {
    const std::int64_t one_column = std::min<std::int64_t>(options.max_tokens, options.spec.sinks + kv::kPageTokens);
    const std::uint64_t least = kv::least_bytes(*shape, options, one_column, 1);
    if (options.budget_bytes < least) {
      return Status(Code::kBudget, "budget: wanted at least " + std::to_string(least) + " bytes (" +
                                       format_bytes(least) + ", the least for " + std::to_string(one_column) +
                                       " tokens), got " + std::to_string(options.budget_bytes));
    }
  }
  const auto most_columns = static_cast<std::uint64_t>(kv::columns_of(options.spec, options.max_tokens)) + 16;
  Result<kv::Storage> storage =
      kv::Storage::create(*shape, most_columns * static_cast<std::uint64_t>(options.max_sequences), backing);
  if (!storage.ok()) return storage.status();
  auto impl = std::make_unique<Impl>(std::move(shape).value(), options, **kernels, std::move(storage).value());
  impl->set_layer_budgets();
  impl->note_peak();
  return std::unique_ptr<KvCache>(new KvCache(std::move(impl)));
}

Result<std::unique_ptr<KvCache>> KvCache::create(std::vector<LayerGeometry> layers, CacheOptions options) {
  return Impl::make(std::move(layers), options, kv::Backing::kMemory);
}

const std::vector<LayerGeometry>& KvCache::layers() const { return impl_->shape.layers; }
const CacheOptions& KvCache::options() const { return impl_->options; }

CacheMemory KvCache::memory() const {
  const Impl& impl = *impl_;
  CacheMemory memory;
  memory.bytes = impl.storage.held_bytes();
  memory.peak_bytes = std::max(impl.peak_bytes, memory.bytes);
  memory.budget_bytes = impl.options.budget_bytes;
  memory.bytes_16 = impl.storage.other_bytes();
  for (int level = 0; level <= impl.shape.lowest(); ++level) {
    for (const Kind kind : kKinds) {
      const double bits = impl.shape.levels[static_cast<std::size_t>(level)].bits[kind];
      std::uint64_t& rung = bits > 8   ? memory.bytes_16
                            : bits > 4 ? memory.bytes_8
                            : bits > 2 ? memory.bytes_4
                                       : memory.bytes_2;
      rung += impl.storage.used_bytes(level, kind);
    }
  }
  memory.bytes_free = memory.bytes - memory.bytes_16 - memory.bytes_8 - memory.bytes_4 - memory.bytes_2;
  memory.metadata_bytes = impl.storage.metadata_bytes() + impl.queue.metadata_bytes();
  for (const auto& s : impl.sequences) {
    if (!s->alive) continue;
    memory.metadata_bytes += s->positions.capacity() * sizeof(std::int32_t) + s->statistics.bytes();
    // Forks share their maps: each counts its part.
    if (s->maps != nullptr)
      memory.metadata_bytes += s->maps->maps.bytes() / static_cast<std::uint64_t>(s->maps.use_count());
    for (const kv::Column& column : s->columns) {
      memory.metadata_bytes += sizeof(kv::Column) + column.pages.capacity() * sizeof(kv::PageId);
    }
  }
  memory.workspace_bytes = impl.partials.capacity() * sizeof(float);
  for (const auto& floats : impl.scratch) memory.workspace_bytes += floats.capacity() * sizeof(float);
  memory.demotions = impl.demotions;
  return memory;
}

}  // namespace neve
