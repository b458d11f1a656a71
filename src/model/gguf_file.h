// A GGUF file whose header has been checked (gguf_check.h) and read (ggml's gguf API): typed keys, tensors by name.
//
// Threads: read only after open.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ggml.h"
#include "gguf.h"
#include "neve/status.h"

namespace neve::model {

// Where a tensor's data lies, and its shape as ggml counts: ne[0] is the length of a row.
struct GgufTensor {
  std::string name;
  ggml_type type = GGML_TYPE_F32;
  std::int64_t ne[GGML_MAX_DIMS] = {1, 1, 1, 1};
  std::uint64_t offset = 0;  // from the start of the file
  std::uint64_t bytes = 0;
};

class GgufFile {
 public:
  // Errors: as check_gguf.
  static Result<GgufFile> open(const std::string& path);

  const std::string& path() const { return path_; }
  std::uint64_t file_bytes() const { return file_bytes_; }
  std::uint64_t header_bytes() const { return gguf_get_data_offset(context_.get()); }
  const std::vector<GgufTensor>& tensors() const { return tensors_; }
  const GgufTensor* find_tensor(const std::string& name) const;

  bool has(const std::string& key) const;
  // The value, or `otherwise` if there is no such key; without `otherwise` the key is required.
  // Errors: kDamaged: the key is missing, or of another type (wanted, got).
  Result<std::uint32_t> u32(const std::string& key, std::optional<std::uint32_t> otherwise = std::nullopt) const;
  Result<float> f32(const std::string& key, std::optional<float> otherwise = std::nullopt) const;
  Result<std::string> text(const std::string& key, std::optional<std::string> otherwise = std::nullopt) const;
  // One value for each layer: an array of `layers` numbers, or one number for all.
  Result<std::vector<std::uint32_t>> u32_per_layer(const std::string& key, std::uint32_t layers,
                                                   std::optional<std::uint32_t> otherwise = std::nullopt) const;
  // Elements of an array of strings. Errors: kDamaged.
  Result<std::vector<std::string>> texts(const std::string& key) const;
  // Length of an array of any type; 0 if there is none.
  std::uint64_t array_length(const std::string& key) const;

 private:
  struct Free {
    void operator()(gguf_context* context) const { gguf_free(context); }
  };

  Status wrong_type(const std::string& key, const char* wanted) const;
  // The id of `key` if it has that type; -1 if there is no such key and it may be missing.
  Result<std::int64_t> find(const std::string& key, gguf_type type, bool required) const;

  std::string path_;
  std::uint64_t file_bytes_ = 0;
  std::unique_ptr<gguf_context, Free> context_;
  std::vector<GgufTensor> tensors_;
};

}  // namespace neve::model
