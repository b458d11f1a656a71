#include "model/fingerprint.h"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <vector>

namespace neve::model {
namespace {

constexpr std::uint64_t kSampleBytes = 4096;

class Fnv1a64 {
 public:
  void add(const void* data, std::size_t bytes) {
    const auto* const p = static_cast<const unsigned char*>(data);
    for (std::size_t i = 0; i < bytes; ++i) hash_ = (hash_ ^ p[i]) * 0x100000001b3u;
  }
  std::uint64_t hash() const { return hash_; }

 private:
  std::uint64_t hash_ = 0xcbf29ce484222325u;
};

}  // namespace

Result<std::string> fingerprint(const GgufFile& file) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> stream(std::fopen(file.path().c_str(), "rb"), &std::fclose);
  Fnv1a64 hash;
  std::vector<char> buffer(1 << 16);
  const auto add_range = [&](std::uint64_t offset, std::uint64_t bytes) {
    if (stream == nullptr || fseeko(stream.get(), static_cast<off_t>(offset), SEEK_SET) != 0) return false;
    while (bytes > 0) {
      const std::size_t piece = static_cast<std::size_t>(std::min<std::uint64_t>(bytes, buffer.size()));
      if (std::fread(buffer.data(), 1, piece, stream.get()) != piece) return false;
      hash.add(buffer.data(), piece);
      bytes -= piece;
    }
    return true;
  };

  const std::uint64_t file_bytes = file.file_bytes();
  hash.add(&file_bytes, sizeof(file_bytes));
  bool read = add_range(0, std::min(file.header_bytes(), file_bytes));
  for (const GgufTensor& tensor : file.tensors()) {
    const std::uint64_t sample = std::min(tensor.bytes, kSampleBytes);
    read = read && add_range(tensor.offset, sample);
    if (tensor.bytes <= sample) continue;
    read = read && add_range(tensor.offset + (tensor.bytes - sample) / 2, sample);
    read = read && add_range(tensor.offset + tensor.bytes - sample, sample);
  }
  if (!read) return Status(Code::kDamaged, file.path() + ": cannot be read to its end");

  char text[17];
  std::snprintf(text, sizeof(text), "%016llx", static_cast<unsigned long long>(hash.hash()));
  return std::string(text);
}

}  // namespace neve::model
