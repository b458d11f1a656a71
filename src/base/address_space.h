// A reserved range of addresses whose memory comes when it is touched and goes when it is released.
//
// Owns the range. Thread rules: const access from any thread; release() and gather() by one.
#pragma once

#include <cstddef>
#include <cstdint>

#include "neve/status.h"

namespace neve {

class AddressSpace {
 public:
  AddressSpace() = default;
  ~AddressSpace();
  AddressSpace(AddressSpace&& other) noexcept;
  AddressSpace& operator=(AddressSpace&& other) noexcept;

  // Errors: kExhausted, with the bytes wanted. Costs no memory.
  static Result<AddressSpace> reserve(std::size_t bytes);

  std::uint8_t* data() const { return data_; }
  std::size_t size() const { return size_; }

  // Gives the whole memory pages inside [offset, offset + bytes) back to the system; they read as zero afterwards.
  void release(std::size_t offset, std::size_t bytes);

  // Says that all of [0, dense) is in use. Where the system can (Linux 6.1), that becomes huge pages: those who read here
  // and there then wait less for address translation. At most kGatheredAtOnce of 2 MiB a call, each costs a copy of as
  // much; the rest follows with later calls.
  void gather(std::size_t dense);
  static constexpr std::size_t kHugePage = std::size_t{1} << 21, kGatheredAtOnce = 4;

 private:
  std::uint8_t* data_ = nullptr;
  std::size_t size_ = 0;
  void* mapping_ = nullptr;  // data_ is its first multiple of kHugePage
  std::size_t mapped_ = 0;
  std::size_t gathered_ = 0;  // in [0, gathered_) huge pages were asked for
};

}  // namespace neve
