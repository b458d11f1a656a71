// KL(reference || tested) and agreement of next-token distributions, row by row, from raw logits.
//
//   KL = sum_i p_i (log p_i - log q_i) = (sum_i p_i a_i - lse(a)) - (sum_i p_i b_i - lse(b))
// with logits a (reference) and b (tested), p = softmax(a), lse(x) = log sum exp x. The reference's part is computed
// once per row and serves every tested cache; a tested row costs one exp per word.
//
// Exactness: sums are double; p is kept as f32 and divided by its own f32-rounded sum, so a constant added to all
// logits cancels. The error is below 1e-12 nats where KL is small (against a long double reference in the test).
// Threads: `set` and `compare` use up to `threads` threads inside; one call at a time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace neve::damage {

struct RowDamage {
  double kl = 0;          // nats, >= 0 up to rounding; NaN when a logit is NaN
  double nll = 0;         // -log q of the token that came next, nats; 0 where that is not known
  bool same_top = false;  // the likeliest token is the reference's (the first of equals)
};

class ReferenceRows {
 public:
  ReferenceRows(std::int64_t vocabulary, int threads) : vocabulary_(vocabulary), threads_(threads) {}

  // logits: [rows][vocabulary]; they need not outlive the call. Memory kept: one f32 per logit.
  void set(std::span<const float> logits);
  std::int64_t rows() const { return static_cast<std::int64_t>(heads_.size()); }

  // Compares logits [out.size()][vocabulary] with the rows first_row, first_row + 1, ... of the reference.
  // next: [out.size()] the token that came next, -1 where that is not known.
  // Requires: first_row + out.size() <= rows().
  void compare(std::int64_t first_row, std::span<const float> logits, std::span<const std::int32_t> next,
               std::span<RowDamage> out) const;

 private:
  struct Head {
    double negative_entropy = 0;  // sum p log p
    double weight_sum = 0;        // of the row's weights, after their rounding to f32
    std::int64_t top = 0;
  };
  std::int64_t vocabulary_;
  int threads_;
  std::vector<float> weights_;  // [rows][vocabulary]: exp(a - max a)
  std::vector<Head> heads_;     // [rows]
};

}  // namespace neve::damage
