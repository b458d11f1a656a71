// Speed of the decode-attention kernels in cached values per second: 128 * head size per call, however many query heads.
//
// The page stays in the first-level cache, so this is the speed of the arithmetic.
// bench_simd --benchmark_filter='score/avx512/4bit/.*'
#include <benchmark/benchmark.h>

#include <memory>
#include <new>
#include <random>
#include <string>
#include <vector>

#include "base/float16.h"
#include "simd/isa.h"

namespace neve::simd {
namespace {

struct Shape {
  const AttendKernels* kernels;
  int bits;
  bool two;
  int heads, dim;
};

// Blocks of a cache begin at multiples of 64, and loads that cross cache lines cost twice.
template <typename T>
struct LineAllocator : std::allocator<T> {
  template <typename U>
  struct rebind {
    using other = LineAllocator<U>;
  };
  T* allocate(std::size_t n) { return static_cast<T*>(::operator new (n * sizeof(T), std::align_val_t{64})); }
  void deallocate(T* p, std::size_t) { ::operator delete (p, std::align_val_t{64}); }
};
template <typename T>
using Lines = std::vector<T, LineAllocator<T>>;

// Everything that a call may need, filled with plausible numbers.
struct Page {
  Lines<std::uint8_t> codes;
  Lines<std::uint16_t> scale, min, f16;
  Lines<std::int8_t> hi, lo;
  Lines<float> rows, factor, offset, out;
  explicit Page(const Shape& s) {
    std::mt19937 random(1);
    const auto heads = static_cast<std::size_t>(s.heads), wide = static_cast<std::size_t>(s.dim > 128 ? s.dim : 128);
    codes.resize(static_cast<std::size_t>(s.dim * 16 * s.bits));
    for (auto& x : codes) x = static_cast<std::uint8_t>(random());
    scale.assign(wide, f16_from_f32(0.01f));
    min.assign(wide, f16_from_f32(-1.f));
    f16.assign(static_cast<std::size_t>(128 * s.dim), f16_from_f32(0.5f));
    hi.resize(heads * wide);
    lo.resize(heads * wide);
    for (auto& x : hi) x = static_cast<std::int8_t>(random() % 250 - 125);
    for (auto& x : lo) x = static_cast<std::int8_t>(random() % 127 - 63);
    rows.resize(heads * wide);
    for (auto& x : rows) x = static_cast<float>(random() % 1000) * 0.001f - 0.5f;
    factor.assign(heads, 1e-6f);
    offset.assign(heads, 0.f);
    out.assign(heads * wide, 0.f);
  }
};

void count_values(benchmark::State& state, const Shape& s) {
  state.counters["values/s"] =
      benchmark::Counter(128.0 * s.dim, benchmark::Counter::kIsIterationInvariantRate, benchmark::Counter::kIs1000);
}

void score(benchmark::State& state, const Shape& s) {
  Page page(s);
  const ScoreArgs args = {page.codes.data(),
                          s.bits,
                          s.dim / 4,
                          page.hi.data(),
                          s.two ? page.lo.data() : nullptr,
                          s.dim,
                          s.heads,
                          page.factor.data(),
                          page.out.data(),
                          128,
                          page.codes.data()};
  for (auto _ : state) {
    s.kernels->score_codes(args);
    benchmark::ClobberMemory();
  }
  count_values(state, s);
}

void weigh(benchmark::State& state, const Shape& s) {
  Page page(s);
  const WeighArgs args = {page.codes.data(),
                          s.bits,
                          s.dim,
                          4 * s.dim,
                          page.hi.data(),
                          s.two ? page.lo.data() : nullptr,
                          s.heads,
                          page.factor.data(),
                          page.out.data(),
                          s.dim,
                          page.codes.data()};
  for (auto _ : state) {
    s.kernels->weigh_codes(args);
    benchmark::ClobberMemory();
  }
  count_values(state, s);
}

void fold_keys(benchmark::State& state, const Shape& s) {
  Page page(s);
  const FoldKeysArgs args = {page.rows.data(),
                             s.dim,
                             s.heads,
                             s.dim,
                             page.scale.data(),
                             page.min.data(),
                             17.f,
                             7.5f,
                             page.hi.data(),
                             s.two ? page.lo.data() : nullptr,
                             page.factor.data(),
                             page.offset.data()};
  for (auto _ : state) {
    s.kernels->fold_keys(args);
    benchmark::ClobberMemory();
  }
}

void fold_values(benchmark::State& state, const Shape& s) {
  Page page(s);
  const FoldValuesArgs args = {page.rows.data(),
                               128,
                               s.heads,
                               page.scale.data(),
                               page.min.data(),
                               17.f,
                               7.5f,
                               page.hi.data(),
                               s.two ? page.lo.data() : nullptr,
                               page.factor.data(),
                               page.offset.data()};
  for (auto _ : state) {
    s.kernels->fold_values(args);
    benchmark::ClobberMemory();
  }
}

void score_f16(benchmark::State& state, const Shape& s) {
  Page page(s);
  const ScoreF16Args args = {page.f16.data(), 128, s.dim, page.rows.data(), s.dim, s.heads, page.out.data(), 128};
  for (auto _ : state) {
    s.kernels->score_f16(args);
    benchmark::ClobberMemory();
  }
  count_values(state, s);
}

void weigh_f16(benchmark::State& state, const Shape& s) {
  Page page(s);
  const WeighF16Args args = {page.f16.data(), 128, s.dim, page.rows.data(), 128, s.heads, page.out.data(), s.dim};
  for (auto _ : state) {
    s.kernels->weigh_f16(args);
    benchmark::ClobberMemory();
  }
  count_values(state, s);
}

// exp_sum of `dim` numbers that are 0 already: they stay in range from call to call.
void exp_sum(benchmark::State& state, const Shape& s) {
  Lines<float> x(static_cast<std::size_t>(s.dim), 0.f);
  for (auto _ : state) benchmark::DoNotOptimize(s.kernels->exp_sum(x.data(), x.size(), 1.f));
}

void largest(benchmark::State& state, const Shape& s) {
  Lines<float> x(static_cast<std::size_t>(s.dim), 0.5f);
  for (auto _ : state) benchmark::DoNotOptimize(s.kernels->max(x.data(), x.size()));
}

void add(const std::string& name, void (*body)(benchmark::State&, const Shape&), const Shape& shape) {
  benchmark::RegisterBenchmark(name.c_str(), [body, shape](benchmark::State& state) { body(state, shape); });
}

bool register_all() {
  for (const IsaEntry& isa : isa_table()) {
    if (!isa.runs) continue;
    const AttendKernels* kernels = isa.kernels->attend;
    for (int dim : {64, 128}) {
      for (int heads : {1, 2, 3, 4, 8}) {
        const std::string shape = "/heads:" + std::to_string(heads) + "/dim:" + std::to_string(dim);
        for (bool two : {false, true}) {
          for (int bits : {8, 4, 2}) {
            const std::string coded =
                "/" + isa.name + "/" + std::to_string(bits) + "bit/" + (two ? "two" : "one") + shape;
            add("score" + coded, score, {kernels, bits, two, heads, dim});
            add("weigh" + coded, weigh, {kernels, bits, two, heads, dim});
          }
          const std::string halves = "/" + isa.name + (two ? "/two" : "/one") + shape;
          add("fold_keys" + halves, fold_keys, {kernels, 4, two, heads, dim});
          if (dim == 64) add("fold_values" + halves, fold_values, {kernels, 4, two, heads, dim});
        }
        add("score_f16/" + isa.name + shape, score_f16, {kernels, 8, false, heads, dim});
        add("weigh_f16/" + isa.name + shape, weigh_f16, {kernels, 8, false, heads, dim});
      }
    }
    add("exp_sum/" + isa.name + "/numbers:512", exp_sum, {kernels, 8, false, 1, 512});
    add("max/" + isa.name + "/numbers:512", largest, {kernels, 8, false, 1, 512});
  }
  return true;
}

[[maybe_unused]] const bool registered = register_all();

}  // namespace
}  // namespace neve::simd
