// What tells one set of weights from another without reading all of it: a hash over the header of the file, its size,
// and samples of every tensor's data.
#pragma once

#include <string>

#include "model/gguf_file.h"
#include "neve/status.h"

namespace neve::model {

// 16 hexadecimal digits of FNV-1a (64 bit). A changed header, shape, or type always shows; a changed weight shows if it
// lies in the first, middle or last 4 KiB of its tensor. Guards against mix-ups, not against forgery.
// Cost: reads the header and 12 KiB per tensor. Errors: kDamaged (cannot be read).
Result<std::string> fingerprint(const GgufFile& file);

}  // namespace neve::model
