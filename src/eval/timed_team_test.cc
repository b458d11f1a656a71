#include "eval/timed_team.h"

#include <gtest/gtest.h>

#include <atomic>

namespace neve::eval {
namespace {

TEST(SpinBarrier, NobodyIsAheadOfARound) {
  constexpr int kThreads = 3, kRounds = 200;
  std::atomic<int> entered{0};
  std::atomic<bool> ahead{false};
  timed_team(kThreads, [&](int, SpinBarrier& barrier) {
    for (int round = 1; round <= kRounds; ++round) {
      ++entered;
      barrier.arrive_and_wait();
      if (entered.load() != round * kThreads) ahead = true;
      barrier.arrive_and_wait();
    }
  });
  EXPECT_FALSE(ahead.load());
  EXPECT_EQ(entered.load(), kRounds * kThreads);
}

TEST(TimedTeam, RunsEachWorkerOnceAndMeasuresTheSlowest) {
  std::vector<int> calls(4, 0);
  const double seconds = timed_team(4, [&](int worker, SpinBarrier&) {
    ++calls[static_cast<std::size_t>(worker)];
    if (worker == 3) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  });
  EXPECT_EQ(calls, std::vector<int>(4, 1));
  EXPECT_GE(seconds, 0.02);
  EXPECT_LT(seconds, 5);
}

TEST(TimedTeam, OneThreadNeedsNoOther) {
  int calls = 0;
  timed_team(1, [&](int, SpinBarrier& barrier) {
    barrier.arrive_and_wait();
    ++calls;
  });
  EXPECT_EQ(calls, 1);
}

}  // namespace
}  // namespace neve::eval
