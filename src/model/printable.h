// Names that came from a file, fit for a message of one line: quoted, shortened, without control characters.
#pragma once

#include <string>
#include <string_view>

namespace neve::model {

inline std::string quoted(std::string_view name) {
  constexpr std::size_t kMost = 80;
  std::string out = "'";
  for (const char c : name.substr(0, kMost)) out += c >= ' ' && c <= '~' ? c : '?';
  if (name.size() > kMost) out += "...";
  return out + "'";
}

}  // namespace neve::model
