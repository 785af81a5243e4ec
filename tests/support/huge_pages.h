// Huge pages of 2 MiB for as long as a test needs them, beside those that are reserved already.
#pragma once

#include <cstddef>
#include <fstream>

namespace pinion::test {

class HugePages {
 public:
  static constexpr std::size_t kBytes = std::size_t{2} << 20;

  explicit HugePages(long pages) : pages_(pages) {
    const long before = reserved();
    if (before >= 0) set(before + pages);
    available_ = before >= 0 && reserved() == before + pages;
    if (!available_ && before >= 0) set(before);
  }
  ~HugePages() {
    if (available_) set(reserved() - pages_);
  }
  HugePages(const HugePages&) = delete;
  HugePages& operator=(const HugePages&) = delete;

  /// Not for ordinary users, nor where memory has no such pages left.
  bool available() const { return available_; }

 private:
  static constexpr const char* kFile = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";
  static long reserved() {
    long pages = -1;
    std::ifstream(kFile) >> pages;
    return pages;
  }
  static void set(long pages) { std::ofstream(kFile) << pages; }

  const long pages_;
  bool available_ = false;
};

}  // namespace pinion::test
