// From one value per position to what a table shows: mean, quantiles, means by position.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace neve::damage {

// 0 for no values.
double mean(std::span<const double> values);

// The value below which a share `q` (0..1) of the values lies, linear between neighbours (as numpy's default).
// 0 for no values. Cost: one partial sort of a copy.
double quantile(std::span<const double> values, double q);

// Means of `step` values each, the last of what remains. Requires: step > 0.
std::vector<double> means_of_runs(std::span<const double> values, std::int64_t step);

}  // namespace neve::damage
