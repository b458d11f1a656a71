#include "neve/status.h"

namespace neve {

const char* code_name(Code code) {
  switch (code) {
    case Code::kOk:
      return "ok";
    case Code::kInvalidArgument:
      return "invalid argument";
    case Code::kUnsupported:
      return "unsupported";
    case Code::kBudget:
      return "budget";
    case Code::kNotFound:
      return "not found";
    case Code::kDamaged:
      return "damaged";
    case Code::kNotFinite:
      return "not finite";
    case Code::kExhausted:
      return "exhausted";
    case Code::kCancelled:
      return "cancelled";
    case Code::kInternal:
      return "internal";
  }
  return "internal";
}

}  // namespace neve
