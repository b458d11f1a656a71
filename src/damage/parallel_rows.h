// Splits rows over short-lived threads. Used between graph runs, when ggml's threads rest; work items are whole rows
// of a vocabulary (milliseconds a range), so starting threads costs nothing that shows.
#pragma once

#include <algorithm>
#include <cstdint>
#include <thread>
#include <vector>

namespace neve::damage {

// Calls body(row) once for each row in [0, rows), from at most `threads` threads, contiguous ranges each. Returns when
// all are done. `body` must not throw, and calls for different rows must not touch the same data.
template <typename Body>
void parallel_rows(int threads, std::int64_t rows, const Body& body) {
  const std::int64_t workers = std::clamp<std::int64_t>(threads, 1, std::max<std::int64_t>(rows, 1));
  auto range = [&](std::int64_t worker) {
    const std::int64_t end = rows * (worker + 1) / workers;
    for (std::int64_t row = rows * worker / workers; row < end; ++row) body(row);
  };
  std::vector<std::jthread> others;
  for (std::int64_t worker = 1; worker < workers; ++worker) others.emplace_back(range, worker);
  range(0);
}

}  // namespace neve::damage
