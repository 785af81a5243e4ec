// The transparent hugepages of one simulated process: the units that its helper has collapsed, and the
// collapse under way; or all, where the heap is placed in them. One thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <optional>
#include <set>
#include <utility>

#include "base/clock.h"
#include "base/range.h"

namespace pinion::simulate {

struct HugepageModel {
  std::size_t unit = 0;  ///< of a hugepage; 0: there are none
  bool born = false;     ///< all memory lies in them; else it begins on ordinary pages
  /// What it costs to collapse a unit: the median of Linux 6.18 on x86, an assumption about other machines.
  Duration a_unit = 550 * kMicrosecond;
};

class TransparentHugepages {
 public:
  TransparentHugepages(HugepageModel model, VirtualClock& clock) : model_(model), clock_(clock) {}

  bool exist() const { return model_.unit != 0; }
  bool may_collapse() const { return exist() && !model_.born; }
  /// Begins to collapse whole units. Returns how long that will take.
  Duration begin_collapse(Range units) {
    under_way_ = {units, clock_.now()};
    return static_cast<Duration>(units.bytes() / model_.unit) * model_.a_unit;
  }
  /// Returns the bytes that have been collapsed.
  std::size_t end_collapse() {
    if (!under_way_) return std::exchange(cut_short_, 0);
    return stop();
  }
  /// The memory is pinned, or gone: a collapse under way leaves the rest of its units as they are.
  void pinned(Range range) {
    if (under_way_ && under_way_->units.overlaps(range)) cut_short_ = stop();
  }
  void gone(Range range) {
    pinned(range);
    if (exist())
      units_.erase(units_.upper_bound(first_of(range) - model_.unit), units_.lower_bound(range.end));
  }
  /// Entries of a translation table for the pages: one for each hugepage that lies in them.
  std::size_t entries(Range pages) const {
    if (model_.born) return (pages.bytes() + model_.unit - 1) / model_.unit;
    if (units_.empty()) return pages.pages();
    const auto first = units_.lower_bound(pages.begin);
    const auto huge = static_cast<std::size_t>(std::count_if(
        first, units_.lower_bound(pages.end), [&](Address unit) { return unit + model_.unit <= pages.end; }));
    return pages.pages() - huge * (model_.unit / page_size() - 1);
  }

 private:
  struct UnderWay {
    Range units;
    Time since;
  };
  Address first_of(Range range) const { return range.begin & ~(Address{model_.unit} - 1); }
  std::size_t stop() {
    const auto [units, since] = *std::exchange(under_way_, std::nullopt);
    const auto done = static_cast<std::size_t>((clock_.now() - since) / model_.a_unit) * model_.unit;
    const Address end = units.begin + std::min(done, units.bytes());
    for (Address at = units.begin; at < end; at += model_.unit) units_.insert(at);
    return end - units.begin;
  }

  const HugepageModel model_;
  VirtualClock& clock_;
  std::set<Address> units_;  ///< by their begins
  std::optional<UnderWay> under_way_;
  std::size_t cut_short_ = 0;  ///< bytes of a collapse that met a pin
};

}  // namespace pinion::simulate
