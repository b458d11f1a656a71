// For tests: variants of a model of ours, made by editing its GGUF file. So every architecture, RoPE scaling and kind
// of damage has a file small enough to be run beside llama.cpp.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "ggml.h"
#include "gguf.h"

namespace neve::model {

inline std::string dense_model() { return std::string(NEVE_SOURCE_DIR) + "/testdata/models/dense-4m-q8_0.gguf"; }

// A folder that goes away with its owner.
class ScratchFolder {
 public:
  ScratchFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "neve-test-XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  ~ScratchFolder() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

inline std::string read_bytes(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
}
inline void write_bytes(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

class EditedGguf {
 public:
  explicit EditedGguf(const std::string& source) {
    source_ = gguf_init_from_file(source.c_str(), {.no_alloc = false, .ctx = &tensors_});
    keys_ = gguf_init_empty();
    gguf_set_kv(keys_, source_);
    added_ = ggml_init({.mem_size = std::size_t{16} << 20, .mem_buffer = nullptr, .no_alloc = false});
  }
  ~EditedGguf() {
    gguf_free(source_);
    gguf_free(keys_);
    ggml_free(tensors_);
    ggml_free(added_);
  }
  EditedGguf(const EditedGguf&) = delete;
  EditedGguf& operator=(const EditedGguf&) = delete;

  gguf_context* keys() { return keys_; }
  // Renames the architecture and the prefix of its keys.
  EditedGguf& architecture(const std::string& name) {
    const std::string old = gguf_get_val_str(keys_, gguf_find_key(keys_, "general.architecture"));
    for (std::int64_t i = 0; i < gguf_get_n_kv(source_); ++i) {
      const std::string key = gguf_get_key(source_, i);
      if (key.rfind(old + ".", 0) != 0) continue;
      const std::string renamed = name + key.substr(old.size());
      gguf_remove_key(keys_, key.c_str());
      if (gguf_get_kv_type(source_, i) == GGUF_TYPE_UINT32) u32(renamed, gguf_get_val_u32(source_, i));
      if (gguf_get_kv_type(source_, i) == GGUF_TYPE_FLOAT32) f32(renamed, gguf_get_val_f32(source_, i));
    }
    return text("general.architecture", name);
  }
  EditedGguf& u32(const std::string& key, std::uint32_t value) {
    gguf_set_val_u32(keys_, key.c_str(), value);
    return *this;
  }
  EditedGguf& f32(const std::string& key, float value) {
    gguf_set_val_f32(keys_, key.c_str(), value);
    return *this;
  }
  EditedGguf& text(const std::string& key, const std::string& value) {
    gguf_set_val_str(keys_, key.c_str(), value.c_str());
    return *this;
  }
  EditedGguf& remove_key(const std::string& key) {
    gguf_remove_key(keys_, key.c_str());
    return *this;
  }
  // Leaves out every tensor whose name holds `part`.
  EditedGguf& drop(const std::string& part) {
    dropped_.push_back(part);
    return *this;
  }
  // A vector of `length` random numbers around `mean`.
  EditedGguf& add_vector(const std::string& name, std::int64_t length, float mean, float spread) {
    return add(name, ggml_new_tensor_1d(added_, GGML_TYPE_F32, length), mean, spread);
  }
  // A matrix of random numbers around 0.
  EditedGguf& add_matrix(const std::string& name, std::int64_t inputs, std::int64_t outputs, float spread) {
    return add(name, ggml_new_tensor_2d(added_, GGML_TYPE_F32, inputs, outputs), 0.f, spread);
  }
  // A file of the same tensors, the feed-forward matrices `inner` wide and nothing but zeros: as sparse as the disk
  // can make it. Returns: false where there are no files of that size.
  bool write_sparse(const std::string& path, std::int64_t inner) {
    u32("qwen3.feed_forward_length", static_cast<std::uint32_t>(inner));
    ggml_context* const shapes = ggml_init({.mem_size = std::size_t{1} << 20, .mem_buffer = nullptr, .no_alloc = true});
    for (ggml_tensor* t = ggml_get_first_tensor(tensors_); t != nullptr; t = ggml_get_next_tensor(tensors_, t)) {
      if (gguf_find_tensor(source_, t->name) < 0) continue;
      const bool down = std::strstr(t->name, "ffn_down") != nullptr;
      const bool wide =
          down || std::strstr(t->name, "ffn_up") != nullptr || std::strstr(t->name, "ffn_gate") != nullptr;
      ggml_tensor* const shape =
          ggml_new_tensor_2d(shapes, t->type, wide && down ? inner : t->ne[0], wide && !down ? inner : t->ne[1]);
      ggml_set_name(shape, t->name);
      gguf_add_tensor(keys_, shape);
    }
    gguf_write_to_file(keys_, path.c_str(), true);
    const std::int64_t last = gguf_get_n_tensors(keys_) - 1;
    const std::uint64_t end =
        gguf_get_meta_size(keys_) + gguf_get_tensor_offset(keys_, last) + gguf_get_tensor_size(keys_, last);
    ggml_free(shapes);
    std::error_code error;
    std::filesystem::resize_file(path, end, error);
    return !error;
  }
  std::string write(const std::string& path) {
    for (ggml_tensor* t = ggml_get_first_tensor(tensors_); t != nullptr; t = ggml_get_next_tensor(tensors_, t)) {
      if (gguf_find_tensor(source_, t->name) < 0) continue;  // the blob itself
      bool keep = true;
      for (const std::string& part : dropped_) keep = keep && std::strstr(t->name, part.c_str()) == nullptr;
      if (keep) gguf_add_tensor(keys_, t);
    }
    for (ggml_tensor* tensor : extra_) gguf_add_tensor(keys_, tensor);
    gguf_write_to_file(keys_, path.c_str(), false);
    return path;
  }

 private:
  EditedGguf& add(const std::string& name, ggml_tensor* tensor, float mean, float spread) {
    ggml_set_name(tensor, name.c_str());
    std::normal_distribution<float> normal(mean, spread);
    for (std::int64_t i = 0; i < ggml_nelements(tensor); ++i) static_cast<float*>(tensor->data)[i] = normal(random_);
    extra_.push_back(tensor);
    return *this;
  }

  gguf_context* source_ = nullptr;
  gguf_context* keys_ = nullptr;
  ggml_context* tensors_ = nullptr;
  ggml_context* added_ = nullptr;
  std::vector<std::string> dropped_;
  std::vector<ggml_tensor*> extra_;
  std::mt19937 random_{7};
};

}  // namespace neve::model
