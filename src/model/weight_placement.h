// Which layouts of weight matrices ggml's CPU backend has a faster product for ("extra buffer types": repacked rows,
// AMX tiles). A matrix in such a buffer can only be multiplied: not read, not looked up by row.
#pragma once

#include <cstdint>
#include <span>

#include "ggml-backend.h"
#include "ggml.h"

namespace neve::model {

// The buffer types this build has, best first. Empty on a build or CPU without any.
std::span<const ggml_backend_buffer_type_t> extra_buffer_types();

// The first of them that multiplies a matrix of `type` with `columns` [ne0] and `rows` [ne1]; null if none does.
ggml_backend_buffer_type_t faster_buffer_type(ggml_type type, std::int64_t columns, std::int64_t rows);

// Whether ggml's CPU backend can multiply by such a matrix at all, and look up its rows.
bool can_multiply(ggml_type type);
bool can_look_up(ggml_type type);

}  // namespace neve::model
