// Fills the places of a page's blocks on narrower levels from where they stand now.
//
// Thread rules: one thread at a time.
#pragma once

#include <vector>

#include "kv/query_statistics.h"
#include "kv/storage.h"
#include "neve/kv_spec.h"
#include "quant/block_coder.h"

namespace neve::kv {

class PageCoder {
 public:
  PageCoder(const Shape& shape, const KvSpec& spec, const simd::Kernels& kernels);

  // Makes the codes of `to` (allocated, to.level > now.level) for a full or closed page. Does nothing if storage has
  // no memory. Errors: kNotFinite names layer, head, token and channel.
  Status fill(const Storage& storage, const Page& page, Kind kind, const Stand& to);

 private:
  Status not_finite(const Page& page, Kind kind, const quant::NotFinite& where) const;

  const Shape* shape_;
  Shift shift_;
  float clip_;
  quant::BlockCoder coder_;
  std::vector<std::uint8_t> wide_, narrow_;  // codes of the levels between
};

// The key layouts of a stored head by level.
inline const std::vector<quant::KeyLayout>& key_layouts(const Shape& shape, const KeyMaps* maps, int stored, int head) {
  const StoredLayer& layer = shape.stored[static_cast<std::size_t>(stored)];
  return maps != nullptr ? maps->heads[static_cast<std::size_t>(layer.first_head + head)] : layer.key_layouts;
}

}  // namespace neve::kv
