// Retention: when registered memory is kept and when it is let go. One object for each domain, of one class
// for each strategy; make_retention() makes it from the options, and the engine and the simulator run the
// same objects. To add a strategy: a class and its case in retention.cpp, and its row in retention_options.h.
//
// A retention decides and claims; its caller makes the device calls. It takes time only from the `now` that
// it is given, and registration only through its Domain.
//
// claim_after_registration() and claim_after_release() are for application threads, any number of them at a
// time, outside of hooks. All other calls are for one thread: the helper's, or the simulator's.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/access.h"
#include "base/clock.h"
#include "base/range.h"
#include "predict/predictor.h"
#include "registry/domain.h"
#include "registry/region.h"
#include "retention/costs.h"
#include "retention/retention_options.h"
#include "runlog/format.h"

namespace pinion {

class Retention {
 public:
  struct Collapsed {
    std::size_t bytes = 0;  ///< that lie in hugepages
    std::size_t made = 0;   ///< of these: not before
    Duration took = 0;      ///< CPU
    bool refused = false;   ///< the kernel went no further, or it is no time for it
  };
  struct Action {
    enum class Kind {
      sleep,           ///< until `wake_at`, or until records come
      deregister,      ///< deregister region->key (claimed), then done()
      register_ahead,  ///< run a ticket without lease for `pages` and `access`, then done()
    };
    Kind kind = Kind::sleep;
    BufferId buffer = 0;  ///< of a registration
    Region* region = nullptr;
    Range pages{};
    Range collapse{};         ///< of a deregistration: to be turned into hugepages before done()
    Collapsed collapsed{};    ///< what became of that
    std::size_t entries = 0;  ///< of a deregistration: the region's translation entries
    /// Of a deregistration: uses expected later than this are queued. Of a registration: the buffer's last
    /// use.
    Time after = 0;
    Time use = kNever;  ///< of a registration: the use that it serves
    Time wake_at = kNever;
    Access access = Access::read;
  };
  static Action deregistration(Region* region) {
    Action action;
    action.kind = Action::Kind::deregister;
    action.region = region;
    action.pages = region->range();
    return action;
  }

  virtual ~Retention() = default;

  // ---- application threads, where RetentionTraits::decides_on_threads ----

  /// The calling thread has registered a region. Claims the next region to deregister for that at once; null:
  /// no (further) one.
  virtual Region* claim_after_registration() { return nullptr; }
  /// Returns whether claim_after_release() may find one: takes no lock.
  virtual bool may_claim() const { return false; }
  /// The calling thread's release has left the region idle. The same.
  virtual Region* claim_after_release(RegionRef /*idle*/) { return nullptr; }

  // ---- the helper: learning ----

  /// Learns from a use. `lease`: its event, of kind `lease`. `region`: the one that served it. `delayed`: how
  /// long the thread had waited for registrations before, in all. Returns whether the use was late: its
  /// buffer had been used before, and its registration came too late.
  virtual bool use(const runlog::Event& /*lease*/, RegionRef /*region*/, Duration /*delayed*/) {
    return false;
  }
  /// A use that is not learnt from, as the helper rests until sweep().
  virtual void used_at_rest(const runlog::Event& /*lease*/, RegionRef /*region*/) {}
  /// Whether the uses that follow are only some of those that were made: the rings were full.
  virtual void note_losses(bool /*any*/) {}
  /// Pages of `range` changed.
  virtual void memory_event(Range /*range*/) {}
  /// The region of these pages has been deregistered for want of room, by another thread or for another
  /// process.
  virtual void evicted(Range /*pages*/, Time /*now*/) {}
  /// Looks at all idle regions: the records of some uses or releases are missing.
  virtual void sweep() {}

  // ---- the helper: acting ----

  /// Stops acting: from now on it predicts and keeps score only.
  virtual void stop_acting() {}
  /// Acts again, on all that is idle by now.
  virtual void act_again() {}
  /// Whether all that is registered stays, as there is too little to gain (MinimumGain).
  virtual void keep_all(bool /*all*/) {}
  /// The next action. One at a time: done() comes before the next call, except for sleep.
  virtual Action next(Time /*now*/) { return {}; }
  /// Returns whether the reason for a registration ahead still holds.
  virtual bool wants(const Action& /*action*/) const { return true; }
  /// Until when its use is waited for, however late the program is; in the past where the reason has gone.
  virtual Time waits_until(const Action& /*action*/) const { return kNever; }
  /// The action is done. `region`: the one that was registered. `took`: the device call that succeeded; 0:
  /// none.
  virtual void done(const Action& /*action*/, RegionRef /*region*/, bool /*ok*/, Duration /*took*/,
                    Time /*now*/) {}
  /// Returns whether a buffer of the range is gone by its decision, and awaits its use.
  virtual bool has_let_go(Range /*range*/) const { return false; }
  /// Registered bytes whose next decision is at next_deadline() or later, whichever records come.
  virtual std::size_t settled_bytes(Time /*now*/) { return 0; }
  /// The time of the next action, if records stay away.
  virtual Time next_deadline() const { return kNever; }

  // ---- results ----

  /// The uses that left no record since the last call, as events of kind `uses`.
  virtual std::vector<runlog::Event> take_runs() { return {}; }
  /// From now on each use leaves a record, and take_runs() returns all uses before.
  virtual void end_runs(Time /*now*/) {}

  /// Adds how good the predictions were to the process's counters.
  virtual void add_score(runlog::Counters& /*counters*/) const {}
  /// For a later run to begin with; empty: nothing was learnt.
  virtual std::string profile() const { return {}; }
};

/// Whether and how idle buffers are turned into hugepages (plans.h).
struct CollapseSettings {
  /// A transparent hugepage has so many bytes; 0: nothing is ever collapsed.
  std::size_t unit = 0;
  /// A region has one size of pages, so that a single ordinary page makes it dear.
  bool whole_regions = false;
};

struct RetentionSettings {
  RetentionKind kind = RetentionKind::helper;
  std::uint64_t lru_bytes = 64 << 20;
  CollapseSettings collapse = {};
  /// The name of a call site in predictions, which outlives the run; empty: its number.
  std::function<std::uint64_t(std::uint64_t)> site_name = {};
};

/// `predictor` is for kinds that predict (retention_options.h). All references outlive the retention.
std::unique_ptr<Retention> make_retention(RetentionSettings settings, Domain& domain,
                                          std::unique_ptr<Predictor> predictor, CostEstimates& costs,
                                          TimeBudget& budget);

}  // namespace pinion
