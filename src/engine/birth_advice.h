// Advises new mappings to lie in transparent hugepages from their first touch on (MADV_HUGEPAGE): those of a
// size that was registered whole before, by this run or by earlier ones of the program on this node. A
// registration touches all pages, so such memory gets no larger by it. Whole mappings are advised: advice for
// a part splits a mapping, and realloc cannot move it then.
//
// It stops for the process when the system finds no hugepages, or has to move pages for them, while it
// advises. Beside a sandbox of the program's nothing is advised.
//
// Owns the sizes, and the large mappings that appeared last. appeared(): hooks, hence lock-free. begin():
// before the run is published. Everything else: the helper.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/range.h"
#include "engine/known_mappings.h"

namespace pinion {

class BirthAdvice {
 public:
  /// Smaller mappings register soon, and may be so many that their advice would use up the process's mappings
  /// (vm.max_map_count).
  static constexpr std::size_t kLeast = std::size_t{16} << 20;
  static constexpr std::size_t kMostSizes = 16;

  /// A transparent hugepage has so many bytes; 0: nothing is advised.
  explicit BirthAdvice(std::size_t unit) : unit_(unit) {}

  /// `command`, `directory`: of KnownMappings.
  void begin(const std::string& command, const std::string& directory = "/dev/shm");
  /// The program has mapped private anonymous memory to read and write.
  void appeared(Range mapping);
  /// A device that gains by hugepages has registered the range.
  void registered(Range range);
  std::uint64_t advised_bytes() const { return advised_bytes_.load(std::memory_order_relaxed); }

 private:
  // A mapping in one word: whether it was advised, the page that it begins with, its pages.
  static constexpr unsigned kPagesBits = 28;
  static constexpr std::uint64_t kAdvised = std::uint64_t{1} << 63;
  static constexpr std::size_t kMostPages = (std::size_t{1} << kPagesBits) - 1;
  static constexpr Address kMostAddress = Address{1} << 47;
  static constexpr std::size_t kRecent = 64;
  // Registrations of advised memory beside troubles, less those without.
  static constexpr int kMostInVain = 3;

  static std::uint64_t word_of(Range mapping, bool advised) {
    return (advised ? kAdvised : 0) | mapping.begin / page_size() << kPagesBits | mapping.pages();
  }
  static Range mapping_of(std::uint64_t word) {
    const Address begin = ((word & ~kAdvised) >> kPagesBits) * page_size();
    return {begin, begin + (word & kMostPages) * page_size()};
  }
  /// Returns whether the size is new.
  bool know(std::size_t bytes);
  bool knows(std::size_t pages) const;
  bool advise(Range mapping);
  /// Advised memory has been registered: looks whether the system had hugepages for it.
  void judge(Range mapping);

  const std::size_t unit_;
  std::array<std::atomic<std::uint64_t>, kRecent> recent_{};
  std::atomic<unsigned> next_{0};
  std::array<std::atomic<std::size_t>, kMostSizes> pages_{};  ///< of the known sizes; 0: free
  std::atomic<bool> stopped_{false};
  std::atomic<std::uint64_t> advised_bytes_{0};
  // begin()'s, then the helper's.
  std::optional<KnownMappings> earlier_;
  std::uint64_t troubles_ = 0;  ///< of the system, at the last look
  int in_vain_ = 0;
};

}  // namespace pinion
