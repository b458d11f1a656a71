#include "damage/summary.h"

#include <algorithm>
#include <numeric>

namespace neve::damage {

double mean(std::span<const double> values) {
  if (values.empty()) return 0;
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double quantile(std::span<const double> values, double q) {
  if (values.empty()) return 0;
  std::vector<double> sorted(values.begin(), values.end());
  const double place = std::clamp(q, 0.0, 1.0) * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::ptrdiff_t>(place);
  std::nth_element(sorted.begin(), sorted.begin() + below, sorted.end());
  const double low = sorted[static_cast<std::size_t>(below)];
  if (below + 1 == std::ssize(sorted)) return low;
  const double high = *std::min_element(sorted.begin() + below + 1, sorted.end());
  return low + (high - low) * (place - static_cast<double>(below));
}

std::vector<double> means_of_runs(std::span<const double> values, std::int64_t step) {
  const auto run = static_cast<std::size_t>(step);
  std::vector<double> means;
  for (std::size_t first = 0; first < values.size(); first += run) {
    means.push_back(mean(values.subspan(first, std::min(run, values.size() - first))));
  }
  return means;
}

}  // namespace neve::damage
