// Hugepages reserved for a test, where its user may do so; given back at the end. One test at a time has the
// pool.
#pragma once

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <fstream>
#include <string>

#include "base/range.h"

namespace pinion::test {

constexpr std::size_t kHugepageBytes = std::size_t{2} << 20;

class HugepagePool {
 public:
  /// Makes so many free pages of `page_bytes`.
  explicit HugepagePool(unsigned long pages, std::size_t page_bytes = kHugepageBytes)
      : directory_("/sys/kernel/mm/hugepages/hugepages-" + std::to_string(page_bytes >> 10) + "kB/"),
        lock_(::open("/proc/sys/vm/nr_hugepages", O_RDONLY | O_CLOEXEC)) {
    ::flock(lock_, LOCK_EX);
    const unsigned long before = kept();
    if (number("free_hugepages") < pages) set(number("nr_hugepages") + pages);
    added_ = kept() - std::min(before, kept());
    has_ = number("free_hugepages") >= pages;
  }
  ~HugepagePool() {
    if (added_ != 0) set(kept() - std::min(added_, kept()));
    ::close(lock_);
  }
  HugepagePool(const HugepagePool&) = delete;
  HugepagePool& operator=(const HugepagePool&) = delete;

  /// False: none can be had here.
  bool has_pages() const { return has_; }

 private:
  unsigned long number(const char* name) const {
    unsigned long value = 0;
    std::ifstream(directory_ + name) >> value;
    return value;
  }

  /// Without those that go once their last user, of an earlier test perhaps, lets go.
  unsigned long kept() const { return number("nr_hugepages") - number("surplus_hugepages"); }
  void set(unsigned long pages) const { std::ofstream(directory_ + "nr_hugepages") << pages << std::flush; }

  const std::string directory_;
  const int lock_;
  unsigned long added_ = 0;
  bool has_ = false;
};

/// Anonymous memory of the pool.
class HugetlbMemory {
 public:
  explicit HugetlbMemory(std::size_t bytes, void* at = nullptr, int flags = MAP_PRIVATE)
      : start_(::mmap(at, bytes, PROT_READ | PROT_WRITE,
                      flags | MAP_ANONYMOUS | MAP_HUGETLB | (at != nullptr ? MAP_FIXED : 0), -1, 0)),
        bytes_(bytes) {}
  ~HugetlbMemory() {
    if (is_mapped()) ::munmap(start_, bytes_);
  }
  HugetlbMemory(const HugetlbMemory&) = delete;
  HugetlbMemory& operator=(const HugetlbMemory&) = delete;

  bool is_mapped() const { return start_ != MAP_FAILED; }
  Range range() const { return Range::of(start_, bytes_); }
  Range part(std::size_t begin, std::size_t bytes) const {
    return {range().begin + begin, range().begin + begin + bytes};
  }

 private:
  void* const start_;
  const std::size_t bytes_;
};

}  // namespace pinion::test
