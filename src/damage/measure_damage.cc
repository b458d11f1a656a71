#include "damage/lane.h"
#include "damage/lockstep.h"
#include "neve/damage.h"

namespace neve {

Result<DamageReport> measure_damage(const Model& model, const EvalText& text, const DamageOptions& options) {
  const std::int64_t tokens = std::ssize(text.tokens);
  if (options.caches.empty()) return Status(Code::kInvalidArgument, "damage: no cache to measure");
  if (tokens < 2) {
    return Status(Code::kInvalidArgument, "damage: wanted a text of at least 2 tokens, got " + std::to_string(tokens));
  }
  if (options.position_step < 1) {
    return Status(Code::kInvalidArgument,
                  "damage: wanted a position step of at least 1, got " + std::to_string(options.position_step));
  }
  const int threads = options.threads > 0 ? options.threads : model.threads();
  const auto f16 = parse_kv_spec("f16");
  if (!f16.ok()) return f16.status();
  auto reference = damage::make_lane(model, *f16, options, tokens, threads);
  if (!reference.ok()) return reference.status();
  auto noise = damage::make_lane(model, *f16, options, tokens, threads);
  if (!noise.ok()) return noise.status();
  std::vector<damage::Lane> tested;
  for (const KvSpec& spec : options.caches) {
    auto lane = damage::make_lane(model, spec, options, tokens, threads);
    if (!lane.ok()) return lane.status();
    tested.push_back(std::move(*lane));
  }
  auto runner = model::Runner::create(model, threads);
  if (!runner.ok()) return runner.status();

  damage::Lockstep lockstep(model, runner->get(), threads, &*reference, &*noise, tested);
  DamageReport report;
  for (std::int64_t done = 0; done < tokens;) {
    if (options.cancelled && options.cancelled()) {
      return Status(Code::kCancelled,
                    "damage: stopped after " + std::to_string(done) + " of " + std::to_string(tokens) + " tokens");
    }
    const auto chunk = lockstep.advance(text.tokens);
    if (!chunk.ok()) return chunk.status();
    done += *chunk;
    report.batches_per_chunk = std::max(report.batches_per_chunk, lockstep.runs());
    if (options.progress) options.progress(static_cast<double>(done) / static_cast<double>(tokens));
  }

  damage::RowContext context = {model.info().layers, {0}, options.position_step};
  for (const std::int32_t token : text.tokens) {
    context.bytes_before.push_back(context.bytes_before.back() + std::ssize(model.token_text(token)));
  }
  for (const damage::Lane& lane : tested) report.rows.push_back(damage::make_row(lane, context));
  report.reference = damage::make_row(*reference, context);
  report.noise = damage::make_row(*noise, context);
  report.tokens = tokens;
  return report;
}

}  // namespace neve
