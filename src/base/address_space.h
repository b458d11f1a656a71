// A reserved range of addresses whose memory comes when it is touched and goes when it is released.
//
// Owns the range. Thread rules: const access from any thread; release() by one.
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
  void release(std::size_t offset, std::size_t bytes) const;

 private:
  std::uint8_t* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace neve
