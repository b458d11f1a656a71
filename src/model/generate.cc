#include "neve/generate.h"

#include <algorithm>

#include "model/session.h"

namespace neve {
namespace {

constexpr std::int64_t kOneColumn = 128;  // tokens that a page holds

// A budget must hold the prompt at the lowest rung and one column more; what it holds at most is the capacity.
Result<std::int64_t> capacity(const Model& model, const CacheOptions& options, std::int64_t prompt_tokens) {
  const std::vector<LayerGeometry>& layers = model.info().layers;
  const std::int64_t wanted = std::min(prompt_tokens + kOneColumn, options.max_tokens);
  const Result<CachePlan> least = plan_cache(layers, options, wanted, 1);
  if (!least.ok()) return least.status();
  if (least->budget_bytes > 0 && least->budget_bytes < least->least_bytes) {
    return Status(Code::kBudget, "budget: wanted at least " + std::to_string(least->least_bytes) + " bytes (" +
                                     format_bytes(least->least_bytes) + ", the least for the prompt of " +
                                     std::to_string(prompt_tokens) + " tokens and one page more), got " +
                                     std::to_string(least->budget_bytes));
  }
  const Result<CachePlan> most = plan_cache(layers, options, options.max_tokens, 1);
  if (!most.ok()) return most.status();
  return most->capacity_tokens;
}

}  // namespace

const char* finish_name(Finish finish) {
  switch (finish) {
    case Finish::kLength:
      return "length";
    case Finish::kStop:
      return "stop";
    case Finish::kBudget:
      return "budget";
    case Finish::kCancelled:
      return "cancelled";
  }
  return "?";
}

Result<GenerateReport> generate(const Model& model, std::string_view text, const GenerateOptions& options,
                                const GenerateCallbacks& callbacks) {
  const Result<std::vector<std::int32_t>> tokens = model.tokenize(text, true);
  if (!tokens.ok()) return tokens.status();
  if (tokens->empty()) return Status(Code::kInvalidArgument, "prompt: wanted at least one token, got none");
  if (std::ssize(*tokens) > options.cache.max_tokens) {
    return Status(Code::kInvalidArgument, "prompt: " + std::to_string(tokens->size()) + " tokens, the context is " +
                                              std::to_string(options.cache.max_tokens));
  }
  const Result<std::int64_t> most = capacity(model, options.cache, std::ssize(*tokens));
  if (!most.ok()) return most.status();
  Result<std::unique_ptr<model::Session>> session = model::Session::create(model, options);
  if (!session.ok()) return session.status();

  GenerateReport report;
  report.capacity_tokens = *most;
  report.prompt_tokens = std::ssize(*tokens);
  report.memory = (*session)->cache().memory();
  report.budget_bytes = report.memory.budget_bytes;
  if (callbacks.started) callbacks.started(report);
  const Result<bool> read = (*session)->read(*tokens, callbacks, &report);
  if (!read.ok()) return read.status();
  if (*read) NEVE_RETURN_IF_ERROR((*session)->write(callbacks, &report));
  return report;
}

}  // namespace neve
