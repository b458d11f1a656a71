// Walks the header of a GGUF file and checks all that a reader would rely on, before any reader does: ggml's own
// says only "failed", and memory-mapping tensors that lie beyond the end of the file ends in SIGBUS.
//
// Checked: magic, version, counts against the bytes there are, types, UTF-8-free lengths, alignment, doubled names,
// shapes (block size, overflow), that the tensors lie back to back, aligned, and inside the file.
// Cost: one pass over the header, no allocation larger than a name; tensor data is not read.
#pragma once

#include <string>

#include "neve/status.h"

namespace neve::model {

// Errors: kNotFound (no such file, not readable), kDamaged (what, at which byte, wanted, got), kUnsupported (a version
// or byte order that is not read, one part of a split model).
Status check_gguf(const std::string& path);

}  // namespace neve::model
