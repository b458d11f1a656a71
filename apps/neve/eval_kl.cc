// neve eval kl: KL divergence of the next-token distribution from the 16-bit run, and agreement on the likeliest token.
#include <iostream>
#include <memory>

#include "eval.h"
#include "table.h"

namespace neve::app {
namespace {

Json kl_row(const DamageRow& row) {
  Json json = eval_row(row);
  json["kl_mean"] = row.kl_mean;
  json["kl_median"] = row.kl_median;
  json["kl_p99"] = row.kl_p99;
  json["top1"] = row.top1;
  json["kl_by_position"] = row.kl_by_position;
  return json;
}

std::vector<std::string> cells_of(const DamageRow& row, const std::string& name) {
  return {name,
          format_bytes(row.bytes),
          fixed(row.bits_per_value, 3),
          scientific(row.kl_mean),
          scientific(row.kl_median),
          scientific(row.kl_p99),
          percent(row.top1),
          std::to_string(row.tokens)};
}

int eval_kl(const EvalFlags& flags) {
  const auto run = run_eval(flags);
  if (!run.ok()) return fail(run.status());
  const DamageReport& damage = run->damage;
  if (flags.json) {
    Json report = eval_report("eval kl", flags, *run);
    report["noise_floor"] = damage.noise.kl_mean;
    report["noise_floor_row"] = kl_row(damage.noise);
    report["position_step"] = DamageOptions().position_step;
    for (const DamageRow& row : damage.rows) report["rows"].push_back(kl_row(row));
    print_json(report);
    return kDone;
  }
  std::cout << "KL(16 bit || tested) in nats, " << eval_title(flags, *run) << "\n\n";
  Table table(
      {{"kv", Align::kLeft}, {"bytes"}, {"bits/value"}, {"KL mean"}, {"median"}, {"p99"}, {"top-1"}, {"tokens"}});
  for (const DamageRow& row : damage.rows) table.add(cells_of(row, row.kv));
  table.add_gap();
  table.add(cells_of(damage.noise, "noise floor"));
  table.print(std::cout);
  return kDone;
}

}  // namespace

void add_eval_kl(CLI::App& group, Action& action) {
  CLI::App* command = group.add_subcommand("kl", "KL divergence from the 16-bit run, and top-1 agreement");
  auto flags = std::make_shared<EvalFlags>();
  add_eval_flags(command, *flags);
  command->callback([&action, flags] { action = [flags] { return eval_kl(*flags); }; });
}

}  // namespace neve::app
