#include <ggml.h>
#include <llama.h>

#include "neve/machine.h"

namespace neve {

LlamaVersion llama_version() { return {::llama_version(), ggml_version(), llama_print_system_info()}; }

}  // namespace neve
