#include "prepare/fault_in_by_threads.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <thread>
#include <utility>
#include <vector>

#include "base/held_signals.h"
#include "device/kernel/memory_policy.h"
#include "monitor/mapping_reader.h"
#include "monitor/own_threads.h"
#include "node/cores.h"
#include "prepare/fault_pace.h"
#include "prepare/preparation_pieces.h"

namespace pinion {

namespace {

/// One thread takes some 25 ms for it.
constexpr std::size_t kLeast = std::size_t{64} << 20;
constexpr unsigned kMostThreads = 8;
/// A thread costs some 50 us to start, and is worth it from here on.
constexpr std::size_t kOfAThread = std::size_t{16} << 20;

/// Looks at samples. Memory that the program has written is present, or swapped out.
bool is_mostly_absent(Range pages) {
  constexpr std::size_t kSamples = 32;
  std::size_t absent = 0;
  for (std::size_t i = 0; i < kSamples; ++i) {
    const Address at = page_floor(pages.begin + pages.bytes() / kSamples * i);
    unsigned char present = 0;
    if (::mincore(reinterpret_cast<void*>(at), page_size(), &present) != 0) return false;
    absent += (present & 1) == 0;
  }
  return absent >= kSamples / 2;
}

/// Parts of the range that may be written: files stay untouched, as do mappings that forbid it.
std::vector<Range> private_memory(Range pages) {
  std::vector<Range> found;
  for_each_mapping(pages, [&](const Mapping& mapping) {
    const bool takes = mapping.is_private && mapping.inode == 0 && (mapping.protection & PROT_WRITE) != 0;
    if (takes)
      found.push_back({std::max(mapping.range.begin, pages.begin), std::min(mapping.range.end, pages.end)});
  });
  return found;
}

class Threads {
 public:
  explicit Threads(std::vector<Range> memory)
      : parts_(std::move(memory), SIZE_MAX), policy_(MemoryPolicy::of_this_thread()) {}
  ~Threads() {
    for (std::thread& thread : threads_) thread.join();
  }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

  std::size_t bytes() const { return parts_.bytes(); }
  /// The caller works, too.
  void run(unsigned most) {
    const auto worth = static_cast<unsigned>(std::min<std::size_t>(bytes() / kOfAThread, kMostThreads));
    try {
      for (unsigned i = 1; i < std::min(most, worth); ++i)
        threads_.push_back(start_own_thread("pinion-faults", [this] {
          policy_.apply();
          work();
        }));
    } catch (const std::exception&) {
      // Fewer will do.
    }
    work();
  }

 private:
  void work() {
    FaultPace pace(false);  // the registration alone would hold the map all the time
    while (!failed_.load(std::memory_order_relaxed)) {
      const PreparationPieces::Part part = parts_.take();
      if (part.piece == nullptr) return;
      if (pace.fault_in(part.pages, true)) failed_.store(true, std::memory_order_relaxed);
    }
  }

  PreparationPieces parts_;
  const MemoryPolicy policy_;
  std::atomic<bool> failed_{false};
  std::vector<std::thread> threads_;
};

}  // namespace

std::size_t fault_in_by_threads(Range range, bool for_writing) {
  if (!for_writing || range.bytes() < kLeast || !is_mostly_absent(range.to_pages())) return 0;
  const HeldSignals held;
  try {
    const auto cpus = static_cast<unsigned>(node::cpus_of_own_threads().count());
    if (cpus < 2) return 0;
    Threads threads(private_memory(range.to_pages()));
    if (threads.bytes() < kLeast) return 0;
    threads.run(cpus);
    return threads.bytes();
  } catch (const std::exception&) {
    return 0;
  }
}

}  // namespace pinion
