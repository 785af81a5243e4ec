// The domains of a run: opening, closing, finding. Owns the numbers of the domains and their slots.
//
// Opening and closing may be called by any ordinary thread; one mutex guards them. slot() and domain() may be
// called by any thread, also in hooks, for numbers below count(): a number is published with its slot, and
// stays. Domains of a run are at most kMostDomains.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>

#include "base/mutex.h"
#include "lease/bell.h"
#include "lease/mapping_room.h"
#include "lease/run_memory.h"
#include "monitor/brackets.h"
#include "registry/budget.h"

namespace pinion {

class DomainTable {
 public:
  /// `equip` completes a new slot before it is published; it is called under the mutex.
  DomainTable(RunMemory& memory, Budget& budget, const Brackets& brackets, HelperBell& bell,
              std::function<void(DomainSlot&)> equip)
      : memory_(memory), budget_(budget), brackets_(brackets), bell_(bell), equip_(std::move(equip)) {}

  /// A domain with a device of its own (names as in make_device()); its number, or -1 and an error. One that
  /// was closed with the same device is opened again.
  int open(const std::string& device, const std::string& nic, Error& error);
  /// Adds a domain on a device that was made already. open() finds it again only by a name.
  int add(std::unique_ptr<Device> device, Error& error, const std::string& name = {},
          const std::string& nic = {});
  /// Adds a domain on a device of the program's, which goes when the domain is closed. Another may then be
  /// borrowed in its place.
  int borrow(std::unique_ptr<Device> device, Error& error);
  /// Lets everything idle of the domain go, and makes retention forget it. EBUSY while leases are
  /// out; the domain then stays open.
  Error close(int number);
  /// A domain of add() that was closed, for its owner to use again.
  void reopen(int number);

  int count() const { return count_.load(std::memory_order_acquire); }
  DomainSlot& slot(int number) const { return *slots_[static_cast<std::size_t>(number)]; }
  Domain& domain(int number) const { return *slot(number).domain; }
  /// Calls f(DomainSlot&) for each, in the order of numbers.
  template <class F>
  void for_each(F&& f) const {
    const int n = count();
    for (int i = 0; i < n; ++i) f(slot(i));
  }
  Budget& budget() const { return budget_; }
  /// The sum over the domains.
  std::size_t registered_bytes() const;
  /// Whether idle regions go before a fork, however few: a device of this run hides them from children, or is
  /// slow.
  bool lets_all_go_at_fork() const { return all_go_at_fork_.load(std::memory_order_relaxed); }

  /// Bounds regions by the mappings that the kernel leaves the process, where they may divide some.
  void look_at_mappings() {
    if (splits_mappings_.load(std::memory_order_relaxed)) mapping_room_.look();
  }
  /// Whether memory may be watched by userfaultfd, which divides mappings and never joins them.
  bool may_watch_by_userfaultfd() {
    splits_mappings_.store(true, std::memory_order_relaxed);
    return !mapping_room_.is_short();
  }

  // ---- the helper ----

  /// The first open domain of which `passes(slot)` is true; -1: there is none. Nothing: another thread is
  /// about to open or close one.
  template <class Passes>
  std::optional<int> first_open(Passes&& passes) {
    if (!mutex_.try_lock()) return std::nullopt;
    const MutexLock lock(mutex_, std::adopt_lock);
    for (int number = 0; number < count(); ++number)
      if (slot(number).open && passes(slot(number))) return number;
    return -1;
  }
  /// The domain that the helper is asked to empty, or -1.
  int closing() const { return closing_.load(std::memory_order_seq_cst); }
  void emptied();

  // ---- forks ----

  /// Waits for another thread that opens or closes a domain, or stops the run, if `patient`. The wait is
  /// bounded, as that may be the calling thread (a signal handler forks).
  std::unique_lock<Mutex> lock_for_fork(bool patient);
  void abandon_after_fork();

  // ---- after the run, when all threads are out ----

  /// Gives back the resources of the system that devices hold (rings, locks), if all leases are returned;
  /// then the memory of the run.
  void drop_devices();
  /// Gives back a lease that outlived the run.
  void release_after_run(int number, RegionRef ref);

 private:
  int add_locked(std::unique_ptr<Device> device, Error& error, const std::string& name,
                 const std::string& nic);
  DomainSlot& new_slot(std::unique_ptr<Device> device);
  void note_effects(const Device& device);
  static void drop_device(DomainSlot& slot);
  void give_memory();

  RunMemory& memory_;
  Budget& budget_;
  const Brackets& brackets_;
  HelperBell& bell_;
  const std::function<void(DomainSlot&)> equip_;
  std::array<DomainSlot*, kMostDomains> slots_{};  ///< the memory's
  std::atomic<int> count_{0};
  std::atomic<int> closing_{-1};
  std::atomic<bool> all_go_at_fork_{false};
  std::atomic<bool> splits_mappings_{false};
  MappingRoom mapping_room_{budget_};
  Mutex mutex_;         ///< opening and closing; guards the memory's slots, and:
  bool given_ = false;  ///< the memory, to the next run
};

/// What a hit on a region that is not settled leaves, as far as the run needs it.
enum class HitTrail : std::uint8_t {
  none,    ///< a count
  time,    ///< the time of its end, too: by it regions are chosen that go
  record,  ///< a record, from which retention learns, or which the log keeps
};

/// The domains of a run as transfers find them: by number, in one load. A domain is added before its number
/// is given out, by the thread that opens it, and stays for the run. Any thread reads.
class KnownDomains {
 public:
  explicit KnownDomains(DomainTable& table) : table_(table) {}

  /// A slot that is about to be published.
  void add(const DomainSlot& slot, HitTrail trail) {
    const auto number = static_cast<std::size_t>(slot.number);
    observes_[number] = slot.kept.observed;
    trails_[number] = trail;
    domains_[number] = slot.domain.get();
    retentions_[number] = slot.kept.retention.get();
  }

  Domain& domain(int number) const { return *domains_[static_cast<std::size_t>(number)]; }
  Retention& retention(int number) const { return *retentions_[static_cast<std::size_t>(number)]; }
  /// Whether transfers of this domain are recorded only.
  bool observes(int number) const { return observes_[static_cast<std::size_t>(number)]; }
  HitTrail trail_of_hits(int number) const { return trails_[static_cast<std::size_t>(number)]; }
  int count() const { return table_.count(); }
  std::span<Domain* const> all() const { return {domains_.data(), static_cast<std::size_t>(count())}; }
  int number_of(const Domain* domain) const {
    return static_cast<int>(std::find(domains_.begin(), domains_.end(), domain) - domains_.begin());
  }
  DomainTable& table() const { return table_; }

 private:
  DomainTable& table_;
  std::array<bool, kMostDomains> observes_{};
  std::array<HitTrail, kMostDomains> trails_{};
  std::array<Domain*, kMostDomains> domains_{};
  std::array<Retention*, kMostDomains> retentions_{};
};

}  // namespace pinion
