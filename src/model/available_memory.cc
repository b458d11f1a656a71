#include "model/available_memory.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>

namespace neve::model {
namespace {

constexpr std::int64_t kUnknown = std::numeric_limits<std::int64_t>::max();

// The number behind `name` in a file of lines "name number ..."; kUnknown if it is not there.
std::int64_t field(const std::string& path, const std::string& name) {
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    std::istringstream words(line);
    std::string word;
    std::int64_t value = 0;
    if (words >> word && word == name && words >> value) return value;
  }
  return kUnknown;
}

std::int64_t whole_file(const std::string& path) {
  std::ifstream file(path);
  std::int64_t value = 0;
  return file >> value ? value : kUnknown;  // "max" is not a number
}

std::int64_t cgroup_available() {
  std::ifstream self("/proc/self/cgroup");
  std::string line;
  while (std::getline(self, line)) {
    if (line.rfind("0::", 0) != 0) continue;
    std::int64_t least = kUnknown;
    // A group may take what its parents allow, too.
    for (std::string group = line.substr(3); !group.empty(); group.erase(group.rfind('/'))) {
      const std::string folder = "/sys/fs/cgroup" + (group == "/" ? std::string() : group);
      const std::int64_t limit = whole_file(folder + "/memory.max");
      const std::int64_t used = whole_file(folder + "/memory.current");
      const std::int64_t files = field(folder + "/memory.stat", "inactive_file");
      if (limit == kUnknown || used == kUnknown) continue;
      least = std::min(least, std::max<std::int64_t>(0, limit - used + (files == kUnknown ? 0 : files)));
    }
    return least;
  }
  return kUnknown;
}

}  // namespace

std::int64_t available_memory_bytes() {
  const std::int64_t kilobytes = field("/proc/meminfo", "MemAvailable:");
  const std::int64_t machine = kilobytes == kUnknown ? kUnknown : kilobytes * 1024;
  return std::min(machine, cgroup_available());
}

}  // namespace neve::model
