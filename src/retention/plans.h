// The plans of retention `helper`, when it has work to do on its buffers: looks, registrations ahead and
// collapses. HelperRetention owns these plans; costs and buffers belong to others. One thread, retention's.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "predict/predictor.h"
#include "retention/buffers.h"
#include "retention/costs.h"
#include "retention/retention.h"

namespace pinion {

/// Indexed min-heap of per-buffer deadlines. It keeps each buffer's position, so a time moves without a
/// search or an allocation.
class Deadlines {
 public:
  struct Item {
    Time time;
    BufferId buffer;
    bool operator==(const Item&) const = default;
    bool operator<(const Item& other) const {
      return time < other.time || (time == other.time && buffer < other.buffer);
    }
  };

  bool empty() const { return heap_.empty(); }
  /// The item with the earliest time; of equal times, the one of the lowest number.
  const Item& first() const { return heap_.front(); }

  /// Returns the buffer's time; kNever: it has none.
  Time of(BufferId buffer) const {
    const std::size_t at = buffer < places_.size() ? places_[buffer] : kNowhere;
    return at == kNowhere ? kNever : heap_[at].time;
  }
  /// Sets the buffer's time; kNever removes it.
  void set(BufferId buffer, Time time) {
    std::size_t at = grown(places_, buffer, kNowhere);
    if (time == kNever) {
      if (at != kNowhere) remove(at);
      return;
    }
    if (at == kNowhere) {
      at = heap_.size();
      heap_.emplace_back();
    }
    place(at, {time, buffer});
  }

  std::vector<Item> in_order() const {
    std::vector<Item> items = heap_;
    std::sort(items.begin(), items.end());
    return items;
  }

 private:
  static constexpr std::uint32_t kNowhere = UINT32_MAX;

  void remove(std::size_t at) {
    places_[heap_[at].buffer] = kNowhere;
    const Item last = heap_.back();
    heap_.pop_back();
    if (at < heap_.size()) place(at, last);
  }
  /// Puts `item` where it belongs, up or down from the gap at `at`.
  void place(std::size_t at, Item item) {
    for (; at > 0 && item < heap_[(at - 1) / 2]; at = (at - 1) / 2) put(at, heap_[(at - 1) / 2]);
    for (std::size_t child; (child = 2 * at + 1) < heap_.size(); at = child) {
      if (child + 1 < heap_.size() && heap_[child + 1] < heap_[child]) ++child;
      if (!(heap_[child] < item)) break;
      put(at, heap_[child]);
    }
    put(at, item);
  }
  void put(std::size_t at, Item item) {
    heap_[at] = item;
    places_[item.buffer] = static_cast<std::uint32_t>(at);
  }

  std::vector<Item> heap_;
  std::vector<std::uint32_t> places_;  ///< by buffer
};

/// The registration queue (RQ) of section 3.2: buffers to be registered ahead, ordered by deadline. The
/// helper serves one after the other. The queue spaces them so that each is complete by its deadline, with an
/// item of the deregistration queue in between. All deadlines can be made earlier at once.
class RegistrationQueue {
 public:
  struct Item {
    Time deadline;
    Time asked;  ///< as given to insert()
    BufferId buffer;
    Duration service;  ///< cost of serving this item plus one item of the deregistration queue
  };

  /// Inserts (or moves) a buffer. Deadlines are only ever made earlier: this one where it would come too near
  /// to the item after it, and those before it where they would.
  void insert(BufferId buffer, Time deadline, Duration service) {
    remove(buffer);
    if (empty()) advanced_ = 0;
    const Time asked = deadline + advanced_;
    deadline = asked;
    std::size_t at = place(deadline);
    items_.insert(items_.begin() + static_cast<std::ptrdiff_t>(at), {deadline, asked, buffer, service});
    grown(deadlines_, buffer, kNever) = deadline;
    for (; at > first_; --at) {
      const Time latest = items_[at].deadline - items_[at].service;
      Item& before = items_[at - 1];
      if (before.deadline <= latest) break;
      before.deadline = deadlines_[before.buffer] = latest;
    }
  }

  void remove(BufferId buffer) {
    if (!contains(buffer)) return;
    std::size_t at = first_;
    if (items_[at].buffer != buffer) at = not_before(deadlines_[buffer]);
    while (items_[at].buffer != buffer) ++at;
    deadlines_[buffer] = kNever;
    // Mostly it is the first one. Those that have left are cleared away together.
    if (at != first_)
      items_.erase(items_.begin() + static_cast<std::ptrdiff_t>(at));
    else if (++first_ * 2 >= items_.size())
      items_.erase(items_.begin(), items_.begin() + static_cast<std::ptrdiff_t>(std::exchange(first_, 0)));
  }

  /// The deadline that insert() would set for `deadline`: less the service of those that would have to be
  /// served right before.
  Time room(Time deadline, Duration service) const {
    deadline += advanced_;
    std::size_t at = place(deadline);
    Time start = deadline - service;
    for (; at > first_ && items_[at - 1].deadline > start; --at) start -= items_[at - 1].service;
    return start + service - advanced_;
  }

  /// Makes all deadlines earlier.
  void advance(Duration by) { advanced_ += by; }

  bool empty() const { return size() == 0; }
  std::size_t size() const { return items_.size() - first_; }
  Item first() const { return item(items_[first_]); }
  bool contains(BufferId buffer) const { return buffer < deadlines_.size() && deadlines_[buffer] != kNever; }
  template <class F>
  void for_each(F&& f) const {  ///< f(item), by deadline
    for (std::size_t at = first_; at < items_.size(); ++at) f(item(items_[at]));
  }

 private:
  Item item(const Item& kept) const {
    return {kept.deadline - advanced_, kept.asked - advanced_, kept.buffer, kept.service};
  }

  /// Returns the place of the first item that is due at `deadline` or later.
  std::size_t not_before(Time deadline) const {
    std::size_t at = first_;
    for (std::size_t n = items_.size() - first_; n > 0;) {
      const std::size_t half = n / 2;
      const bool before = items_[at + half].deadline < deadline;
      at += before ? half + 1 : 0;
      n = before ? n - half - 1 : half;
    }
    return at;
  }
  /// Makes `deadline` so early that the item after it keeps its time, and returns its place, behind those of
  /// its own time.
  std::size_t place(Time& deadline) const {
    std::size_t at = not_before(deadline);
    while (at < items_.size() && deadline > items_[at].deadline - items_[at].service) {
      deadline = items_[at].deadline - items_[at].service;
      while (at > first_ && items_[at - 1].deadline >= deadline) --at;
    }
    while (at < items_.size() && items_[at].deadline <= deadline) ++at;
    return at;
  }

  std::vector<Item> items_;      ///< by deadline, from first_ on; both times plus advanced_
  std::size_t first_ = 0;        ///< those before have left
  Duration advanced_ = 0;        ///< since the queue was last empty
  std::vector<Time> deadlines_;  ///< by buffer, as in its item; kNever: not in the queue
};

/// The registration queue with the conditions of sections 3.2 and 4 on its times: when its first item has to
/// be served, and whether a region may go at all.
class RegistrationPlan : public RegistrationQueue {
 public:
  RegistrationPlan(const CostEstimates& costs, const BufferTable& buffers)
      : costs_(costs), buffers_(buffers) {}

  using RegistrationQueue::insert;
  void insert(BufferId id, Time deadline) { insert(id, deadline, service_time(buffers_[id].entries)); }
  /// A used buffer has so many translation entries: an item of the deregistration queue is like the recent
  /// ones.
  void observe(std::size_t entries) { item_entries_.observe(entries); }

  /// Returns the earliest time at which the registration condition calls for the first item; kNever: the
  /// queue is empty.
  Time first_due() const {
    if (empty()) return kNever;
    const Item item = first();
    return item.deadline - service_time(buffers_[item.buffer].entries) - costs_.wake.value();
  }
  /// Returns until when the helper may do other work, if the items that are late then may cost so much;
  /// kNever: there are no more.
  Time free_until(Duration late) const {
    Time until = kNever;
    for_each([&](const Item& item) {
      late -= item.service;
      if (until == kNever && late < 0) until = item.deadline - item.service - costs_.wake.value();
    });
    return until;
  }
  /// The deregistration condition for a region of so many translation entries whose earliest deadline is
  /// `deadline`.
  bool may_deregister(std::size_t entries, Time deadline, Time now) const {
    if (deadline == kNever) return true;  // used for the first time, or expected to stay away
    const Duration t_p = costs_.deregistration.upper(entries) + compares() /* insert */ +
                         costs_.registration.upper(entries) + compares() /* update */ + costs_.wake.value();
    return now + t_p <= room(deadline, service_time(entries));
  }

 private:
  Duration compares() const { return static_cast<Duration>(size() + 1) * costs_.queue.compare; }
  /// The terms of the registration condition: one item of each queue.
  Duration service_time(std::size_t entries) const {
    return costs_.queue.hash + compares() /* cache */ + costs_.deregistration.upper(item_entries_.value()) +
           compares() /* insert */ + costs_.registration.upper(entries) + compares() /* update */;
  }

  const CostEstimates& costs_;
  const BufferTable& buffers_;
  RecentLargest<std::size_t, 1> item_entries_{1};
};

/// Which buffers retention `helper` turns into hugepages, so that their registrations become cheap
/// (device/kernel/collapse.h): rent or buy. A buffer pays rent while it is idle and its region is kept, only
/// because a registration of it is dear. Once that has cost as much as collapsing the rest of it and one dear
/// round trip, it is bought, in stretches for which there is time and which the budget affords.
///
/// Owns the terms; the state of a buffer lies in the buffer.
class CollapsePlan {
 public:
  using Settings = CollapseSettings;

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
