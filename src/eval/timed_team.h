// Runs the same work on a team of threads and times it from the moment that all of them stand ready.
#pragma once

#include <chrono>
#include <thread>
#include <vector>

#include "eval/spin_barrier.h"

namespace neve::eval {

// body(worker, barrier) runs once for each worker 0..threads-1, worker 0 on the calling thread; `barrier` is theirs to
// use. Returns: seconds from the common start to the end of the last. Starting the threads is not counted.
template <typename Body>
double timed_team(int threads, const Body& body) {
  SpinBarrier barrier(threads);
  auto work = [&](int worker) {
    barrier.arrive_and_wait();
    body(worker, barrier);
    barrier.arrive_and_wait();
  };
  std::vector<std::jthread> others;
  for (int worker = 1; worker < threads; ++worker) others.emplace_back(work, worker);
  barrier.arrive_and_wait();
  const auto start = std::chrono::steady_clock::now();
  body(0, barrier);
  barrier.arrive_and_wait();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace neve::eval
