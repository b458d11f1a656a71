#include "interrupt.h"

#include <csignal>

namespace neve::app {
namespace {

volatile std::sig_atomic_t raised = 0;

void raise_flag(int) { raised = 1; }

}  // namespace

void catch_interrupt() {
  struct sigaction action = {};
  action.sa_handler = raise_flag;
  sigemptyset(&action.sa_mask);
  action.sa_flags = static_cast<int>(SA_RESETHAND);  // the second one kills
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

bool interrupted() { return raised != 0; }

void clear_interrupt() {
  raised = 0;
  catch_interrupt();
}

}  // namespace neve::app
