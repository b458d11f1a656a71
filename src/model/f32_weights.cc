#include "model/f32_weights.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <exception>
#include <filesystem>

#include "llama.h"
#include "model/ggml_log.h"
#include "neve/kv_spec.h"

namespace neve::model {
namespace {

namespace fs = std::filesystem;

// What the conversion will take: every element as four bytes, and the header.
std::uint64_t f32_bytes(const GgufFile& source) {
  std::uint64_t bytes = source.header_bytes();
  for (const GgufTensor& tensor : source.tensors()) {
    bytes += static_cast<std::uint64_t>(tensor.ne[0] * tensor.ne[1] * tensor.ne[2] * tensor.ne[3]) * sizeof(float);
  }
  return bytes;
}

bool sync_to_disk(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return false;
  const bool done = ::fsync(descriptor) == 0;
  ::close(descriptor);
  return done;
}

}  // namespace

std::string cache_folder() {
  const char* const chosen = std::getenv("NEVE_CACHE");
  if (chosen != nullptr && *chosen != '\0') return chosen;
  const char* const home = std::getenv("HOME");
  return std::string(home == nullptr ? "." : home) + "/.cache/neve";
}

Result<std::string> f32_weights(const GgufFile& source, const std::string& fingerprint, int threads) {
  const std::string folder = cache_folder() + "/f32";
  const std::string path = folder + "/" + fingerprint + ".gguf";
  std::error_code error;
  if (fs::exists(path, error)) return path;
  fs::create_directories(folder, error);
  if (error) return Status(Code::kNotFound, folder + ": " + error.message());
  const std::uint64_t wanted = f32_bytes(source);
  const fs::space_info space = fs::space(folder, error);
  if (!error && space.available < wanted) {
    return Status(Code::kExhausted, folder + ": f32 weights take " + format_bytes(wanted) + ", the disk has " +
                                        format_bytes(space.available) + " left");
  }

  const std::string temporary = path + "." + std::to_string(::getpid()) + ".part";
  llama_model_quantize_params params = llama_model_quantize_default_params();
  params.nthread = threads;
  params.ftype = LLAMA_FTYPE_ALL_F32;
  params.allow_requantize = true;
  const LogCapture log;
  std::string failure;
  try {
    if (llama_model_quantize(source.path().c_str(), temporary.c_str(), &params) != 0) failure = log.reason();
  } catch (const std::exception& thrown) {
    failure = thrown.what();
  }
  if (failure.empty() && !sync_to_disk(temporary)) failure = temporary + " cannot be written";
  if (failure.empty()) fs::rename(temporary, path, error);
  if (failure.empty() && error) failure = error.message();
  if (failure.empty()) return path;
  fs::remove(temporary, error);
  return Status(Code::kDamaged, source.path() + ": conversion to f32 failed: " + failure);
}

}  // namespace neve::model
