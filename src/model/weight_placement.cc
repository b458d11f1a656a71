#include "model/weight_placement.h"

#include <memory>
#include <vector>

#include "ggml-cpu.h"

namespace neve::model {
namespace {

constexpr std::int64_t kProbeColumns = 512;  // of the other factor; support does not depend on it

struct FreeContext {
  void operator()(ggml_context* context) const { ggml_free(context); }
};
struct FreeBuffer {
  void operator()(ggml_backend_buffer_t buffer) const { ggml_backend_buffer_free(buffer); }
};

std::vector<ggml_backend_buffer_type_t> list_extra_buffer_types() {
  std::vector<ggml_backend_buffer_type_t> types;
  ggml_backend_dev_t const cpu = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
  if (cpu == nullptr) return types;
  ggml_backend_reg_t const registry = ggml_backend_dev_backend_reg(cpu);
  void* const address = ggml_backend_reg_get_proc_address(registry, "ggml_backend_dev_get_extra_bufts");
  if (address == nullptr) return types;
  const auto list = reinterpret_cast<ggml_backend_dev_get_extra_bufts_t>(address);
  ggml_backend_buffer_type_t* const found = list(cpu);
  for (int i = 0; found != nullptr && found[i] != nullptr; ++i) types.push_back(found[i]);
  return types;
}

}  // namespace

std::span<const ggml_backend_buffer_type_t> extra_buffer_types() {
  static const std::vector<ggml_backend_buffer_type_t> types = list_extra_buffer_types();
  return types;
}

ggml_backend_buffer_type_t faster_buffer_type(ggml_type type, std::int64_t columns, std::int64_t rows) {
  if (columns % ggml_blck_size(type) != 0) return nullptr;
  const std::unique_ptr<ggml_context, FreeContext> context(
      ggml_init({.mem_size = 4 * ggml_tensor_overhead(), .mem_buffer = nullptr, .no_alloc = true}));
  ggml_tensor* const weight = ggml_new_tensor_2d(context.get(), type, columns, rows);
  ggml_tensor* const other = ggml_new_tensor_2d(context.get(), GGML_TYPE_F32, columns, kProbeColumns);
  ggml_tensor* const product = ggml_mul_mat(context.get(), weight, other);
  ggml_backend_dev_t const cpu = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
  for (ggml_backend_buffer_type_t candidate : extra_buffer_types()) {
    // An empty buffer says where the weight would be; the backend looks no further.
    const std::unique_ptr<ggml_backend_buffer, FreeBuffer> empty(ggml_backend_buft_alloc_buffer(candidate, 0));
    weight->buffer = empty.get();
    const bool supported = ggml_backend_dev_supports_op(cpu, product);
    weight->buffer = nullptr;
    if (supported) return candidate;
  }
  return nullptr;
}

bool can_multiply(ggml_type type) {
  const ggml_type_traits_cpu* const traits = ggml_get_type_traits_cpu(type);
  return traits != nullptr && traits->vec_dot != nullptr;
}

bool can_look_up(ggml_type type) {
  return type == GGML_TYPE_F32 || type == GGML_TYPE_F16 || type == GGML_TYPE_BF16 ||
         (ggml_is_quantized(type) && ggml_get_type_traits(type)->to_float != nullptr);
}

}  // namespace neve::model
