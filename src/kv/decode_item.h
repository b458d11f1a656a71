// One decode item: the query heads of one KV head at one token, over a run of columns. First all scores, then one
// softmax over them, then all values.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "kv/decode_page.h"

namespace neve::kv {

class DecodeItem {
 public:
  DecodeItem(KvCache::Impl& impl, int layer, const ActivePart& part, int token, int head, std::int64_t run);

  // Writes the partial results of the item. Scratch memory is taken from `floats`.
  void compute(HeadRows queries, std::vector<float>* floats);

 private:
  // A page, and which of its tokens the query sees: [from, seen). Nothing of it is seen if from == seen.
  struct VisiblePage {
    int from = 0, seen = 0;
    std::array<BlockView, 2> block;  // by kind
  };

  void find_pages();
  void load_queries(HeadRows queries, std::vector<float>* floats);
  void score_keys();
  void make_weights();
  void weigh_values();
  void write();
  // Of `held` scores per head, those outside [from, seen) get no weight.
  void hide(float* scores, int from, int seen, std::size_t held) const;
  // Fetches the scales of page i; returns its codes, which the kernels fetch while they read the page before. Null if
  // there is no such page.
  const std::uint8_t* codes_ahead(std::size_t i, Kind kind) const;
  float* result(int query_head) const;

  KvCache::Impl& impl_;
  const LayerGeometry& layer_;
  const ActivePart& part_;
  const int stored_;
  const StoredLayer& store_;
  const Sequence& sequence_;
  const std::vector<quant::KeyLayout>& keys_;
  const std::vector<quant::ValueLayout>& values_;
  const int token_, head_;
  const std::int64_t run_, index_;
  const std::int32_t position_;
  std::array<VisiblePage, kRunColumns> pages_;
  std::size_t columns_ = 0;
  SinkView sinks_;
  std::size_t scores_n_ = 0;
  DecodeQuery query_;
};

}  // namespace neve::kv
