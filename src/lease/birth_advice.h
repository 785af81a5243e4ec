// Advises new mappings to lie in transparent hugepages from their first touch on (MADV_HUGEPAGE): those of a
// size whose mappings are registered whole, in this run or in earlier ones of the program on this node. A
// registration touches all pages, so such memory gets no larger by it. Whole mappings are advised: advice for
// a part splits a mapping, and realloc cannot move it then.
//
// Memory of the same size that is used sparsely would get larger, by up to 512 times. So a mapping is advised
// only while fewer of its size are unregistered than earlier ones show that all were registered in the end.
// In a run that is once less than their number; an earlier run counts if it came to its end. A size whose
// mappings are registered in part only is left alone from the next run on.
//
// It stops for the process when the system finds no hugepages, or has to move pages for them, while it
// advises. Beside a sandbox of the program's nothing is advised.
//
// Owns the sizes, and the large mappings that appeared last. appeared(), wish(): hooks, hence lock-free.
// begin(): before the run is published. Everything else: the helper.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/range.h"
#include "lease/known_mappings.h"
#include "monitor/memory_change.h"

namespace pinion {

class BirthAdvice {
 public:
  /// Smaller mappings register soon, and may be so many that their advice would use up the process's mappings
  /// (vm.max_map_count).
  static constexpr std::size_t kLeast = std::size_t{16} << 20;
  static constexpr std::size_t kMostSizes = 32;

  /// A run begins: nothing is known but what earlier ones have kept. A transparent hugepage has `unit` bytes;
  /// 0: nothing is advised. `command`, `directory`: of KnownMappings.
  void begin(std::size_t unit, const std::string& command, const std::string& directory = "/dev/shm");
  /// A private anonymous mapping of so many bytes is about to appear. What is to be advised begins at a
  /// hugepage's border, so that only its rest behind the last whole one stays on ordinary pages. Where that
  /// would make all of a region's translation entries ordinary, it has a tail.
  MappingWish wish(std::size_t bytes);
  /// The program has mapped private anonymous memory to read and write.
  void appeared(Range mapping, Range tail = {});
  /// A device that gains by hugepages has registered the range, in a call that began then. `wholly`: only by
  /// regions that lie in hugepages as a whole.
  void registered(Range range, Ticks begun, bool wholly = false);
  /// The run is over: keeps for later ones what it has shown.
  void end();
  std::uint64_t advised_bytes() const { return advised_bytes_.load(std::memory_order_relaxed); }

 private:
  /// Mappings of one size.
  struct Size {
    std::atomic<std::size_t> pages{0};  ///< 0: free
    std::atomic<int> unregistered{0};   ///< that appeared in this run, gone ones too
    std::atomic<int> allowed{0};        ///< so many may be unregistered while another one is advised
    // The helper's.
    bool is_sparse = false;  ///< by an earlier run
    int registered = 0;
    int most_at_once = 0;  ///< that were unregistered when one of them had been registered
  };
  struct Recent {
    // The mapping in one word: whether it was advised, whether it was registered, the page that it begins
    // with, its pages.
    std::atomic<std::uint64_t> word{0};
    std::atomic<Ticks> time{0};
  };

  static constexpr unsigned kPagesBits = 27;
  static constexpr std::uint64_t kAdvised = std::uint64_t{1} << 63, kRegistered = std::uint64_t{1} << 62;
  static constexpr std::size_t kMostPages = (std::size_t{1} << kPagesBits) - 1;
  static constexpr Address kMostAddress = Address{1} << 47;
  static constexpr std::size_t kRecent = 256;
  // A tail takes a sixteenth of its mapping at most.
  static constexpr std::size_t kTailPart = 16;
  // Registrations of advised memory beside troubles, less those without.
  static constexpr int kMostInVain = 3;
  // A size counts as registered whole if one of so many mappings was not.
  static constexpr int kTolerated = 8;

  static std::uint64_t word_of(Range mapping, bool advised) {
    return (advised ? kAdvised : 0) | mapping.begin / page_size() << kPagesBits | mapping.pages();
  }
  static Range mapping_of(std::uint64_t word) {
    const Address begin = ((word & ~(kAdvised | kRegistered)) >> kPagesBits) * page_size();
    return {begin, begin + (word & kMostPages) * page_size()};
  }
  Size* find(std::size_t pages);
  /// Null: there are too many sizes.
  Size* make(std::size_t pages);
  /// The mapping that the range was in then.
  Recent* recent(Range range, Ticks time);
  /// Returns how many of the size appeared lately and were not registered.
  int unregistered(std::size_t pages) const;
  /// Whether a mapping of the size is to be advised while so many others are unregistered.
  bool may_advise(const Size& size, int unregistered) const {
    return !stopped_.load(std::memory_order_relaxed) &&
           unregistered < size.allowed.load(std::memory_order_relaxed);
  }
  bool advise(Range mapping);
  /// Advised memory has been registered: looks whether the system had hugepages for it.
  void judge(Range mapping);

  std::atomic<std::size_t> unit_{0};
  std::array<Recent, kRecent> recent_{};
  std::atomic<unsigned> next_{0};
  std::array<Size, kMostSizes> sizes_{};
  std::atomic<bool> stopped_{false};
  std::atomic<bool> wholly_{false};  ///< the device gains by regions that lie in hugepages as a whole
  bool may_have_tails_ = false;      ///< begin()'s
  std::atomic<std::uint64_t> advised_bytes_{0};
  // begin()'s, then the helper's.
  std::optional<KnownMappings> earlier_;
  std::uint64_t troubles_ = 0;  ///< of the system, at the last look
  int in_vain_ = 0;
};

/// Of this process: one for all of its runs, since hooks may be inside it when a run ends.
BirthAdvice& birth_advice();

}  // namespace pinion
