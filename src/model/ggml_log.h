// Where ggml's and llama.cpp's talk goes: nowhere, unless the user asked for it; what they complain of is kept, so
// that a failed call can be reported with its reason.
//
// The sink is one per process, as theirs is. Threads: everything here may be used from any thread.
#pragma once

#include <string>

namespace neve::model {

enum class Talk { kQuiet, kVerbose };

// Puts our sink in place of theirs. kVerbose copies every line to stderr.
void install_log_sink(Talk talk);

// Keeps the first error and the first warning that any thread logs while it lives.
class LogCapture {
 public:
  LogCapture();
  ~LogCapture();
  LogCapture(const LogCapture&) = delete;
  LogCapture& operator=(const LogCapture&) = delete;

  // The error, or else the warning, as one line without its function name; "no reason given" if there was neither.
  std::string reason() const;

  struct Line {
    std::string text;
    bool open = true;  // still being written, in pieces
  };

 private:
  friend struct LogSink;
  Line error_, warning_;
};

}  // namespace neve::model
