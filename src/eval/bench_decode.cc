// Decoding and prefill of a whole model at several depths, neve against llama.cpp.
#include <algorithm>
#include <chrono>

#include "eval/decode_engine.h"
#include "eval/fit_sequences.h"
#include "eval/samples.h"
#include "neve/bench.h"

namespace neve {
namespace {

constexpr std::int64_t kWarmUpTokens = 1;

Status check(const DecodeBenchOptions& options) {
  auto wrong = [](const std::string& what, std::int64_t got) {
    return Status(Code::kInvalidArgument, "bench decode: wanted " + what + ", got " + std::to_string(got));
  };
  if (options.caches.empty()) return Status(Code::kInvalidArgument, "bench decode: no cache to measure");
  if (options.depths.empty()) return Status(Code::kInvalidArgument, "bench decode: no depth to measure at");
  if (options.decode_tokens < 1) return wrong("at least 1 token to decode", options.decode_tokens);
  if (options.prefill_tokens < 0) return wrong("a prefill of 0 or more tokens", options.prefill_tokens);
  if (options.repeats < 1) return wrong("at least 1 repeat", options.repeats);
  if (options.fit_f16_sequences == 0 && options.sequences < 1) return wrong("at least 1 sequence", options.sequences);
  for (const std::int64_t depth : options.depths) {
    if (depth < 0) return wrong("depths of 0 or more tokens", depth);
    if (options.fit_f16_sequences > 0 && depth <= options.decode_tokens + kWarmUpTokens) {
      return wrong("a depth above the tokens to decode", depth);
    }
  }
  return ok_status();
}

// Which words are fed does not matter for time; these differ from each other and exist in every vocabulary.
std::vector<std::int32_t> some_tokens(const Model& model, std::int64_t count) {
  std::vector<std::int32_t> tokens;
  for (std::int64_t i = 0; i < count; ++i) {
    tokens.push_back(static_cast<std::int32_t>((1 + i * 7919) % model.info().vocabulary));
  }
  return tokens;
}

struct Contestant {
  eval::DecodeSetup setup;
  DecodeBenchRow row;
  eval::Samples decode, prefill;  // tokens per second
};

class DecodeBench {
 public:
  DecodeBench(const Model& model, const DecodeBenchOptions& options, model::Runner* runner, int threads)
      : model_(model), options_(options), runner_(runner), threads_(threads) {}

  Result<std::vector<DecodeBenchRow>> run() {
    std::vector<DecodeBenchRow> rows;
    double depths_done = 0;
    for (const std::int64_t depth : options_.depths) {
      auto contestants = enter(depth);
      if (!contestants.ok()) return contestants.status();
      const double samples = static_cast<double>(contestants->size()) * options_.repeats;
      double done = 0;
      for (int repeat = 0; repeat < options_.repeats; ++repeat) {
        for (Contestant& contestant : *contestants) {
          const Status status = sample(&contestant);
          if (!status.ok()) return Status(status.code(), contestant.setup.spec.text + ": " + status.message());
          ++done;
          if (options_.control.progress) {
            options_.control.progress((depths_done + done / samples) / static_cast<double>(options_.depths.size()));
          }
        }
      }
      ++depths_done;
      finish(*contestants, &rows);
    }
    return rows;
  }

 private:
  // Of two neighbours that are one row but for flash attention, one stays, with the faster of both in each figure.
  static void keep_faster(std::vector<Contestant>* contestants) {
    for (std::size_t i = 1; i < contestants->size(); ++i) {
      if ((*contestants)[i].setup.flash == model::FlashAttention::kOn) continue;
      DecodeBenchRow& row = (*contestants)[i - 1].row;
      const DecodeBenchRow& other = (*contestants)[i].row;
      row.decode_tokens_per_s = std::max(row.decode_tokens_per_s, other.decode_tokens_per_s);
      row.best_decode_tokens_per_s = std::max(row.best_decode_tokens_per_s, other.best_decode_tokens_per_s);
      row.prefill_tokens_per_s = std::max(row.prefill_tokens_per_s, other.prefill_tokens_per_s);
      row.best_prefill_tokens_per_s = std::max(row.best_prefill_tokens_per_s, other.best_prefill_tokens_per_s);
    }
    std::erase_if(*contestants, [](const Contestant& c) { return c.setup.flash == model::FlashAttention::kOff; });
  }

  static void finish(std::vector<Contestant>& contestants, std::vector<DecodeBenchRow>* rows) {
    double decode_f16 = 0, prefill_f16 = 0;
    for (Contestant& contestant : contestants) {
      DecodeBenchRow& row = contestant.row;
      row.decode_tokens_per_s = contestant.decode.median();
      row.best_decode_tokens_per_s = contestant.decode.largest();
      row.prefill_tokens_per_s = contestant.prefill.median();
      row.best_prefill_tokens_per_s = contestant.prefill.largest();
    }
    keep_faster(&contestants);
    for (Contestant& contestant : contestants) {
      DecodeBenchRow& row = contestant.row;
      if (row.engine == "llama.cpp" && row.kv == "f16") {
        decode_f16 = row.decode_tokens_per_s;
        prefill_f16 = row.prefill_tokens_per_s;
      }
    }
    for (Contestant& contestant : contestants) {
      DecodeBenchRow& row = contestant.row;
      if (decode_f16 > 0) row.decode_over_f16 = row.decode_tokens_per_s / decode_f16;
      if (prefill_f16 > 0) row.prefill_over_f16 = row.prefill_tokens_per_s / prefill_f16;
      rows->push_back(row);
    }
  }

  // Who takes part at this depth, with how many sequences. A cache of which not one sequence fits stays out.
  Result<std::vector<Contestant>> enter(std::int64_t depth) {
    std::uint64_t memory = 0;
    if (options_.fit_f16_sequences > 0) {
      const auto bytes = eval::f16_bytes(model_, depth, options_.fit_f16_sequences, threads_);
      if (!bytes.ok()) return bytes.status();
      memory = *bytes;
    }
    std::vector<Contestant> contestants;
    for (const KvSpec& spec : options_.caches) {
      const bool takes_budget = spec.mode == KvMode::kAuto && spec.width <= 0;
      Contestant contestant;
      eval::DecodeSetup& setup = contestant.setup;
      setup.spec = spec;
      setup.demote = options_.demote;
      setup.budget_bytes = takes_budget ? options_.budget_bytes : 0;
      setup.depth = depth;
      setup.room = kWarmUpTokens + options_.decode_tokens;
      setup.sequences = options_.sequences;
      setup.threads = threads_;
      setup.seed = options_.seed;
      if (memory > 0) {
        const auto fit = eval::fit_sequences(model_, {spec, options_.demote, depth, memory, threads_});
        if (!fit.ok()) return fit.status();
        if (*fit == 0) continue;
        setup.sequences = *fit;
        setup.depth = depth - setup.room;
        if (takes_budget) setup.budget_bytes = memory;
      }
      contestant.row.engine = spec.mode == KvMode::kPeer ? "llama.cpp" : "neve";
      contestant.row.kv = spec.mode == KvMode::kPeer ? spec.peer_type : spec.text;
      contestant.row.depth = depth;
      contestant.row.sequences = setup.sequences;
      // llama.cpp's 16-bit cache works with flash attention and without; which is faster depends on machine and depth.
      if (spec.mode == KvMode::kPeer && spec.peer_type == "f16") {
        contestants.push_back(contestant);
        contestant.setup.flash = model::FlashAttention::kOff;
      }
      contestants.push_back(std::move(contestant));
    }
    return contestants;
  }

  Result<std::unique_ptr<eval::DecodeEngine>> make(const eval::DecodeSetup& setup) {
    if (setup.spec.mode == KvMode::kPeer) return eval::make_llama_decode(model_, setup);
    return eval::make_neve_decode(model_, runner_, setup);
  }

  // Every sample starts from a fresh cache, so that all samples see the same state and one cache is in memory at a time.
  Status sample(Contestant* contestant) {
    NEVE_RETURN_IF_ERROR(sample_decode(contestant));
    return options_.prefill_tokens > 0 ? sample_prefill(contestant) : ok_status();
  }

  Status sample_decode(Contestant* contestant) {
    auto engine = make(contestant->setup);
    if (!engine.ok()) return engine.status();
    const std::vector<std::int32_t> tokens = some_tokens(model_, contestant->setup.sequences);
    for (std::int64_t i = 0; i < kWarmUpTokens; ++i) NEVE_RETURN_IF_ERROR((*engine)->decode(tokens));
    const auto start = std::chrono::steady_clock::now();
    for (std::int64_t i = 0; i < options_.decode_tokens; ++i) {
      if (options_.control.cancelled && options_.control.cancelled()) return Status(Code::kCancelled, "stopped");
      NEVE_RETURN_IF_ERROR((*engine)->decode(tokens));
    }
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
    contestant->decode.add(static_cast<double>(options_.decode_tokens) * contestant->setup.sequences / spent.count());
    contestant->row.kv_bytes = (*engine)->kv_bytes();
    return ok_status();
  }

  Status sample_prefill(Contestant* contestant) {
    if (options_.control.cancelled && options_.control.cancelled()) return Status(Code::kCancelled, "stopped");
    eval::DecodeSetup setup = contestant->setup;
    setup.sequences = 1;
    setup.room = kWarmUpTokens + options_.prefill_tokens;
    auto engine = make(setup);
    if (!engine.ok()) return engine.status();
    NEVE_RETURN_IF_ERROR((*engine)->decode(some_tokens(model_, kWarmUpTokens)));  // one sequence, one token
    const std::vector<std::int32_t> tokens = some_tokens(model_, options_.prefill_tokens);
    const auto start = std::chrono::steady_clock::now();
    NEVE_RETURN_IF_ERROR((*engine)->prefill(tokens));
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
    contestant->prefill.add(static_cast<double>(options_.prefill_tokens) / spent.count());
    return ok_status();
  }

  const Model& model_;
  const DecodeBenchOptions& options_;
  model::Runner* runner_;
  int threads_;
};

}  // namespace

Result<std::vector<DecodeBenchRow>> bench_decode(const Model& model, const DecodeBenchOptions& options) {
  NEVE_RETURN_IF_ERROR(check(options));
  const int threads = options.threads > 0 ? options.threads : model.threads();
  auto runner = model::Runner::create(model, threads);
  if (!runner.ok()) return runner.status();
  return DecodeBench(model, options, runner->get(), threads).run();
}

}  // namespace neve
