// How much memory a program may still take: the machine's, and that of the control group it runs in.
#pragma once

#include <cstdint>

namespace neve::model {

// MemAvailable of /proc/meminfo, or less where a cgroup (version 2) allows less; pages of files that can be dropped
// count as available. Returns: bytes; INT64_MAX where the system does not say.
std::int64_t available_memory_bytes();

}  // namespace neve::model
