#include "model/thread_team.h"

#include <mutex>

namespace neve::model {
namespace {

// ggml's polling level of 50 spins for some tens of milliseconds before a thread sleeps: longer than sampling and
// printing take between two steps.
constexpr std::uint32_t kPoll = 50;

std::mutex g_mutex;
ThreadTeam* g_last = nullptr;  // the team whose threads may be spinning

}  // namespace

std::unique_ptr<ThreadTeam> ThreadTeam::create(int threads) {
  if (threads < 1 || threads > GGML_MAX_N_THREADS) return nullptr;
  ggml_threadpool_params params = ggml_threadpool_params_default(threads);
  params.poll = kPoll;
  ggml_threadpool* const pool = ggml_threadpool_new(&params);
  if (pool == nullptr) return nullptr;
  return std::unique_ptr<ThreadTeam>(new ThreadTeam(pool, threads));
}

ThreadTeam::~ThreadTeam() {
  {
    const std::lock_guard<std::mutex> lock(g_mutex);
    if (g_last == this) g_last = nullptr;
  }
  ggml_threadpool_free(pool_);
}

void ThreadTeam::rest() {
  const std::lock_guard<std::mutex> lock(g_mutex);
  if (g_last != nullptr && !g_last->working_) ggml_threadpool_pause(g_last->pool_);
}

ThreadTeam::Turn::Turn(ThreadTeam* team) : team_(team) {
  const std::lock_guard<std::mutex> lock(g_mutex);
  // A team at work must not be paused: its threads would sleep before they have taken up the graph.
  if (g_last != nullptr && g_last != team && !g_last->working_) ggml_threadpool_pause(g_last->pool_);
  g_last = team;
  team->working_ = true;  // the next graph wakes a paused team
}

ThreadTeam::Turn::~Turn() {
  const std::lock_guard<std::mutex> lock(g_mutex);
  team_->working_ = false;
}

}  // namespace neve::model
