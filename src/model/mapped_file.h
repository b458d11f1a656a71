// A file mapped read-only into memory. Owns the mapping.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "neve/status.h"

namespace neve::model {

class MappedFile {
 public:
  // Errors: kNotFound, kExhausted (address space).
  static Result<MappedFile> open(const std::string& path);
  MappedFile() = default;
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  const std::byte* data() const { return data_; }
  std::uint64_t bytes() const { return bytes_; }

  // Reads a range now, so that the first use does not wait for the disk. A hint.
  void populate(std::uint64_t offset, std::uint64_t bytes) const;
  // Gives back the memory of a range that will not be used soon; the data stays readable. A hint.
  void release(std::uint64_t offset, std::uint64_t bytes) const;

 private:
  std::byte* data_ = nullptr;
  std::uint64_t bytes_ = 0;
};

}  // namespace neve::model
