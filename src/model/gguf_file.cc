#include "model/gguf_file.h"

#include <algorithm>
#include <filesystem>

#include "model/ggml_log.h"
#include "model/gguf_check.h"

namespace neve::model {

Result<GgufFile> GgufFile::open(const std::string& path) {
  NEVE_RETURN_IF_ERROR(check_gguf(path));
  GgufFile file;
  file.path_ = path;
  std::error_code error;
  file.file_bytes_ = std::filesystem::file_size(path, error);
  const LogCapture log;
  file.context_.reset(gguf_init_from_file(path.c_str(), gguf_init_params{.no_alloc = true, .ctx = nullptr}));
  if (error || file.context_ == nullptr) {
    return Status(Code::kDamaged, path + ": damaged GGUF file: " + log.reason());
  }
  const gguf_context* const context = file.context_.get();
  const std::int64_t count = gguf_get_n_tensors(context);
  file.tensors_.resize(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    GgufTensor& tensor = file.tensors_[static_cast<std::size_t>(i)];
    tensor.name = gguf_get_tensor_name(context, i);
    tensor.type = gguf_get_tensor_type(context, i);
    std::copy_n(gguf_get_tensor_ne(context, i), GGML_MAX_DIMS, tensor.ne);
    tensor.offset = gguf_get_data_offset(context) + gguf_get_tensor_offset(context, i);
    tensor.bytes = gguf_get_tensor_size(context, i);
  }
  return file;
}

const GgufTensor* GgufFile::find_tensor(const std::string& name) const {
  const std::int64_t id = gguf_find_tensor(context_.get(), name.c_str());
  return id < 0 ? nullptr : &tensors_[static_cast<std::size_t>(id)];
}

bool GgufFile::has(const std::string& key) const { return gguf_find_key(context_.get(), key.c_str()) >= 0; }

Status GgufFile::wrong_type(const std::string& key, const char* wanted) const {
  const std::int64_t id = gguf_find_key(context_.get(), key.c_str());
  if (id < 0) return Status(Code::kDamaged, path_ + ": key '" + key + "' is missing (wanted " + wanted + ")");
  return Status(Code::kDamaged, path_ + ": key '" + key + "': wanted " + wanted + ", got " +
                                    gguf_type_name(gguf_get_kv_type(context_.get(), id)));
}

Result<std::int64_t> GgufFile::find(const std::string& key, gguf_type type, bool required) const {
  const std::int64_t id = gguf_find_key(context_.get(), key.c_str());
  if (id < 0 && !required) return id;
  if (id < 0 || gguf_get_kv_type(context_.get(), id) != type) return wrong_type(key, gguf_type_name(type));
  return id;
}

Result<std::uint32_t> GgufFile::u32(const std::string& key, std::optional<std::uint32_t> otherwise) const {
  const Result<std::int64_t> id = find(key, GGUF_TYPE_UINT32, !otherwise);
  if (!id.ok()) return id.status();
  return *id < 0 ? *otherwise : gguf_get_val_u32(context_.get(), *id);
}

Result<float> GgufFile::f32(const std::string& key, std::optional<float> otherwise) const {
  const Result<std::int64_t> id = find(key, GGUF_TYPE_FLOAT32, !otherwise);
  if (!id.ok()) return id.status();
  return *id < 0 ? *otherwise : gguf_get_val_f32(context_.get(), *id);
}

Result<std::string> GgufFile::text(const std::string& key, std::optional<std::string> otherwise) const {
  const Result<std::int64_t> id = find(key, GGUF_TYPE_STRING, !otherwise);
  if (!id.ok()) return id.status();
  return *id < 0 ? std::move(*otherwise) : std::string(gguf_get_val_str(context_.get(), *id));
}

Result<std::vector<std::uint32_t>> GgufFile::u32_per_layer(const std::string& key, std::uint32_t layers,
                                                           std::optional<std::uint32_t> otherwise) const {
  const std::int64_t id = gguf_find_key(context_.get(), key.c_str());
  if (id < 0 || gguf_get_kv_type(context_.get(), id) != GGUF_TYPE_ARRAY) {
    const Result<std::uint32_t> one = u32(key, otherwise);
    if (!one.ok()) return one.status();
    return std::vector<std::uint32_t>(layers, *one);
  }
  const gguf_type type = gguf_get_arr_type(context_.get(), id);
  if (type != GGUF_TYPE_UINT32 && type != GGUF_TYPE_INT32) return wrong_type(key, "u32 or an array of u32");
  const std::size_t count = gguf_get_arr_n(context_.get(), id);
  if (count != layers) {
    return Status(Code::kDamaged, path_ + ": key '" + key + "': wanted " + std::to_string(layers) +
                                      " numbers, one for each layer, got " + std::to_string(count));
  }
  const auto* const data = static_cast<const std::uint32_t*>(gguf_get_arr_data(context_.get(), id));
  return std::vector<std::uint32_t>(data, data + count);
}

Result<std::vector<std::string>> GgufFile::texts(const std::string& key) const {
  const std::int64_t id = gguf_find_key(context_.get(), key.c_str());
  if (id < 0 || gguf_get_kv_type(context_.get(), id) != GGUF_TYPE_ARRAY ||
      gguf_get_arr_type(context_.get(), id) != GGUF_TYPE_STRING) {
    return wrong_type(key, "an array of strings");
  }
  std::vector<std::string> out(gguf_get_arr_n(context_.get(), id));
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = gguf_get_arr_str(context_.get(), id, i);
  return out;
}

std::uint64_t GgufFile::array_length(const std::string& key) const {
  const std::int64_t id = gguf_find_key(context_.get(), key.c_str());
  if (id < 0 || gguf_get_kv_type(context_.get(), id) != GGUF_TYPE_ARRAY) return 0;
  return gguf_get_arr_n(context_.get(), id);
}

}  // namespace neve::model
