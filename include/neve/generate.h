// Text from a model, its KV cache inside a byte budget: the main job of `neve run` and `neve chat`.
//
// The prompt is read in chunks as large as the budget allows at 16 bit, then tokens are sampled one by one; precision
// falls as memory fills. A wish for n tokens is a wish: when everything stands at its last rung and memory is full, the
// end is clean and the finish reason says so.
//
// Threads: one call at a time per session; the callbacks run on the caller's thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "neve/kv_cache.h"
#include "neve/model.h"
#include "neve/status.h"

namespace neve {

// llama.cpp's chain with its defaults: top-k, top-p, min-p, temperature, then a draw.
struct SamplingOptions {
  float temperature = 0.8f;  // 0: always the most probable token
  int top_k = 40;            // 0: off
  float top_p = 0.95f;       // 1: off
  float min_p = 0.05f;       // 0: off
  std::uint32_t seed = 0;    // same seed, same options, same text
};

enum class AtEndToken { kStop, kContinue };  // kContinue never samples an end token: for measuring

struct GenerateOptions {
  std::int64_t new_tokens = -1;  // at most; < 0: until an end token, the context or the budget ends
  // spec, demote, budget_bytes and max_tokens (the context) are read; sequences, threads and schedule are not. `auto:W`
  // sets the budget itself.
  CacheOptions cache;
  SamplingOptions sampling;
  AtEndToken at_end = AtEndToken::kStop;
  int threads = 0;  // 0 = as the model
};

struct GenerateReport;

struct GenerateCallbacks {
  // Before the first step, when prompt, budget and capacity are known.
  std::function<void(const GenerateReport& so_far)> started;
  std::function<void(std::int64_t done, std::int64_t of)> prefill;  // tokens of the prompt, after each chunk
  std::function<void(std::string_view piece)> text;                 // whole UTF-8 characters
  std::function<bool()> cancelled;                                  // asked before each step; true ends the run
};

enum class Finish {
  kLength,     // as many tokens as asked for, or the context is full
  kStop,       // the model ended
  kBudget,     // the budget is full and everything stands at its last rung
  kCancelled,  // the caller asked to stop
};
const char* finish_name(Finish finish);  // "length", "stop", "budget", "cancelled"

struct GenerateReport {
  std::int64_t prompt_tokens = 0;  // read in this call; a chat keeps what earlier turns read
  std::int64_t new_tokens = 0;
  Finish finish = Finish::kLength;
  std::string text;
  double prefill_s = 0, decode_s = 0;  // decode_s: steps, sampling and callbacks
  double prefill_tokens_per_s = 0, decode_tokens_per_s = 0;
  std::uint64_t budget_bytes = 0;    // in force; 0 = none
  std::int64_t capacity_tokens = 0;  // prompt and new tokens that fit at most
  CacheMemory memory;                // at the end
  // New tokens by the lowest rung that any block stood on when they were made.
  struct ByRung {
    std::int64_t at_16 = 0, at_8 = 0, at_4 = 0, at_2 = 0;
  } tokens_generated_by_rung;
  struct Step {
    float ms = 0;              // the step alone, without sampling
    bool closes_page = false;  // pages change state at its end
  };
  std::vector<Step> steps;  // one for each token that was decoded
  double step_ms_median = 0, step_ms_p99 = 0, step_ms_p999 = 0;
  std::int64_t compute_bytes = 0;  // of the graphs, beside the cache and the weights
};

// `text`: read with the model's special tokens. Errors: kInvalidArgument (an empty prompt, or one beyond the context),
// kBudget (below the least that holds the prompt and one page more; names it), those of KvCache and kNotFinite. An end
// of the budget or a cancellation is no error.
Result<GenerateReport> generate(const Model& model, std::string_view text, const GenerateOptions& options,
                                const GenerateCallbacks& callbacks = {});

// A conversation; keys and values of earlier turns stay.
class ChatSession {
 public:
  // `model` must outlive the session. Errors: kUnsupported (no chat template), those of KvCache.
  static Result<std::unique_ptr<ChatSession>> create(const Model& model, const GenerateOptions& options);
  ~ChatSession();

  // Only before the first turn.
  void set_system(std::string text);
  // One turn: reads the user's message, generates the answer. The report's memory and capacity are the session's.
  // Errors: as generate; then the conversation stands where it stood.
  Result<GenerateReport> say(std::string_view message, const GenerateCallbacks& callbacks = {});
  std::int64_t tokens() const;  // that the cache holds

 private:
  struct Impl;
  explicit ChatSession(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace neve
