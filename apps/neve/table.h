// A table of text for people: columns as wide as their widest cell, two spaces between, numbers to the right.
#pragma once

#include <ostream>
#include <string>
#include <vector>

namespace neve::app {

enum class Align { kLeft, kRight };

class Table {
 public:
  struct Column {
    std::string name;
    Align align = Align::kRight;
  };
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  // Requires: one cell per column.
  void add(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  // An empty line between two blocks of rows.
  void add_gap() { rows_.emplace_back(); }
  void print(std::ostream& out) const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;  // an empty one is a gap
};

// Numbers as cells.
std::string fixed(double value, int decimals);  // 12.35
std::string scientific(double value);           // 1.23e-05; 0 as 0
std::string percent(double share);              // 0.9853 -> 98.53 %
std::string times(double ratio);                // 4.2 -> 4.20x; 0 (not measured) as -

}  // namespace neve::app
