// The same model with every weight as f32, made once and kept: damage is measured on these, where llama.cpp differs from
// itself least.
#pragma once

#include <string>

#include "model/gguf_file.h"
#include "neve/status.h"

namespace neve::model {

// ${NEVE_CACHE:-$HOME/.cache/neve}
std::string cache_folder();

// The path of the f32 file of `source`, whose fingerprint names it. Converts (llama.cpp's quantiser, seconds per
// gigabyte) if it is not there yet; a crash leaves nothing under that name.
// Errors: kDamaged (conversion failed, with llama.cpp's reason), kExhausted (disk), kNotFound (the folder).
Result<std::string> f32_weights(const GgufFile& source, const std::string& fingerprint, int threads);

}  // namespace neve::model
