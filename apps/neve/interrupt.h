// Ctrl-C asks long work to end; the work then ends by itself and its account is printed. A second Ctrl-C kills.
#pragma once

#include <functional>

namespace neve::app {

// From now on SIGINT and SIGTERM only raise a flag, once.
void catch_interrupt();
bool interrupted();
void clear_interrupt();

// For the `cancelled` of the library's options.
inline std::function<bool()> cancelled_by_interrupt() { return interrupted; }

}  // namespace neve::app
