// Graded keys without a profile: the map of a sequence from its own first tokens.
//
// Importance of a channel = mean of q^2 over the queries of tokens 0 ... sinks + 127 + min(window, 128), of all query
// heads that share the KV head, times the mean of range^2 over the full pages among those tokens.
// Sums run in token order, so the map does not depend on how the tokens were cut into steps.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "kv/shape.h"
#include "neve/kv_cache.h"
#include "quant/block_layout.h"

namespace neve::kv {

// Graded key layouts: [stored heads][level], as StoredLayer::key_layouts.
struct KeyMaps {
  std::vector<std::vector<quant::KeyLayout>> heads;

  std::uint64_t bytes() const;
};

// The maps of a sequence and its forks, filled by the first that knows enough.
struct MapSlot {
  bool known = false;
  KeyMaps maps;
};

class QueryStatistics {
 public:
  // Tokens that the map is made from: the map is known once so many are committed.
  static std::int64_t map_tokens(const KvSpec& spec);

  void start(const Shape& shape);
  // Adds the queries of token `index` for one KV head: [query heads per kv head] rows, `head_stride` floats apart. A
  // token that stood there before a rollback keeps its place. Thread rules: one thread per head.
  void add(int stored_head, std::int64_t index, const float* queries, int rows, std::int64_t head_stride,
           int channels) {
    std::int64_t& counted = counted_[static_cast<std::size_t>(stored_head)];
    if (index < counted) return;
    counted = index + 1;
    double* sum = sums_.data() + offsets_[static_cast<std::size_t>(stored_head)];
    for (int r = 0; r < rows; ++r) {
      const float* q = queries + r * head_stride;
      for (int c = 0; c < channels; ++c) {
        const double square = static_cast<double>(q[c]) * static_cast<double>(q[c]);
        if (std::isfinite(square)) sum[c] += square;  // the step of such a query is dropped, its place is counted
      }
    }
  }
  // Adds the ranges of a full 16-bit key page: [128][channels] f16.
  void add_page(int stored_head, const std::uint16_t* keys, int channels);

  KeyMaps make_maps(const Shape& shape) const;
  std::uint64_t bytes() const {
    return offsets_.capacity() * sizeof(std::size_t) + counted_.capacity() * sizeof(std::int64_t) +
           (sums_.capacity() + ranges_.capacity()) * sizeof(double);
  }

 private:
  std::vector<std::size_t> offsets_;   // by stored head
  std::vector<std::int64_t> counted_;  // by stored head: tokens whose queries are in the sums
  std::vector<double> sums_, ranges_;  // [stored heads][channels]
};

}  // namespace neve::kv
