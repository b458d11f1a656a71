#include "account.h"

#include "neve/kv_spec.h"
#include "neve/step_times.h"
#include "table.h"

namespace neve::app {
namespace {

std::string budget_text(const GenerateReport& report) {
  return report.budget_bytes > 0 ? "budget " + format_bytes(report.budget_bytes) : "no budget";
}

// "16 bit 3.1 MiB, 4 bit 8.0 MiB": the rungs that hold something.
std::string rungs_text(const CacheMemory& memory) {
  std::string text;
  const auto add = [&text](const char* name, std::uint64_t bytes) {
    if (bytes > 0) text += (text.empty() ? "" : ", ") + std::string(name) + " " + format_bytes(bytes);
  };
  add("16 bit", memory.bytes_16);
  add("8 bit", memory.bytes_8);
  add("4 bit", memory.bytes_4);
  add("2 bit", memory.bytes_2);
  add("free", memory.bytes_free);
  return text.empty() ? "nothing" : text;
}

std::string made_at_text(const GenerateReport::ByRung& tokens) {
  std::string text;
  const auto add = [&text](const char* name, std::int64_t count) {
    if (count > 0) text += (text.empty() ? "" : ", ") + std::to_string(count) + " at " + name;
  };
  add("16 bit", tokens.at_16);
  add("8 bit", tokens.at_8);
  add("4 bit", tokens.at_4);
  add("2 bit", tokens.at_2);
  return text.empty() ? "none" : text;
}

}  // namespace

void print_start(std::ostream& out, const GenerateReport& report, const std::string& kv) {
  out << "neve: prompt of " << report.prompt_tokens << " tokens; cache " << kv << ", " << budget_text(report)
      << ", room for " << report.capacity_tokens << " tokens\n";
}

void print_account(std::ostream& out, const GenerateReport& report, const std::string& kv, const Model& model,
                   const std::string& isa) {
  const CacheMemory& memory = report.memory;
  out << "prompt     " << report.prompt_tokens << " tokens, " << fixed(report.prefill_tokens_per_s, 1) << " tokens/s\n"
      << "written    " << report.new_tokens << " tokens, " << fixed(report.decode_tokens_per_s, 1)
      << " tokens/s; finish: " << finish_name(report.finish) << "\n";
  if (!report.steps.empty()) {
    const StepRatios ratios = step_ratios(report.steps);
    out << "steps      median " << fixed(report.step_ms_median, 2) << " ms, p99 " << fixed(report.step_ms_p99, 2)
        << ", p99.9 " << fixed(report.step_ms_p999, 2);
    if (ratios.closing_median > 0) {
      out << "; against their neighbours: page-closing steps " << times(ratios.closing_median) << ", p99.9 of all "
          << times(ratios.p999);
    }
    out << "\n";
  }
  out << "cache      " << kv << ": " << format_bytes(memory.bytes) << ", peak " << format_bytes(memory.peak_bytes)
      << ", " << budget_text(report) << ", capacity " << report.capacity_tokens << " tokens\n"
      << "rungs      " << rungs_text(memory) << "; " << memory.demotions << " demotions\n"
      << "made       " << made_at_text(report.tokens_generated_by_rung) << " (lowest rung read)\n"
      << "beside     weights " << format_bytes(static_cast<unsigned long long>(model.mapped_bytes())) << " mapped and "
      << format_bytes(static_cast<unsigned long long>(model.copied_bytes())) << " copied, tables "
      << format_bytes(memory.metadata_bytes) << ", workspace "
      << format_bytes(memory.workspace_bytes + static_cast<unsigned long long>(report.compute_bytes)) << "\n"
      << "machine    ISA " << isa << ", " << model.threads() << " threads\n";
}

Json account_json(const GenerateReport& report, const Model& model) {
  const CacheMemory& memory = report.memory;
  const GenerateReport::ByRung& made = report.tokens_generated_by_rung;
  const StepRatios ratios = step_ratios(report.steps);
  return {{"prompt_tokens", report.prompt_tokens},
          {"new_tokens", report.new_tokens},
          {"finish", finish_name(report.finish)},
          {"prefill_tokens_per_s", report.prefill_tokens_per_s},
          {"decode_tokens_per_s", report.decode_tokens_per_s},
          {"kv_bytes", memory.bytes},
          {"kv_peak_bytes", memory.peak_bytes},
          {"budget_bytes", report.budget_bytes},
          {"capacity_tokens", report.capacity_tokens},
          {"bytes_by_rung",
           {{"16", memory.bytes_16},
            {"8", memory.bytes_8},
            {"4", memory.bytes_4},
            {"2", memory.bytes_2},
            {"free", memory.bytes_free}}},
          {"tokens_generated_by_rung", {{"16", made.at_16}, {"8", made.at_8}, {"4", made.at_4}, {"2", made.at_2}}},
          {"demotions", memory.demotions},
          {"step_ms_median", report.step_ms_median},
          {"step_ms_p99", report.step_ms_p99},
          {"step_ms_p999", report.step_ms_p999},
          {"step_ratio_closing_median", ratios.closing_median},
          {"step_ratio_p999", ratios.p999},
          {"step_ratio_largest", ratios.largest},
          {"metadata_bytes", memory.metadata_bytes},
          {"workspace_bytes", memory.workspace_bytes},
          {"compute_bytes", report.compute_bytes},
          {"weights_mapped_bytes", model.mapped_bytes()},
          {"weights_copied_bytes", model.copied_bytes()},
          {"text", report.text}};
}

}  // namespace neve::app
