#include "model/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace neve::model {
namespace {

#ifdef MADV_POPULATE_READ
constexpr int kPopulate = MADV_POPULATE_READ;
#else
constexpr int kPopulate = MADV_WILLNEED;
#endif

}  // namespace

Result<MappedFile> MappedFile::open(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return Status(Code::kNotFound, path + ": " + std::strerror(errno));
  struct stat info = {};
  MappedFile file;
  void* data = MAP_FAILED;
  if (fstat(descriptor, &info) == 0 && info.st_size > 0) {
    file.bytes_ = static_cast<std::uint64_t>(info.st_size);
    data = mmap(nullptr, file.bytes_, PROT_READ, MAP_SHARED, descriptor, 0);
  }
  const int error = errno;
  ::close(descriptor);
  if (data == MAP_FAILED) return Status(Code::kExhausted, path + ": cannot be mapped: " + std::strerror(error));
  file.data_ = static_cast<std::byte*>(data);
  return file;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

void MappedFile::populate(std::uint64_t offset, std::uint64_t bytes) const {
  const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  const std::uint64_t start = offset / page * page;
  const std::uint64_t end = std::min(offset + bytes, bytes_);
  if (start >= end) return;
  if (madvise(data_ + start, end - start, kPopulate) != 0) madvise(data_ + start, end - start, MADV_WILLNEED);
}

void MappedFile::release(std::uint64_t offset, std::uint64_t bytes) const {
  // Only whole pages inside the range: its neighbours may be in use.
  const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  const std::uint64_t start = (offset + page - 1) / page * page;
  const std::uint64_t end = std::min(offset + bytes, bytes_) / page * page;
  if (start < end) madvise(data_ + start, end - start, MADV_DONTNEED);
}

}  // namespace neve::model
