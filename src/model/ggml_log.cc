#include "model/ggml_log.h"

#include <algorithm>
#include <cstdio>
#include <mutex>
#include <string_view>
#include <vector>

#include "llama.h"

namespace neve::model {

// The state behind the callback. A line may come in several pieces: the first with its level, the rest with CONT.
struct LogSink {
  std::mutex mutex;
  Talk talk = Talk::kQuiet;
  std::vector<LogCapture*> captures;
  ggml_log_level level = GGML_LOG_LEVEL_NONE;

  void write(ggml_log_level piece, const char* text) {
    const std::lock_guard<std::mutex> lock(mutex);
    if (talk == Talk::kVerbose) std::fputs(text, stderr);
    const bool begins = piece != GGML_LOG_LEVEL_CONT;
    for (LogCapture* capture : captures) {
      if (begins) close(capture->error_), close(capture->warning_);
      if (begins ? piece == GGML_LOG_LEVEL_ERROR : level == GGML_LOG_LEVEL_ERROR) keep(capture->error_, text);
      if (begins ? piece == GGML_LOG_LEVEL_WARN : level == GGML_LOG_LEVEL_WARN) keep(capture->warning_, text);
    }
    if (begins) level = piece;
  }

  static void close(LogCapture::Line& line) {
    if (!line.text.empty()) line.open = false;
  }
  static void keep(LogCapture::Line& line, const char* text) {
    if (line.open) line.text += text;
  }
};

namespace {

LogSink& sink() {
  static LogSink* const instance = new LogSink;  // never destroyed: theirs may talk while the process ends
  return *instance;
}

void on_log(ggml_log_level level, const char* text, void*) { sink().write(level, text); }

// "llama_model_load: error loading model: x\n" -> "error loading model: x"
std::string tidy(std::string_view line) {
  while (!line.empty() && (line.back() == '\n' || line.back() == ' ')) line.remove_suffix(1);
  const std::size_t colon = line.find(": ");
  if (colon != std::string_view::npos && line.find(' ') > colon) line.remove_prefix(colon + 2);
  std::string out(line);
  std::replace(out.begin(), out.end(), '\n', ' ');
  return out;
}

}  // namespace

void install_log_sink(Talk talk) {
  {
    const std::lock_guard<std::mutex> lock(sink().mutex);
    sink().talk = talk;
  }
  llama_log_set(on_log, nullptr);  // sets ggml's too
}

LogCapture::LogCapture() {
  const std::lock_guard<std::mutex> lock(sink().mutex);
  sink().captures.push_back(this);
}

LogCapture::~LogCapture() {
  const std::lock_guard<std::mutex> lock(sink().mutex);
  std::erase(sink().captures, this);
}

std::string LogCapture::reason() const {
  const std::lock_guard<std::mutex> lock(sink().mutex);
  if (!error_.text.empty()) return tidy(error_.text);
  if (!warning_.text.empty()) return tidy(warning_.text);
  return "no reason given";
}

}  // namespace neve::model
