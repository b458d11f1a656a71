// neve eval ppl: how well the model predicts a text with each cache.
#include <iostream>
#include <memory>

#include "eval.h"
#include "table.h"

namespace neve::app {
namespace {

Json ppl_row(const DamageRow& row) {
  Json json = eval_row(row);
  json["nll"] = row.nll;
  json["ppl"] = row.perplexity;
  json["bits_per_byte"] = row.bits_per_byte;
  return json;
}

std::vector<std::string> cells_of(const DamageRow& row, const std::string& name) {
  return {name,
          format_bytes(row.bytes),
          fixed(row.bits_per_value, 3),
          fixed(row.perplexity, 4),
          fixed(row.nll, 5),
          fixed(row.bits_per_byte, 5),
          std::to_string(row.tokens)};
}

int eval_ppl(const EvalFlags& flags) {
  const auto run = run_eval(flags);
  if (!run.ok()) return fail(run.status());
  const DamageReport& damage = run->damage;
  if (flags.json) {
    Json report = eval_report("eval ppl", flags, *run);
    report["reference"] = ppl_row(damage.reference);
    for (const DamageRow& row : damage.rows) report["rows"].push_back(ppl_row(row));
    print_json(report);
    return kDone;
  }
  std::cout << "Perplexity, " << eval_title(flags, *run) << "\n\n";
  Table table(
      {{"kv", Align::kLeft}, {"bytes"}, {"bits/value"}, {"perplexity"}, {"nats/token"}, {"bits/byte"}, {"tokens"}});
  for (const DamageRow& row : damage.rows) table.add(cells_of(row, row.kv));
  table.add_gap();
  table.add(cells_of(damage.reference, "16 bit"));
  table.print(std::cout);
  return kDone;
}

}  // namespace

void add_eval_ppl(CLI::App& group, Action& action) {
  CLI::App* command = group.add_subcommand("ppl", "perplexity and bits per byte of a text");
  auto flags = std::make_shared<EvalFlags>();
  add_eval_flags(command, *flags);
  command->callback([&action, flags] { action = [flags] { return eval_ppl(*flags); }; });
}

}  // namespace neve::app
