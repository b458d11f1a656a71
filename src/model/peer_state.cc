#include "model/peer_state.h"

#include <algorithm>
#include <cstring>
#include <random>

namespace neve::model {
namespace {

constexpr std::uint32_t kMagic = 0xaf143cd8u;
// Rows are drawn from a bank of this many: prime, so that no page-sized stride meets the same ones again and again.
constexpr std::int64_t kBankRows = 251;

class Writer {
 public:
  template <typename T>
  void put(T value) {
    append(&value, sizeof(value));
  }
  void append(const void* data, std::size_t bytes) {
    const auto* const p = static_cast<const std::uint8_t*>(data);
    out_.insert(out_.end(), p, p + bytes);
  }
  void reserve(std::size_t bytes) { out_.reserve(bytes); }
  std::vector<std::uint8_t> take() { return std::move(out_); }

 private:
  std::vector<std::uint8_t> out_;
};

// `cells` rows out of the bank, from row `first` on, again and again.
void put_rows(Writer* writer, std::span<const std::uint8_t> bank, std::size_t row_bytes, std::int64_t first,
              std::int64_t cells) {
  std::int64_t row = first % kBankRows;
  while (cells > 0) {
    const std::int64_t run = std::min(cells, kBankRows - row);
    writer->append(bank.data() + static_cast<std::size_t>(row) * row_bytes, static_cast<std::size_t>(run) * row_bytes);
    cells -= run;
    row = 0;
  }
}

}  // namespace

std::vector<std::uint8_t> random_rows(ggml_type type, std::int64_t rows, std::int64_t columns, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> numbers(static_cast<std::size_t>(rows * columns));
  for (float& number : numbers) number = normal(random);
  std::vector<std::uint8_t> out(ggml_row_size(type, columns) * static_cast<std::size_t>(rows));
  if (type == GGML_TYPE_F32) {
    std::memcpy(out.data(), numbers.data(), out.size());
  } else {
    ggml_quantize_chunk(type, numbers.data(), out.data(), 0, rows, columns, nullptr);
  }
  return out;
}

std::vector<std::uint8_t> synthetic_peer_state(const PeerStateShape& shape, std::uint64_t seed) {
  std::size_t bytes_per_cell = 3 * sizeof(std::int32_t);
  for (const LayerGeometry& layer : shape.layers) {
    bytes_per_cell += ggml_row_size(shape.type, std::int64_t{layer.kv_heads} * layer.key_dim) +
                      ggml_row_size(shape.type, std::int64_t{layer.kv_heads} * layer.value_dim);
  }
  Writer writer;
  writer.reserve(bytes_per_cell * static_cast<std::size_t>(shape.tokens) + 64 * (shape.layers.size() + 1) +
                 4 * static_cast<std::size_t>(shape.streams));
  writer.put(kMagic);
  writer.put(std::int32_t{shape.sequence});
  writer.put(static_cast<std::uint32_t>(shape.streams));
  const int stream = shape.streams == 1 ? 0 : shape.sequence;
  for (int s = 0; s < stream; ++s) writer.put(std::uint32_t{0});
  writer.put(static_cast<std::uint32_t>(shape.tokens));
  for (std::int64_t t = 0; t < shape.tokens; ++t) {
    writer.put(static_cast<std::int32_t>(t));
    writer.put(std::uint32_t{1});
    writer.put(std::int32_t{shape.sequence});
  }
  const bool transposed = shape.values == ValueLayout::kTransposed;
  writer.put(std::uint32_t{transposed});
  writer.put(static_cast<std::uint32_t>(shape.layers.size()));

  std::int64_t first = 0;
  for (const LayerGeometry& layer : shape.layers) {
    const std::int64_t channels = std::int64_t{layer.kv_heads} * layer.key_dim;
    const std::size_t row_bytes = ggml_row_size(shape.type, channels);
    writer.put(static_cast<std::int32_t>(shape.type));
    writer.put(static_cast<std::uint64_t>(row_bytes));
    put_rows(&writer, random_rows(shape.type, kBankRows, channels, seed), row_bytes, first += 17, shape.tokens);
  }
  for (const LayerGeometry& layer : shape.layers) {
    const std::int64_t channels = std::int64_t{layer.kv_heads} * layer.value_dim;
    writer.put(static_cast<std::int32_t>(shape.type));
    if (!transposed) {
      const std::size_t row_bytes = ggml_row_size(shape.type, channels);
      writer.put(static_cast<std::uint64_t>(row_bytes));
      put_rows(&writer, random_rows(shape.type, kBankRows, channels, seed + 1), row_bytes, first += 17, shape.tokens);
      continue;
    }
    const std::size_t element_bytes = ggml_type_size(shape.type);
    writer.put(static_cast<std::uint32_t>(element_bytes));
    writer.put(static_cast<std::uint32_t>(channels));
    const std::vector<std::uint8_t> bank = random_rows(shape.type, kBankRows, 1, seed + 1);
    for (std::int64_t c = 0; c < channels; ++c) put_rows(&writer, bank, element_bytes, first += 17, shape.tokens);
  }
  for (int s = stream + 1; s < shape.streams; ++s) writer.put(std::uint32_t{0});
  return writer.take();
}

}  // namespace neve::model
