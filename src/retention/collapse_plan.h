// Which buffers retention `helper` turns into hugepages, so that their registrations become cheap
// (device/kernel/collapse.h): rent or buy. A buffer pays rent while it is idle and its region is kept, only
// because a registration of it is dear. Once that has cost as much as collapsing the rest of it and one dear
// round trip, it is bought, in stretches for which there is time and which the budget affords.
//
// Owns the terms; the state of a buffer lies in the buffer. One thread, retention's.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "retention/buffer_table.h"
#include "retention/ledger.h"
#include "retention/retention.h"

namespace pinion {

class CollapsePlan {
 public:
  struct Settings {
    /// A transparent hugepage has so many bytes; 0: nothing is ever collapsed.
    std::size_t unit = 0;
    /// A region has one size of pages, so that a single ordinary page makes it dear.
    bool whole_regions = false;
  };

  explicit CollapsePlan(Settings settings) : settings_(settings) {}

  bool collapses() const { return settings_.unit != 0 && gains_; }

  /// Whether most of the pages are ordinary ones.
  static bool is_dear(std::size_t pages, std::size_t entries) { return entries > pages / 8; }

  /// The device has registered.
  void registers() { ++registrations_; }
  /// The buffer's region is kept from now on, only because it would be dear to have it back.
  void kept_as_dear(Buffer& buffer, Time now) const {
    if (collapses() && buffer.collapsing.dear_since == kNotYet) buffer.collapsing.dear_since = now;
  }
  /// It is used: until then it paid rent.
  void used(Buffer& buffer, Time time) const {
    if (buffer.collapsing.dear_since != kNotYet)
      buffer.collapsing.rent += std::max<Duration>(time - buffer.collapsing.dear_since, 0);
    buffer.collapsing.dear_since = kNotYet;
  }

  /// A region of the buffer has so many entries: where it was collapsed and is dear, a fork, a protection or
  /// advice of the program's has undone that, and would again.
  void look(Buffer& buffer, Time now) const;
  /// Returns how long it takes to collapse the rest of the buffer.
  Duration longest(const Buffer& buffer) const { return cost(rest_of(buffer).bytes()); }
  /// The part to collapse now, if the buffer will be idle for `idle`; empty: none. `goes`: its region goes in
  /// any case, so that the round trip is no part of the price.
  Range part(const Buffer& buffer, const Ledger& ledger, const CostEstimates& costs, Duration idle, Time now,
             bool goes);
  /// The buffer's region goes, and is to come back: that is rent, too.
  void goes_as_dear(Buffer& buffer, const Ledger& ledger, const CostEstimates& costs) const {
    if (collapses() && is_dear(buffer.pages.pages(), buffer.entries))
      buffer.collapsing.rent += ledger.worth_of_work(buffer.pages.pages(), round_trip(buffer, costs));
  }
  /// A buffer is to be bought, and the budget did not afford a stretch of it lately: what else is dear waits.
  bool saves_up(Time now) const { return now < saves_until_; }
  /// The stretch is done. `dear`: a registration of the buffer before it.
  void collapsed(Buffer& buffer, const Retention::Action& action, Duration dear, Time now);
  /// A registration of the buffer took so long. The first ones that lie in hugepages show whether the device
  /// gains at all.
  void registered(const Buffer& buffer, Duration took);

 private:
  static Duration round_trip(const Buffer& buffer, const CostEstimates& costs) {
    return costs.deregistration.expected(buffer.entries) + costs.registration.expected(buffer.entries);
  }
  /// Its units.
  Range units_of(Range pages) const {
    const std::size_t unit = settings_.unit;
    return {(pages.begin + unit - 1) / unit * unit, pages.end / unit * unit};
  }
  Range rest_of(const Buffer& buffer) const {
    if (!collapses()) return {};
    const Range all = units_of(buffer.pages);
    if (settings_.whole_regions && all != buffer.pages) return {};
    return {std::min(std::max(all.begin, buffer.collapsing.done_to), all.end), all.end};
  }
  Duration cost(std::size_t bytes) const {
    return static_cast<Duration>(a_byte_ * static_cast<double>(bytes));
  }
  /// Bytes in whole units that are collapsed in that time.
  std::size_t units_for(Duration time) const {
    const double units = static_cast<double>(time) / (a_byte_ * static_cast<double>(settings_.unit));
    return static_cast<std::size_t>(std::clamp(units, 0., kMostUnits)) * settings_.unit;
  }

  static constexpr double kMostUnits = 1 << 20;

  const Settings settings_;
  double a_byte_ = 550e3 / (2 << 20);  ///< ns; the prior is Linux 6.18's median
  bool is_priced_ = false;             ///< by a stretch
  int registrations_ = 0;
  int in_vain_ = 0;  ///< registrations that were as dear as before, less those that were not
  bool gains_ = true;
  Time saves_until_ = kNotYet;
};

}  // namespace pinion
