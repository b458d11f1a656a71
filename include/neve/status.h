// Status and Result<T>: how every neve function reports what went wrong.
//
// A message says what, where (field, byte offset, layer, head, token), what was wanted and what was got.
// The library never aborts, prints or throws on data; it returns one of these. Both are must-use.
// Neither converts from bool. Thread rules: values, as safe as an int and a string.
#pragma once

#include <optional>
#include <string>
#include <type_traits>
#include <utility>

namespace neve {

enum class Code {
  kOk,
  kInvalidArgument,  // the caller asked for something that makes no sense
  kUnsupported,      // makes sense, but neve does not do it
  kBudget,           // does not fit into the byte budget
  kNotFound,         // a file, a name or a sequence that is not there
  kDamaged,          // data that is not what its format promises
  kNotFinite,        // NaN or infinity where a number was needed
  kExhausted,        // the machine has no more of it (memory, address space)
  kCancelled,        // the user asked to stop
  kInternal,         // neve's own fault
};

// The name of a code, as printed in messages: "invalid argument", "budget", ...
const char* code_name(Code code);

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == Code::kOk; }
  Code code() const { return code_; }
  const std::string& message() const { return message_; }

 private:
  Code code_ = Code::kOk;
  std::string message_;
};

inline Status ok_status() { return Status(); }

// A value or the status that says why there is none. T may be move-only.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}
  Result(Status status) : status_(std::move(status)) {}
  template <typename U>
  requires(std::is_same_v<std::remove_cvref_t<U>, bool> && !std::is_same_v<T, bool>) Result(U&&)
  = delete;

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }
  T& value() & { return *value_; }
  const T& value() const& { return *value_; }
  T&& value() && { return std::move(*value_); }
  T& operator*() & { return *value_; }
  const T& operator*() const& { return *value_; }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }

 private:
  std::optional<T> value_;
  Status status_;
};

}  // namespace neve

// Returns the status of `expr` from the enclosing function unless it is ok.
#define NEVE_RETURN_IF_ERROR(expr)               \
  do {                                           \
    ::neve::Status neve_status_ = (expr);        \
    if (!neve_status_.ok()) return neve_status_; \
  } while (false)
