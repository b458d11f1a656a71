// Do steps stall when pages change state? Each step of a run against its neighbours.
#pragma once

#include <span>

#include "neve/generate.h"

namespace neve {

// Ratio of a step: its time over the median of the 129 steps around it (64 on each side; fewer at the ends).
struct StepRatios {
  double closing_median = 0;  // of the steps at whose end pages change state; 0 = there was none
  double median = 0;          // of all steps
  double p999 = 0;            // of all steps
  double largest = 0;
};

// All 0 for fewer than 2 steps. Cost: 129 values are sorted in part for every step.
StepRatios step_ratios(std::span<const GenerateReport::Step> steps);

}  // namespace neve
