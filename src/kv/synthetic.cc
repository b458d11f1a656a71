// fill_synthetic: a long past without a model, for benchmarks.
#include <algorithm>

#include "base/float16.h"
#include "kv/cache_impl.h"

namespace neve {
namespace {

// xorshift64*: a few bits of noise from a seed (Vigna 2016).
class Noise {
 public:
  explicit Noise(std::uint64_t seed) : state_(seed * 2685821657736338717ull + 88172645463325252ull) {}
  // Roughly normal, mean 0, variance 1: the sum of four uniform numbers.
  float next() {
    state_ ^= state_ >> 12;
    state_ ^= state_ << 25;
    state_ ^= state_ >> 27;
    const std::uint64_t bits = state_ * 2685821657736338717ull;
    int sum = 0;
    for (int i = 0; i < 4; ++i) sum += static_cast<int>((bits >> (16 * i)) & 0xffff);
    return (static_cast<float>(sum) - 131070.f) / 37837.f;
  }

 private:
  std::uint64_t state_;
};

}  // namespace

Status KvCache::fill_synthetic(int sequence, std::int64_t tokens, std::uint64_t seed) {
  Impl& impl = *impl_;
  kv::Sequence* s = nullptr;
  NEVE_RETURN_IF_ERROR(impl.need_sequence(sequence, &s));
  // One column of noise serves all columns: what matters is that it has the spread of real keys and values.
  int widest = 0;
  for (const LayerGeometry& layer : impl.shape.layers) widest = std::max({widest, layer.key_dim, layer.value_dim});
  std::vector<std::uint16_t> numbers(static_cast<std::size_t>(widest) * kv::kPageTokens);
  Noise noise(seed);
  for (std::uint16_t& number : numbers) number = f16_from_f32(noise.next());
  const std::vector<float> query(static_cast<std::size_t>(widest), 1.f);
  while (s->committed < tokens) {
    const std::int64_t stop = std::min(tokens, impl.next_event(*s));
    const StepPart step = {sequence, static_cast<int>(stop - s->committed), nullptr};
    NEVE_RETURN_IF_ERROR(begin_step({&step, 1}));
    for (const kv::Column& column : s->columns) {
      if (column.tokens > 0) continue;  // filled when its first tokens came
      for (const kv::PageId id : column.pages) {
        const kv::Page& page = impl.storage.page(id);
        for (const kv::Kind kind : kv::kKinds) {
          const int dim = impl.shape.stored[page.stored].dim[kind];
          std::copy_n(numbers.data(), static_cast<std::size_t>(dim) * kv::kPageTokens,
                      reinterpret_cast<std::uint16_t*>(impl.storage.codes(page, kind, page.now[kind])));
        }
      }
    }
    for (const kv::StoredLayer& layer : impl.shape.stored) {
      for (int head = 0; impl.shape.graded && head < layer.kv_heads; ++head) {
        for (std::int64_t i = s->committed; i < stop && !s->maps->known; ++i) {
          s->statistics.add(layer.first_head + head, i, query.data(), 1, 0, layer.dim[kv::kKey]);
        }
      }
    }
    NEVE_RETURN_IF_ERROR(commit_step());
  }
  return ok_status();
}

}  // namespace neve
