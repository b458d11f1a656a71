#include "neve/step_times.h"

#include <algorithm>
#include <vector>

#include "damage/summary.h"

namespace neve {
namespace {

constexpr std::ptrdiff_t kSide = 64;

}  // namespace

StepRatios step_ratios(std::span<const GenerateReport::Step> steps) {
  const std::ptrdiff_t count = std::ssize(steps);
  if (count < 2) return {};
  std::vector<double> all, closing, around;
  for (std::ptrdiff_t i = 0; i < count; ++i) {
    around.clear();
    for (std::ptrdiff_t j = std::max<std::ptrdiff_t>(0, i - kSide); j < std::min(count, i + kSide + 1); ++j) {
      around.push_back(static_cast<double>(steps[static_cast<std::size_t>(j)].ms));
    }
    const GenerateReport::Step& step = steps[static_cast<std::size_t>(i)];
    const double median = damage::quantile(around, 0.5);
    const double ratio = median > 0 ? static_cast<double>(step.ms) / median : 0;
    all.push_back(ratio);
    if (step.closes_page) closing.push_back(ratio);
  }
  return {damage::quantile(closing, 0.5), damage::quantile(all, 0.5), damage::quantile(all, 0.999),
          *std::max_element(all.begin(), all.end())};
}

}  // namespace neve
