// What `bench attend` measures: attention of one query token over a filled cache of many layers.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "neve/kv_spec.h"
#include "neve/status.h"

namespace neve::eval {

struct AttendShape {
  int head_dim = 0;
  int kv_heads = 0;
  int gqa = 0;  // query heads per KV head
  int layers = 0;
  std::int64_t tokens = 0;  // in the cache
  int threads = 1;
  std::uint64_t seed = 1;

  // Key and value elements that one pass reads.
  double values() const { return 2.0 * static_cast<double>(tokens) * layers * kv_heads * head_dim; }
};

class AttendEngine {
 public:
  virtual ~AttendEngine() = default;
  // One query token through all layers, in order. Returns: seconds of attention alone.
  virtual Result<double> pass() = 0;
  virtual std::uint64_t bytes() const = 0;  // held by the cache
  virtual std::string path() const = 0;     // what runs
};

// neve's KvCache, filled synthetically; attend and merge on `threads` threads, a barrier after each.
Result<std::unique_ptr<AttendEngine>> make_neve_attend(const AttendShape& shape, const KvSpec& spec);

// ggml's attention operators on keys and values of `type` (f16, q8_0, q4_0): the faster of flash attention and of
// matrix products around a softmax.
Result<std::unique_ptr<AttendEngine>> make_ggml_attend(const AttendShape& shape, const std::string& type);

}  // namespace neve::eval
