// Repeated timings of one thing: a benchmark reports their median and their best.
#pragma once

#include <algorithm>
#include <vector>

namespace neve::eval {

class Samples {
 public:
  void add(double value) { values_.push_back(value); }
  bool empty() const { return values_.empty(); }

  // 0 for none. With an even number of samples: the mean of the middle two.
  double median() const {
    if (values_.empty()) return 0;
    std::vector<double> sorted = values_;
    std::sort(sorted.begin(), sorted.end());
    const std::size_t middle = sorted.size() / 2;
    return sorted.size() % 2 == 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
  }
  double largest() const { return values_.empty() ? 0 : *std::max_element(values_.begin(), values_.end()); }

 private:
  std::vector<double> values_;
};

}  // namespace neve::eval
