#include "model/gguf_check.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <unordered_set>

#include "ggml.h"
#include "gguf.h"
#include "model/printable.h"

namespace neve::model {
namespace {

constexpr std::uint64_t kMaxKeyBytes = 65535;  // the format's own limit
constexpr std::uint64_t kMaxShards = 1;

std::string number(std::uint64_t value) { return std::to_string(value); }

std::uint64_t scalar_bytes(std::uint32_t type) {
  switch (type) {
    case GGUF_TYPE_UINT8:
    case GGUF_TYPE_INT8:
    case GGUF_TYPE_BOOL:
      return 1;
    case GGUF_TYPE_UINT16:
    case GGUF_TYPE_INT16:
      return 2;
    case GGUF_TYPE_UINT32:
    case GGUF_TYPE_INT32:
    case GGUF_TYPE_FLOAT32:
      return 4;
    case GGUF_TYPE_UINT64:
    case GGUF_TYPE_INT64:
    case GGUF_TYPE_FLOAT64:
      return 8;
    default:
      return 0;
  }
}

class HeaderWalk {
 public:
  HeaderWalk(std::string path, std::FILE* file, std::uint64_t file_bytes)
      : path_(std::move(path)), file_(file), file_bytes_(file_bytes) {}

  Status run() {
    NEVE_RETURN_IF_ERROR(walk_start());
    for (std::uint64_t i = 0; i < pairs_; ++i) NEVE_RETURN_IF_ERROR(walk_pair(i));
    for (std::uint64_t i = 0; i < tensors_; ++i) NEVE_RETURN_IF_ERROR(walk_tensor(i));
    return check_data();
  }

 private:
  std::uint64_t left() const { return file_bytes_ - at_; }

  Status damaged(const std::string& what) const {
    return Status(Code::kDamaged, path_ + ": damaged GGUF file: " + what);
  }
  Status ends(const std::string& what, std::uint64_t wanted) const {
    return damaged(what + " at byte " + number(at_) + ": wanted " + number(wanted) + " bytes, the file has " +
                   number(left()) + " left");
  }

  Status read(void* out, std::uint64_t bytes, const std::string& what) {
    if (bytes > left()) return ends(what, bytes);
    if (bytes != 0 && std::fread(out, 1, bytes, file_) != bytes) {
      return damaged(what + " at byte " + number(at_) + ": cannot be read");
    }
    at_ += bytes;
    return ok_status();
  }
  template <typename T>
  Status read_number(T* out, const std::string& what) {
    return read(out, sizeof(T), what);
  }
  Status skip(std::uint64_t bytes, const std::string& what) {
    if (bytes > left()) return ends(what, bytes);
    // Short steps stay inside stdio's buffer; vocabularies are hundreds of thousands of them.
    char scratch[256];
    if (bytes <= sizeof(scratch)) return read(scratch, bytes, what);
    if (fseeko(file_, static_cast<off_t>(bytes), SEEK_CUR) != 0) return damaged(what + ": cannot be read");
    at_ += bytes;
    return ok_status();
  }
  Status read_name(std::string* out, std::uint64_t most, const std::string& what) {
    const std::uint64_t start = at_;
    std::uint64_t bytes = 0;
    NEVE_RETURN_IF_ERROR(read_number(&bytes, what));
    if (bytes == 0 || bytes > most) {
      return damaged(what + " at byte " + number(start) + ": wanted 1 to " + number(most) + " bytes, got " +
                     number(bytes));
    }
    out->resize(bytes);
    return read(out->data(), bytes, what);
  }
  Status skip_string(const std::string& what) {
    std::uint64_t bytes = 0;
    NEVE_RETURN_IF_ERROR(read_number(&bytes, what));
    return skip(bytes, what);
  }

  Status walk_start() {
    char magic[4] = {};
    if (file_bytes_ < sizeof(magic)) {
      return damaged("wanted at least 24 bytes, the file has " + number(file_bytes_));
    }
    NEVE_RETURN_IF_ERROR(read(magic, sizeof(magic), "magic"));
    if (std::memcmp(magic, GGUF_MAGIC, sizeof(magic)) != 0) {
      std::string got;
      for (const char c : magic) {
        char hex[4];
        std::snprintf(hex, sizeof(hex), " %02x", static_cast<unsigned>(static_cast<unsigned char>(c)));
        got += hex;
      }
      return Status(Code::kDamaged, path_ + ": not a GGUF file: wanted 'GGUF' at byte 0, got" + got);
    }
    std::uint32_t version = 0;
    NEVE_RETURN_IF_ERROR(read_number(&version, "version"));
    if (version != 2 && version != GGUF_VERSION) {
      return Status(Code::kUnsupported, path_ + ": GGUF version at byte 4: wanted 2 or 3, got " + number(version));
    }
    NEVE_RETURN_IF_ERROR(read_number(&tensors_, "number of tensors"));
    NEVE_RETURN_IF_ERROR(read_number(&pairs_, "number of key-value pairs"));
    // A tensor takes at least 24 bytes of header, a pair at least 13.
    if (tensors_ > left() / 24)
      return damaged("number of tensors at byte 8: " + number(tensors_) + ", in a file of " + number(file_bytes_) +
                     " bytes");
    if (pairs_ > left() / 13)
      return damaged("number of key-value pairs at byte 16: " + number(pairs_) + ", in a file of " +
                     number(file_bytes_) + " bytes");
    return ok_status();
  }

  Status walk_pair(std::uint64_t index) {
    const std::uint64_t start = at_;
    std::string key;
    NEVE_RETURN_IF_ERROR(read_name(&key, kMaxKeyBytes, "key " + number(index)));
    if (!names_.insert(key).second) return damaged("key " + quoted(key) + " at byte " + number(start) + " comes twice");
    const std::string what = "value of " + quoted(key);
    const std::uint64_t type_at = at_;
    std::uint32_t type = 0;
    NEVE_RETURN_IF_ERROR(read_number(&type, what));
    std::uint64_t count = 1;
    if (type == GGUF_TYPE_ARRAY) {
      NEVE_RETURN_IF_ERROR(read_number(&type, what));
      NEVE_RETURN_IF_ERROR(read_number(&count, what));
    } else if (key == GGUF_KEY_GENERAL_ALIGNMENT) {
      return walk_alignment(type);
    } else if (key == "split.count") {
      return walk_split(type);
    }
    const std::uint64_t bytes = type == GGUF_TYPE_STRING ? 8 : scalar_bytes(type);
    if (bytes == 0)
      return damaged("type of " + quoted(key) + " at byte " + number(type_at) + ": unknown type " + number(type));
    if (count > left() / bytes)
      return damaged(what + " at byte " + number(at_) + ": " + number(count) + " elements, the file has " +
                     number(left()) + " bytes left");
    if (type != GGUF_TYPE_STRING) return skip(count * bytes, what);
    for (std::uint64_t i = 0; i < count; ++i) NEVE_RETURN_IF_ERROR(skip_string(what));
    return ok_status();
  }

  Status walk_alignment(std::uint32_t type) {
    std::uint32_t value = 0;
    const std::uint64_t start = at_;
    if (type == GGUF_TYPE_UINT32) NEVE_RETURN_IF_ERROR(read_number(&value, GGUF_KEY_GENERAL_ALIGNMENT));
    if (value == 0 || (value & (value - 1)) != 0 || value > (1u << 20)) {
      return damaged(std::string(GGUF_KEY_GENERAL_ALIGNMENT) + " at byte " + number(start) +
                     ": wanted a power of two up to 2^20 as u32, got " + number(value));
    }
    alignment_ = value;
    return ok_status();
  }

  Status walk_split(std::uint32_t type) {
    std::uint16_t parts = 0;
    if (type != GGUF_TYPE_UINT16) return damaged("split.count: wanted u16, got type " + number(type));
    NEVE_RETURN_IF_ERROR(read_number(&parts, "split.count"));
    if (parts <= kMaxShards) return ok_status();
    return Status(Code::kUnsupported, path_ + ": one of " + number(parts) +
                                          " parts of a split model; neve reads whole files (llama-gguf-split --merge "
                                          "joins them)");
  }

  Status walk_tensor(std::uint64_t index) {
    if (index == 0) names_.clear();  // keys may be named like tensors
    const std::uint64_t start = at_;
    std::string name;
    NEVE_RETURN_IF_ERROR(read_name(&name, GGML_MAX_NAME - 1, "name of tensor " + number(index)));
    const std::string what = "tensor " + quoted(name) + " at byte " + number(start);
    if (!names_.insert(name).second) return damaged(what + " comes twice");
    std::uint32_t dims = 0;
    NEVE_RETURN_IF_ERROR(read_number(&dims, what));
    if (dims > GGML_MAX_DIMS) return damaged(what + ": " + number(dims) + " dimensions, at most 4 are possible");
    std::uint64_t elements = 1, row = 1;
    for (std::uint32_t d = 0; d < dims; ++d) {
      std::uint64_t size = 0;
      NEVE_RETURN_IF_ERROR(read_number(&size, what));
      if (size == 0 || size > (1ull << 40) || elements > (1ull << 48) / size) {
        return damaged(what + ": dimension " + number(d) + " is " + number(size));
      }
      elements *= size;
      if (d == 0) row = size;
    }
    std::uint32_t type = 0;
    std::uint64_t offset = 0;
    NEVE_RETURN_IF_ERROR(read_number(&type, what));
    NEVE_RETURN_IF_ERROR(read_number(&offset, what));
    const ggml_type kind = static_cast<ggml_type>(type);
    if (type >= GGML_TYPE_COUNT || ggml_blck_size(kind) == 0) return damaged(what + ": unknown type " + number(type));
    const auto block = static_cast<std::uint64_t>(ggml_blck_size(kind));
    if (row % block != 0) {
      return damaged(what + ": rows of " + number(row) + " elements, type " + ggml_type_name(kind) +
                     " wants a multiple of " + number(block));
    }
    if (offset != data_bytes_) {
      return damaged(what + ": wanted data offset " + number(data_bytes_) + " (behind its predecessor), got " +
                     number(offset));
    }
    last_name_ = name;
    last_end_ = offset + elements / block * ggml_type_size(kind);  // < 2^48 * 16
    data_bytes_ = (last_end_ + alignment_ - 1) / alignment_ * alignment_;
    return ok_status();
  }

  Status check_data() const {
    if (tensors_ == 0) return ok_status();
    const std::uint64_t data_at = (at_ + alignment_ - 1) / alignment_ * alignment_;
    if (data_at + last_end_ <= file_bytes_) return ok_status();
    return damaged("truncated: the last tensor, " + quoted(last_name_) + ", ends at byte " +
                   number(data_at + last_end_) + ", the file has " + number(file_bytes_));
  }

  const std::string path_;
  std::FILE* const file_;
  const std::uint64_t file_bytes_;
  std::uint64_t at_ = 0;
  std::uint64_t tensors_ = 0, pairs_ = 0;
  std::uint64_t alignment_ = GGUF_DEFAULT_ALIGNMENT;
  std::uint64_t data_bytes_ = 0;  // padded end of the tensors seen so far, from the start of the data
  std::uint64_t last_end_ = 0;
  std::string last_name_;
  std::unordered_set<std::string> names_;
};

}  // namespace

Status check_gguf(const std::string& path) {
  struct stat info = {};
  if (stat(path.c_str(), &info) != 0) return Status(Code::kNotFound, path + ": " + std::strerror(errno));
  if (!S_ISREG(info.st_mode)) return Status(Code::kNotFound, path + ": wanted a GGUF file, this is no regular file");
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"), &std::fclose);
  if (file == nullptr) return Status(Code::kNotFound, path + ": " + std::strerror(errno));
  return HeaderWalk(path, file.get(), static_cast<std::uint64_t>(info.st_size)).run();
}

}  // namespace neve::model
