#include "table.h"

#include <algorithm>
#include <cstdio>

namespace neve::app {
namespace {

std::string printed(const char* format, int decimals, double value) {
  char text[64];
  std::snprintf(text, sizeof text, format, decimals, value);
  return text;
}

}  // namespace

void Table::print(std::ostream& out) const {
  std::vector<std::size_t> width;
  for (const Column& column : columns_) width.push_back(column.name.size());
  for (const auto& row : rows_) {
    for (std::size_t i = 0; i < row.size(); ++i) width[i] = std::max(width[i], row[i].size());
  }
  auto line = [&](auto cell_of) {
    std::string text;
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      const std::string cell = cell_of(i);
      const std::string space(width[i] - cell.size(), ' ');
      if (i > 0) text += "  ";
      text += columns_[i].align == Align::kLeft ? cell + space : space + cell;
    }
    text.erase(text.find_last_not_of(' ') + 1);
    out << text << "\n";
  };
  line([&](std::size_t i) { return columns_[i].name; });
  for (const auto& row : rows_) {
    if (row.empty()) {
      out << "\n";
    } else {
      line([&](std::size_t i) { return row[i]; });
    }
  }
}

std::string fixed(double value, int decimals) { return printed("%.*f", decimals, value); }
std::string scientific(double value) { return value == 0 ? "0" : printed("%.*e", 2, value); }
std::string percent(double share) { return printed("%.*f %%", 2, share * 100); }
std::string times(double ratio) { return ratio == 0 ? "-" : printed("%.*fx", 2, ratio); }

}  // namespace neve::app
