// A barrier of spinning threads: hundreds of nanoseconds instead of the microseconds of a sleeping one. Benchmarks meet
// at it between the parts of a layer, as ggml's own threads do between the nodes of a graph.
#pragma once

#include <atomic>
#include <thread>

namespace neve::eval {

class SpinBarrier {
 public:
  explicit SpinBarrier(int threads) : threads_(threads) {}

  // Returns when all threads have come. What a thread wrote before is seen by all after. May be used again at once.
  void arrive_and_wait() {
    const int round = round_.load(std::memory_order_relaxed);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == threads_) {
      arrived_.store(0, std::memory_order_relaxed);
      round_.store(round + 1, std::memory_order_release);
      return;
    }
    for (int spins = 0; round_.load(std::memory_order_acquire) == round; ++spins) {
      if (spins < kSpins) {
        pause();
      } else {
        std::this_thread::yield();  // more threads than cores: let the one we wait for run
      }
    }
  }

 private:
  static constexpr int kSpins = 1 << 12;
  static void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
  }

  const int threads_;
  std::atomic<int> arrived_{0};
  std::atomic<int> round_{0};
};

}  // namespace neve::eval
