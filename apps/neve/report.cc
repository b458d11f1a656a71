#include "report.h"

#include <iostream>

namespace neve::app {

Json make_report(const std::string& command, const MachineInfo& machine, int threads, Json options) {
  Json report;
  report["neve"] = machine.version;
  report["command"] = command;
  report["machine"] = {{"cpu", machine.cpu}, {"isa", machine.isa}, {"threads", threads}};
  report["options"] = std::move(options);
  report["rows"] = Json::array();
  return report;
}

void print_json(const Json& report) {
  std::cout << report.dump(1, ' ', false, Json::error_handler_t::replace) << std::endl;
}

}  // namespace neve::app
