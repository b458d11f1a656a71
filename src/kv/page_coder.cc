#include "kv/page_coder.h"

#include <algorithm>
#include <cstring>
#include <string>

namespace neve::kv {
namespace {

int most_channels(const Shape& shape) {
  int most = 0;
  for (const StoredLayer& layer : shape.stored) most = std::max({most, layer.dim[kKey], layer.dim[kValue]});
  return most;
}

quant::BlockScales scales_at(std::uint16_t* slot, std::uint64_t slot_bytes) {
  return {slot, slot + slot_bytes / 4};  // all scales, then all minima, two bytes each
}

}  // namespace

PageCoder::PageCoder(const Shape& shape, const KvSpec& spec, const simd::Kernels& kernels)
    : shape_(&shape), shift_(spec.shift), clip_(static_cast<float>(spec.clip)), coder_(kernels, most_channels(shape)) {
  const auto block = static_cast<std::size_t>(quant::padded_channels(most_channels(shape))) * kPageTokens;
  wide_.resize(block);
  narrow_.resize(block);
}

Status PageCoder::not_finite(const Page& page, Kind kind, const quant::NotFinite& where) const {
  const int layer = shape_->stored[page.stored].layer;
  return Status(Code::kNotFinite, "layer " + std::to_string(layer) + ", head " + std::to_string(page.head) +
                                      ", token " + std::to_string(page.first_token + where.token) + ", channel " +
                                      std::to_string(where.channel) + ": wanted a finite " +
                                      (kind == kKey ? "key" : "value") + " within f16, got none");
}

Status PageCoder::fill(const Storage& storage, const Page& page, Kind kind, const Stand& to) {
  if (!storage.backed()) return ok_status();
  const int tokens = page.tokens;
  const KeyMaps* maps = page.maps != nullptr && page.maps->known ? &page.maps->maps : nullptr;
  const StoredLayer& layer = shape_->stored[page.stored];
  const std::uint64_t slot_bytes = shape_->slot_bytes[static_cast<std::size_t>(layer.slot_pool[kind])];
  const quant::BlockScales scales = scales_at(storage.scales(page, kind, to), slot_bytes);
  const std::vector<quant::KeyLayout>& keys = key_layouts(*shape_, maps, page.stored, page.head);
  const std::vector<quant::ValueLayout>& values = layer.value_layouts;
  const Stand& from = page.now[kind];
  const std::uint8_t* codes = storage.codes(page, kind, from);
  std::size_t level = from.level;
  if (level == 0) {
    const auto* numbers = reinterpret_cast<const std::uint16_t*>(codes);
    quant::NotFinite where;
    const quant::CodeResult result = kind == kKey
                                         ? coder_.code_keys(numbers, tokens, keys[0], wide_.data(), scales, &where)
                                         : coder_.code_values(numbers, tokens, values[0], wide_.data(), scales, &where);
    if (result == quant::CodeResult::kNotFinite) return not_finite(page, kind, where);
    codes = wide_.data();
  } else {
    std::memcpy(scales.scale, storage.scales(page, kind, from), slot_bytes);
  }
  // One level after another, so that a block coded at once equals one that was demoted. Level 0 of the layouts is the
  // 8-bit grid, from which the first level follows (on a ladder it is the first level itself).
  std::uint8_t* spare = narrow_.data();
  do {
    ++level;
    std::uint8_t* out = level == to.level ? storage.codes(page, kind, to) : spare;
    if (kind == kKey) {
      coder_.narrow_keys(keys[level - 1], codes, keys[level], out, tokens, shift_, clip_, scales);
    } else {
      coder_.narrow_values(values[level - 1], codes, values[level], out, shift_, clip_);
    }
    spare = out == narrow_.data() ? wide_.data() : narrow_.data();
    codes = out;
  } while (level < to.level);
  return ok_status();
}

}  // namespace neve::kv
