#include "damage/divergence.h"

#include <algorithm>
#include <cmath>

#include "damage/parallel_rows.h"

namespace neve::damage {
namespace {

// The first largest of n logits. Two passes: a plain maximum vectorises, a search for its place seldom goes far.
const float* first_largest(const float* x, std::int64_t n) {
  constexpr std::int64_t kLanes = 16;
  float lanes[kLanes];
  std::fill(lanes, lanes + kLanes, x[0]);
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (std::int64_t lane = 0; lane < kLanes; ++lane) lanes[lane] = std::max(lanes[lane], x[i + lane]);
  }
  for (; i < n; ++i) lanes[0] = std::max(lanes[0], x[i]);
  const float largest = *std::max_element(lanes, lanes + kLanes);
  const float* place = std::find(x, x + n, largest);
  return place != x + n ? place : x;  // not found: a NaN came first
}

}  // namespace

void ReferenceRows::set(std::span<const float> logits) {
  const std::int64_t rows = static_cast<std::int64_t>(logits.size()) / vocabulary_;
  weights_.resize(logits.size());
  heads_.resize(static_cast<std::size_t>(rows));
  parallel_rows(threads_, rows, [&](std::int64_t row) {
    const float* a = logits.data() + row * vocabulary_;
    float* weight = weights_.data() + row * vocabulary_;
    const float* top = first_largest(a, vocabulary_);
    double exact_sum = 0, sum = 0, weighted = 0;
    for (std::int64_t i = 0; i < vocabulary_; ++i) {
      const double e = std::exp(static_cast<double>(a[i]) - static_cast<double>(*top));
      weight[i] = static_cast<float>(e);
      exact_sum += e;
      sum += static_cast<double>(weight[i]);
      weighted += static_cast<double>(weight[i]) * static_cast<double>(a[i]);
    }
    Head& head = heads_[static_cast<std::size_t>(row)];
    head.negative_entropy = weighted / sum - (static_cast<double>(*top) + std::log(exact_sum));
    head.weight_sum = sum;
    head.top = top - a;
  });
}

void ReferenceRows::compare(std::int64_t first_row, std::span<const float> logits, std::span<const std::int32_t> next,
                            std::span<RowDamage> out) const {
  parallel_rows(threads_, static_cast<std::int64_t>(out.size()), [&](std::int64_t row) {
    const float* b = logits.data() + row * vocabulary_;
    const float* weight = weights_.data() + (first_row + row) * vocabulary_;
    const Head& head = heads_[static_cast<std::size_t>(first_row + row)];
    const float* top = first_largest(b, vocabulary_);
    double sum = 0, weighted = 0;
    for (std::int64_t i = 0; i < vocabulary_; ++i) {
      sum += std::exp(static_cast<double>(b[i]) - static_cast<double>(*top));
      weighted += static_cast<double>(weight[i]) * static_cast<double>(b[i]);
    }
    const double lse = static_cast<double>(*top) + std::log(sum);
    RowDamage& result = out[static_cast<std::size_t>(row)];
    result.kl = head.negative_entropy - (weighted / head.weight_sum - lse);
    result.same_top = top - b == head.top;
    const std::int32_t token = next[static_cast<std::size_t>(row)];
    result.nll = token >= 0 ? lse - static_cast<double>(b[token]) : 0;
  });
}

}  // namespace neve::damage
