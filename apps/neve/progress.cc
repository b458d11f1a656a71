#include "progress.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>

namespace neve::app {
namespace {

constexpr int kBarWidth = 32;
constexpr std::chrono::milliseconds kRedraw{100};

}  // namespace

struct Progress::Bar {
  std::string label;
  std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point drawn;

  void draw(double fraction) {
    const auto now = std::chrono::steady_clock::now();
    if (now - drawn < kRedraw) return;
    drawn = now;
    const int full = static_cast<int>(fraction * kBarWidth);
    const std::string bar =
        std::string(static_cast<std::size_t>(full), '#') + std::string(static_cast<std::size_t>(kBarWidth - full), '.');
    const double spent = std::chrono::duration<double>(now - start).count();
    std::fprintf(stderr, "\r\x1b[K%s [%s] %3.0f %%", label.c_str(), bar.c_str(), fraction * 100);
    if (fraction > 0.02) std::fprintf(stderr, "  %.0f s left", spent / fraction * (1 - fraction));
    std::fflush(stderr);
  }
};

Progress::Progress(std::string label) {
  if (isatty(STDERR_FILENO) == 0) return;
  bar_ = std::make_unique<Bar>();
  bar_->label = std::move(label);
}

Progress::~Progress() { finish(); }

void Progress::finish() {
  if (bar_ == nullptr) return;
  bar_.reset();
  std::fputs("\r\x1b[K", stderr);
  std::fflush(stderr);
}

void Progress::update(double fraction) {
  if (bar_ != nullptr) bar_->draw(std::clamp(fraction, 0.0, 1.0));
}

std::function<void(double)> Progress::callback() {
  return [this](double fraction) { update(fraction); };
}

}  // namespace neve::app
