// A progress bar on stderr, for long work in front of a terminal. On a pipe it is silent.
#pragma once

#include <functional>
#include <memory>
#include <string>

namespace neve::app {

class Progress {
 public:
  explicit Progress(std::string label);
  ~Progress();  // finishes
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // fraction: 0..1. Redraws at most ten times a second.
  void update(double fraction);
  // Takes the bar off the screen, for good.
  void finish();
  // For the options of the library: calls update. Must not outlive this.
  std::function<void(double)> callback();

 private:
  struct Bar;
  std::unique_ptr<Bar> bar_;  // null on a pipe
};

}  // namespace neve::app
