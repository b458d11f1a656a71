// For tests: memory that ends at a page nobody may touch, so that reading or writing beyond it dies at once; the kernels
// that run here.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <new>
#include <type_traits>
#include <vector>

#include "simd/isa.h"

namespace neve::simd {

// One entry per instruction set that runs on this machine, for tests that compare them all.
inline std::vector<const Kernels*> running_kernels() {
  std::vector<const Kernels*> list;
  for (const IsaEntry& isa : isa_table()) {
    if (isa.runs) list.push_back(isa.kernels);
  }
  return list;
}

// `count` numbers, zero at first. Their end is the end of the last page, so they are aligned as T is and no better.
template <typename T>
class Guarded {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  explicit Guarded(std::size_t count) : count_(count) {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    const std::size_t bytes = (count * sizeof(T) + page - 1) / page * page;
    mapped_ = bytes + page;
    base_ = static_cast<std::byte*>(mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    if (base_ == MAP_FAILED || mprotect(base_ + bytes, page, PROT_NONE) != 0) throw std::bad_alloc();
    data_ = reinterpret_cast<T*>(base_ + bytes - count * sizeof(T));
  }
  explicit Guarded(const std::vector<T>& x) : Guarded(x.size()) {
    for (std::size_t i = 0; i < x.size(); ++i) data_[i] = x[i];
  }
  ~Guarded() { munmap(base_, mapped_); }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;

  T* data() { return data_; }
  const T* data() const { return data_; }
  std::size_t size() const { return count_; }
  T& operator[](std::size_t i) { return data_[i]; }
  const T& operator[](std::size_t i) const { return data_[i]; }
  std::vector<T> copy() const { return std::vector<T>(data_, data_ + count_); }

 private:
  std::size_t count_, mapped_ = 0;
  std::byte* base_ = nullptr;
  T* data_ = nullptr;
};

}  // namespace neve::simd
