#include "base/address_space.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

namespace neve {

AddressSpace::~AddressSpace() {
  if (mapping_ != nullptr) munmap(mapping_, mapped_);
}

AddressSpace::AddressSpace(AddressSpace&& other) noexcept { *this = std::move(other); }

AddressSpace& AddressSpace::operator=(AddressSpace&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(mapping_, other.mapping_);
  std::swap(mapped_, other.mapped_);
  std::swap(gathered_, other.gathered_);
  return *this;
}

Result<AddressSpace> AddressSpace::reserve(std::size_t bytes) {
  AddressSpace space;
  if (bytes == 0) return space;
  const std::size_t mapped = bytes + kHugePage;
  void* mapping = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED) {
    return Status(Code::kExhausted,
                  "address space: wanted " + std::to_string(bytes) + " bytes, got none (" + std::strerror(errno) + ")");
  }
  // Huge pages at the first touch would hold memory that no block uses; what is reported must be what is held.
  madvise(mapping, mapped, MADV_NOHUGEPAGE);
  const auto address = reinterpret_cast<std::uintptr_t>(mapping);
  space.data_ = static_cast<std::uint8_t*>(mapping) + (kHugePage - address % kHugePage) % kHugePage;
  space.size_ = bytes;
  space.mapping_ = mapping;
  space.mapped_ = mapped;
  return space;
}

void AddressSpace::release(std::size_t offset, std::size_t bytes) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const std::size_t first = (offset + page - 1) / page * page;
  const std::size_t last = (offset + bytes) / page * page;
  if (data_ == nullptr || last <= first) return;
  madvise(data_ + first, last - first, MADV_DONTNEED);
  // What is touched next may be one block: it shall not bring a huge page.
  const std::size_t whole = std::min(gathered_, first / kHugePage * kHugePage);
  if (whole < gathered_) madvise(data_ + whole, gathered_ - whole, MADV_NOHUGEPAGE);
  gathered_ = whole;
}

void AddressSpace::gather(std::size_t dense) {
#ifdef MADV_COLLAPSE
  constexpr int kCollapse = MADV_COLLAPSE;
#else
  constexpr int kCollapse = 25;  // of Linux 6.1; older systems refuse it, and all stays as it was
#endif
  for (std::size_t i = 0; i < kGatheredAtOnce && data_ != nullptr && gathered_ + kHugePage <= dense; ++i) {
    std::uint8_t* page = data_ + gathered_;
    gathered_ += kHugePage;
    if (madvise(page, kHugePage, MADV_HUGEPAGE) != 0 || madvise(page, kHugePage, kCollapse) != 0) {
      madvise(page, kHugePage, MADV_NOHUGEPAGE);
    }
  }
}

}  // namespace neve
