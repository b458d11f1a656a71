#include "base/address_space.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

namespace neve {

AddressSpace::~AddressSpace() {
  if (data_ != nullptr) munmap(data_, size_);
}

AddressSpace::AddressSpace(AddressSpace&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

AddressSpace& AddressSpace::operator=(AddressSpace&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

Result<AddressSpace> AddressSpace::reserve(std::size_t bytes) {
  AddressSpace space;
  if (bytes == 0) return space;
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) {
    return Status(Code::kExhausted,
                  "address space: wanted " + std::to_string(bytes) + " bytes, got none (" + std::strerror(errno) + ")");
  }
  // Huge pages would hold memory that no block uses; what is reported must be what is held.
  madvise(data, bytes, MADV_NOHUGEPAGE);
  space.data_ = static_cast<std::uint8_t*>(data);
  space.size_ = bytes;
  return space;
}

void AddressSpace::release(std::size_t offset, std::size_t bytes) const {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const std::size_t first = (offset + page - 1) / page * page;
  const std::size_t last = (offset + bytes) / page * page;
  if (data_ != nullptr && last > first) madvise(data_ + first, last - first, MADV_DONTNEED);
}

}  // namespace neve
