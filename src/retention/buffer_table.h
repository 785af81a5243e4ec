// The buffers that retention `helper` knows: the ranges of whole pages (or of bytes, where the device
// registers such ranges) that transfers have used, by number
// and by address. Owns them; HelperRetention adds and removes, its parts read and note their own fields. One
// thread, retention's.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "base/access.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/range.h"
#include "predict/predictor.h"
#include "registry/region.h"
#include "runlog/format.h"

namespace pinion {

constexpr Time kNotYet = INT64_MIN / 2;

inline bool registered(const RegionRef& ref) { return ref.current() && ref.region->word.load().leasable(); }

/// The predictor's last answer for a buffer (forecast.h). It holds until the predictor learns, and is needed
/// several times a use.
struct KnownUse {
  std::uint64_t learnt = 0;  ///< uses by then
  Time after = 0;
  Duration worth = -1;  ///< -1: nothing is known
  Estimate next;
};
/// The worth of a buffer's pages, as last computed (ledger.h).
struct KnownWorth {
  std::uint64_t terms = 0;  ///< their number
  std::size_t entries = 0;
  Duration value = 0;
};

struct Buffer {
  bool live = false;
  Range pages{};
  Access access = Access::read;
  std::uint16_t thread = 0;  ///< that used it last
  RegionRef region;
  std::size_t entries = 1;  ///< translation entries that its pages take, as far as is known

  Time last_use = kNotYet;
  Time busy_until = kNotYet;  ///< the end of its transfers so far
  Duration lasts = 0;         ///< its transfers, lately
  Duration pace = 0;          ///< the last interval
  Duration longest_interval = 0;
  bool reused = false;  ///< it has had a use before its last
  bool late = false;    ///< its last use, which awaits a decision

  /// The state of settled_regions.h.
  struct Settled {
    bool by_last_use = false;
    Time since = kNotYet;
    std::uint32_t uses = 0;    ///< Region::uses at the last record
    std::uint32_t passed = 0;  ///< uses while settled, of which the predictor sees a sample
    runlog::Event use{};       ///< the last one that left a record: those that leave none are alike
  } settled;
  Duration reserved = 0;  ///< in the time budget, for its next use (ledger.h)
  /// The state of collapse_plan.h.
  struct Collapsing {
    Time dear_since = kNotYet;  ///< its region is kept since then, as it would be dear to have it back
    Duration rent = 0;          ///< so long, until its last use
    Address done_to = 0;        ///< its units below that are done
    Duration dear = 0;          ///< a registration before that
    Time again = 0;             ///< the next try, after a refusal
    Duration rest = 0;          ///< the last wait for that
  } collapsing;
  /// Its next use, as last planned.
  struct Expected {
    Time at_release = kNever;  ///< predicted one full reuse ahead
    Time over = kNever;        ///< when it should be over, as the helper was to wake for it
    Duration margin = 0;       ///< so long before it the buffer is to be registered
  } expected;
  mutable KnownUse known_use;
  mutable KnownWorth known_worth;

  /// Another region than this one serves it.
  bool served_elsewhere(const RegionRef& than) const {
    return region.region != than.region && registered(region);
  }
};

class BufferTable {
 public:
  Buffer& operator[](BufferId id) { return buffers_[id]; }
  const Buffer& operator[](BufferId id) const { return buffers_[id]; }
  /// False for numbers of a domain before this one, too.
  bool is_live(BufferId id) const { return id < buffers_.size() && buffers_[id].live; }
  std::size_t size() const { return by_begin_.size(); }
  std::size_t all_pages() const { return all_pages_; }

  /// Returns the live buffer of exactly these pages, or null.
  Buffer* find(Range pages) {
    const auto at = by_begin_.find({pages.begin, pages.end});
    return at == by_begin_.end() ? nullptr : &buffers_[at->second];
  }
  /// Returns the buffer of these pages, and whether it is new.
  std::pair<BufferId, bool> add(Range pages);
  /// The number is given again.
  void remove(BufferId id);

  /// Returns the buffers that lie in `range`, by address. The list is good until a buffer comes or goes, or
  /// other ranges are asked for.
  const std::vector<BufferId>& in(Range range) const {
    const Found& found = found_[slot_of(range)];
    return found.changes == changes_ && found.range == range ? found.buffers : find_in(range);
  }
  /// Returns the buffers that overlap `range`.
  std::vector<BufferId> overlapping(Range range) const;
  /// Calls drop(id), which removes it, for half of the buffers that lack a region, the longest unused ones,
  /// if there are too many. Half at once, so that a stream of buffers used only once costs O(1) amortized.
  template <class Drop>
  void forget_oldest(BufferId except, Drop&& drop) {
    if (by_begin_.size() <= forget_beyond_) return;
    for (const BufferId id : longest_unused(except)) drop(id);
    // The next attempt waits for more new buffers if most have a region.
    forget_beyond_ = std::max(kMost, by_begin_.size() + kMost / 4);
  }

 private:
  static constexpr std::size_t kMost = 16384;

  const std::vector<BufferId>& find_in(Range range) const;
  std::vector<BufferId> longest_unused(BufferId except) const;
  std::size_t slot_of(Range range) const {
    return static_cast<std::size_t>(range.begin * 0x9E3779B97F4A7C15ull >> 40) & (found_.size() - 1);
  }

  std::vector<Buffer> buffers_;
  std::vector<BufferId> free_;
  std::map<std::pair<Address, Address>, BufferId> by_begin_;
  std::uint64_t changes_ = 0;  ///< of by_begin_
  /// An answer of in(): each use needs that of one region several times.
  struct Found {
    std::uint64_t changes = UINT64_MAX;
    Range range{};
    std::vector<BufferId> buffers;
  };
  mutable std::vector<Found> found_{64};  ///< by slot_of(); a power of two, as many as buffers at least
  std::size_t largest_pages_ = 1;         ///< of any buffer so far
  std::size_t all_pages_ = 0;
  std::size_t forget_beyond_ = kMost;
};

}  // namespace pinion
