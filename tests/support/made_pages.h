// A source of pages for the hugepage heap's tests: private memory of the kernel. Fails as often as the test
// wants. Called under the heap's locks; the knobs are atomic.
#pragma once

#include <sys/mman.h>

#include <atomic>

#include "placement/kernel_pages.h"

namespace pinion::test {

class MadePages final : public PageSource {
 public:
  std::atomic<bool> gives_least{false};      ///< no area is larger than its first block needs
  std::atomic<unsigned> fail_one_in{0};      ///< of the calls, in a fixed pseudo-random order; 0: none fails
  std::atomic<std::size_t> mapped_bytes{0};  ///< now, without records
  std::atomic<std::size_t> record_bytes{0};  ///< now
  std::atomic<std::size_t> discarded_bytes{0}, offered_bytes{0};  ///< in all
  std::atomic<std::size_t> failures{0};

  Pages map(std::size_t least, std::size_t wanted) override {
    if (fails()) return {};
    const Pages pages = kernel_.KernelPages::map(least, gives_least || fails() ? least : wanted);
    mapped_bytes += pages.range.bytes();
    return pages;
  }
  bool discard(Range hugepages) override {
    if (fails() || !kernel_.discard(hugepages)) return false;
    discarded_bytes += hugepages.bytes();
    return true;
  }
  bool offer(Range hugepages) override {
    if (fails() || !kernel_.offer(hugepages)) return false;
    offered_bytes += hugepages.bytes();
    return true;
  }
  void unmap(const Pages& pages) override {
    mapped_bytes -= pages.range.bytes();
    kernel_.unmap(pages);
  }
  bool charges_untouched() const override { return kernel_.charges_untouched(); }
  bool charge(Range hugepages) override { return !fails() && kernel_.charge(hugepages); }
  void* map_records(std::size_t bytes) override {
    if (fails()) return nullptr;
    void* const records = kernel_.map_records(bytes);
    if (records != nullptr) record_bytes += bytes;
    return records;
  }
  void unmap_records(void* records, std::size_t bytes) override {
    record_bytes -= bytes;
    kernel_.unmap_records(records, bytes);
  }

 private:
  bool fails() {
    const unsigned one_in = fail_one_in;
    if (one_in == 0) return false;
    const std::uint64_t turn = turn_.fetch_add(1) * 0x9e3779b97f4a7c15u;
    if ((turn >> 32) % one_in != 0) return false;
    ++failures;
    return true;
  }

  KernelPages kernel_;
  std::atomic<std::uint64_t> turn_{1};
};

}  // namespace pinion::test
