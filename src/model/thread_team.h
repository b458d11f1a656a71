// A team of ggml's worker threads, kept across steps: they wait for the next graph spinning, so that a step of a small
// model does not begin with waking them up.
//
// Teams take turns: when one begins to work, the team that worked before it is put to sleep. Otherwise the threads of
// a reference that is run beside neve would spin on the cores that neve is timed on, and the other way round.
// Threads: a team serves one graph at a time; different teams may work at the same time from different threads.
#pragma once

#include <memory>

#include "ggml-cpu.h"

namespace neve::model {

class ThreadTeam {
 public:
  // Null if the threads cannot be had. Requires: 1 <= threads <= GGML_MAX_N_THREADS.
  static std::unique_ptr<ThreadTeam> create(int threads);
  ~ThreadTeam();
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  // Puts the team that worked last to sleep, for work on threads that are not ggml's.
  static void rest();

  ggml_threadpool* pool() const { return pool_; }
  int threads() const { return threads_; }

  // Work of the team happens while one of these lives.
  class Turn {
   public:
    explicit Turn(ThreadTeam* team);
    ~Turn();
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    ThreadTeam* const team_;
  };

 private:
  ThreadTeam(ggml_threadpool* pool, int threads) : pool_(pool), threads_(threads) {}

  ggml_threadpool* const pool_;
  const int threads_;
  bool working_ = false;
};

}  // namespace neve::model
