#include <iostream>

#include "program.h"

namespace neve::app {

int fail(const Status& status) {
  std::cerr << "neve: " << status.message() << "\n";
  return status.code() == Code::kInvalidArgument ? kWrongUsage : kFailed;
}

}  // namespace neve::app
