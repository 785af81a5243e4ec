// One process in virtual time: the real Domain, retention and predictor over a ModelDevice, under a discrete
// event loop. Its threads follow their scripts; device calls take the model's time, and other events happen
// during them, for the registry works in steps. An acquire can find its region being registered and wait, or
// being deregistered and miss. Its helper works at the engine's desk (retention/desk.h).
//
// Modelled here: threads, the order of their device calls, the rings and the helper's
// sleep. Everything else is the code of the product.
//
// Deterministic: equal scripts and settings give equal runs. One thread at a time; processes share nothing.
#pragma once

#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <vector>

#include "base/coverage.h"
#include "base/large_pages.h"
#include "device/model/model.h"
#include "monitor/brackets.h"
#include "node/attendance.h"
#include "node/node_share.h"
#include "predict/predictor.h"
#include "registry/acquisition.h"
#include "registry/domain.h"
#include "retention/desk.h"
#include "retention/record.h"
#include "retention/retention_options.h"
#include "retention/traits.h"
#include "retention/use_runs.h"
#include "runlog/format.h"
#include "simulate/operation.h"
#include "simulate/oracle_bound.h"

namespace pinion::simulate {

/// Receives the events of a process, in order of time except where noted. Byte counts are changes.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void registered(Time, Time /*since*/, std::int64_t /*bytes*/) {}
  /// Pages ever leased, less memory events.
  virtual void left_pinned(Time, std::int64_t /*bytes*/) {}
  /// Pages that an oracle would hold: in order of time too, but reported only when certain.
  virtual void oracle_held(Time, std::int64_t /*bytes*/) {}
  virtual void acquired(std::uint64_t /*number of the acquire*/, Time /*asked*/, Time /*leased*/,
                        runlog::Outcome) {}
  /// A lease has ended.
  virtual void used(const TakenRecord&) {}
  /// The helper has taken a record: an event of a log, in the order of its looks.
  virtual void logged(const runlog::Event&) {}
  /// That acquire had been predicted, or seen before, and was not registered in time.
  virtual void found_late(std::uint64_t /*number of the acquire*/) {}
  virtual void device_call(Time /*begin*/, Time /*end*/, Range, bool /*registration*/, bool /*failed*/,
                           Actor) {}
};

class Process final : private RegisteredListener {
 public:
  struct Settings {
    RetentionKind retention = RetentionKind::helper;
    CostModel nic;
    std::uint64_t limit = UINT64_MAX;
    std::uint64_t limit_regions = UINT64_MAX;
    node::NodeTable* room =
        nullptr;  ///< where a limit of the node is shared out; joined, and outlives the process
    std::uint64_t look_every = 100;  ///< acquires from one look at the others in the room to the next
    std::uint64_t lru_bytes = 64 << 20;
    TimeBudget::Settings time_budget = {};
    HelperShare::Settings helper_share = {.core_idle = true};
    /// CPU of the helper beside its device calls: of a wake-up, and of a record learnt from.
    Duration wake_cost = 0, record_cost = 0;
    bool minimize_peak = false;
    double bookkeeping_ns = 0;  ///< of an acquire: counted, but no time on the clock
    /// False: the helper's work delays the application's threads, with what they wait for their peers.
    bool own_core = true;
    /// Longest sleep of the helper while communication is dense. 0: it watches, and sees a record at once.
    Duration poll = kMillisecond;
    std::size_t ring = 256;          ///< records that wait for the helper at most; further ones are lost
    double memcpy_bytes_per_ns = 0;  ///< of a bounce buffer; 0: free
    Time start = kSecond;
    /// How late each timed wake-up of the helper is.
    std::function<Duration()> wake_latency = [] { return Duration{0}; };
    /// When a helper that would run at a time really does, on a core that it shares. Empty: at that time.
    std::function<Time(Time)> turn_after = {};
    /// The length of a device call, `modelled` by the device. Empty: just that.
    std::function<Duration(Actor, bool registration, Duration modelled)> call_time = {};
  };

  /// `predictors` are for retentions helper and observe, one for each domain. `observer` outlives the
  /// process.
  Process(Settings settings, std::vector<std::unique_ptr<Predictor>> predictors, Observer& observer);
  /// With one domain.
  Process(Settings settings, std::unique_ptr<Predictor> predictor, Observer& observer);

  /// The next thread, which begins at once. `script` outlives the run.
  void add_thread(Script& script);
  /// Its script has more, after it had no more.
  void resume(std::uint16_t thread);
  /// Whether there is a helper (retention helper), and how long it may have to wait for its turn on a core
  /// that it shares. Without one, registrations stay.
  void set_helper(bool has_helper, Duration turn);
  /// Does something at that time.
  void at(Time time, std::function<void()> what);
  /// A memory event, as the hooks report it, by `thread`.
  void change_memory(Range range, std::uint16_t thread = 0);

  /// Runs the next event, and the same thread's steps after it, up to the next other event and to `until`.
  void step(Time until = 0);
  /// When that will be; kNever: nothing is to come.
  Time next_event() const { return events_.empty() ? kNever : events_.front().time; }
  /// Threads have something to do.
  bool running() const { return application_events_ > 0 || !waiting_.empty(); }
  /// The helper is in a device call.
  bool helper_busy() const { return helper_busy_; }
  /// The end of the run: finishes the helper's job, and lets all idle regions go at once.
  void finish();
  /// Advances the clock to a time between the last event and the next.
  void pass(Time time) { clock_.set(time); }

  Time now() { return clock_.now(); }
  /// When the thread that ran longest had done its last operation.
  Time ended() const { return ended_; }
  /// As the engine keeps them; the helper's CPU time is that of its device calls, and its modelled own.
  runlog::Counters counters();

  template <class F>
  void for_each_lease(F&& f) const {
    for (const Lease& lease : leases_)
      if (lease.live && lease.record.region().region) f(lease.range, *lease.record.region().region);
  }
  const TimeBudget& time_budget() const { return desk_.time_budget(); }
  Retention& retention(std::size_t domain = 0) { return *domains_[domain].kept.retention; }
  Domain& domain() { return domains_.front().domain; }
  ModelDevice& device() { return device_; }
  const Budget& budget() const { return budget_; }
  std::uint64_t acquires() const { return counters_.acquires; }
  /// Registered if nothing were let go.
  std::size_t left_pinned_bytes() const { return leave_pinned_.bytes(); }

 private:
  enum class What : std::uint8_t {
    thread,
    device_call,
    release,
    wait_ends,
    helper_wakes,
    helper_acts,
    script
  };
  struct Event {
    Time time;
    std::uint64_t order;
    What what;
    bool application;
    std::uint32_t index;
    bool operator<(const Event& other) const {  // for a heap whose front is the earliest
      return time != other.time ? time > other.time : order > other.order;
    }
  };

  static constexpr std::uint32_t kHelper = 0;  ///< its call; a thread's is its number + 1
  /// A call on its way through the registry's steps, or in a device call.
  struct Call {
    enum class Phase : std::uint8_t {
      none,
      registering,  ///< for the acquisition
      evicting,     ///< the acquisition's victims
      retiring,     ///< regions that it lets go itself
      bouncing,     ///< copies for lack of a registration
    };
    Phase phase = Phase::none;
    std::optional<Acquisition> acquisition;  ///< the last one
    std::vector<Region*> regions;            ///< being deregistered, from `next` on
    std::size_t next = 0;
    RegionRef idle;  ///< of a release that lets go; none: a registration does
    Registration registration;
    Time device_begin = 0;
    Duration in_device = 0;          ///< calls of this acquire so far
    Duration registration_took = 0;  ///< the last one that succeeded
  };
  struct Lease {
    Record record;
    Range range{};
    Range pages{};  ///< whole ones of its memory
    std::uint64_t number = 0;
    UnderLeavePinned leave_pinned;
    Time leased = 0;
    std::uint16_t thread = 0;
    bool live = false;
  };
  struct Thread {
    Script* script = nullptr;
    Operation operation{};  ///< the next one
    bool idle = true;
    Time free_at = 0;
    Time asked = 0;
    Duration delayed = 0;  ///< its waits for registration so far
    std::uint32_t lease = 0;
    std::vector<std::uint32_t> slots;  ///< leases
    std::unique_ptr<RecentRegions> recent = std::make_unique<RecentRegions>();
    std::unique_ptr<UseRuns> runs = std::make_unique<UseRuns>();
  };
  /// A record on its way to the desk.
  struct Noticed {
    TakenRecord taken;
    std::uint64_t number = 0;  ///< of the acquire
    UnderLeavePinned leave_pinned;
  };

  /// All share the device, and the budget.
  struct OwnDomain {
    explicit OwnDomain(Process& process)
        : domain(process.device_, process.budget_, process.brackets_, process.clock_, &process) {}
    Domain domain;
    KeptDomain kept;
  };
  OwnDomain& own(Range range) {
    return domains_[std::min<std::size_t>(domain_of(range), domains_.size() - 1)];
  }
  static unsigned number_of(const OwnDomain& own) { return static_cast<unsigned>(own.kept.number); }
  Domain& domain(Range range) { return own(range).domain; }
  Domain& domain(const Region* region) { return domain(region->range()); }

  /// The receiver of the oracle's changes.
  auto oracle_changed() {
    return [this](Time time, std::int64_t bytes) { observer_.oracle_held(time, bytes); };
  }
  void registered_changed(Time now, Time since, std::int64_t bytes, int regions) override;

  void schedule(Time time, What what, bool application, std::uint32_t index);
  void run(const Event& event, Time until);
  /// The helper computes, or is in a device call.
  void helper_works(Duration took);

  // ---- device calls, and acquisitions in virtual time (registry/blocking.h runs them in real threads) ----

  Actor actor(std::uint32_t call) const { return call == kHelper ? Actor::helper : Actor::application; }
  Call& call(std::uint32_t number) { return number == kHelper ? helper_call_ : calls_[number - 1]; }
  /// What `device_call` takes; the clock stays: the time passes in the events until then.
  template <class F>
  Duration time_of(std::uint32_t number, bool registration, F&& device_call);
  /// Does what the call's acquisition asks for.
  void go(std::uint32_t number, AcquireStep step);
  void retire_next(std::uint32_t number);
  void device_call_done(std::uint32_t number);
  void resume_waiters();
  /// The call has waited long enough.
  void wait_ended(std::uint32_t number);

  // ---- application threads ----

  /// When the thread's next operation is due; kNever: it has none.
  Time fetch(Thread& thread);
  void schedule_next(std::uint16_t number);
  void run_thread(std::uint16_t number, Time until);
  /// Each of these: false when the thread goes on later, by an event of its own.
  bool perform(std::uint16_t number);
  bool acquire(std::uint16_t number, const Operation& operation);
  bool release(std::uint16_t number, std::uint32_t lease, bool by_thread);
  void acquired(std::uint16_t number, AcquireStep step);
  void granted(std::uint16_t number);
  Lease& take_lease(Thread& thread, const Operation& operation);
  void leave_pinned(Lease& lease);
  /// The thread has waited so long for its lease.
  void waited(Lease& lease, Duration wait);
  /// What leave-pinned would have waited of it.
  Duration leave_pinned_part(const Lease& lease, Duration wait) const;
  /// The same for the registration that the thread has just made: its lease may last. waited() corrects it.
  Duration foresee(std::uint16_t thread, Duration took);
  /// To the time budget.
  void tell_waits();
  /// Begins the deregistrations that retention wants on the thread, now that it has registered a region or
  /// has left one idle. False: there is nothing.
  bool settle(std::uint16_t number, RegionRef idle);
  bool settle_next(std::uint16_t number);
  /// A lease has ended: it is counted in a run of uses, or leaves its record (LeasePath::release()).
  void leave(std::uint16_t number, const Lease& lease, bool settled);
  void end_runs();
  void push(const Noticed& noticed);

  // ---- the helper ----

  void wake_by(Time wake);
  void wakes();
  void drain();
  void take(const Noticed& noticed);
  void act();
  void attend();
  void sleep();

  const Settings settings_;
  const RetentionTraits traits_;
  Observer& observer_;
  VirtualClock clock_;
  ModelDevice device_;
  std::optional<node::NodeShare> share_;
  Budget budget_;
  Brackets brackets_;
  std::deque<OwnDomain> domains_;
  std::vector<Domain*> all_domains_;
  Desk desk_;

  std::vector<Event> events_;  ///< a heap
  std::uint64_t scheduled_ = 0;
  std::size_t application_events_ = 0;
  std::deque<std::function<void()>> script_events_;
  std::deque<Thread> threads_;
  std::deque<Call> calls_;
  std::list<std::uint32_t> waiting_;
  std::vector<Lease> leases_;
  std::vector<std::uint32_t> free_leases_;

  std::vector<Noticed> ring_;
  bool records_lost_ = false;
  Call helper_call_;
  Desk::Job job_;  ///< under way
  bool helper_busy_ = false;
  Time wake_at_ = kNever;
  bool wake_planned_ = false;
  bool alert_ = false;       ///< a transfer that found no registration wakes the helper
  std::uint32_t plans_ = 0;  ///< wake-ups; only the last planned one counts
  std::size_t doomed_bytes_ = 0;
  std::optional<node::Attendance> attendance_;
  std::uint64_t attended_ = 0;  ///< acquires by then
  std::uint64_t looked_ = 0;    ///< at the last look
  Duration helper_cpu_ = 0;

  LargePages large_;
  Coverage leave_pinned_;
  OracleBound oracle_;
  Time ended_;
  runlog::Counters counters_{};
};

}  // namespace pinion::simulate
