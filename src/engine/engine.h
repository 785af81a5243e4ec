// The process's one engine: options, domains, budget, memory events, the helper thread and the log, and the
// two calls that every front makes for a transfer: acquire() and release().
//
// start() and stop() are for one thread at a time; join() and leave() let several users share the engine and
// may be called by any thread. acquire() and release() may be called by any thread in between, not from
// hooks. on_memory_* are for hooks. The engine object is never freed: threads may be inside it when the run
// ends.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_set>
#include <vector>

#include "device/device.h"
#include "engine/fork_gate.h"
#include "engine/meter.h"
#include "engine/options.h"
#include "engine/pinned_count.h"
#include "engine/profile_file.h"
#include "engine/thread_context.h"
#include "monitor/brackets.h"
#include "monitor/event_board.h"
#include "monitor/monitor.h"
#include "node/place.h"
#include "predict/predictor.h"
#include "registry/domain.h"
#include "retention/helper_retention.h"
#include "retention/look_schedule.h"
#include "runlog/writer.h"

namespace pinion {

/// Who the process is in its job; -1 where unknown.
struct JobPlace {
  int rank = -1;
  int ranks = -1;
  int local_ranks = -1;
};

/// One call of the program, as a front sees it: made once, used for each of its buffers.
struct CallPoint {
  Ticks time = 0;
  CallSite site = 0;
  CallKind kind = CallKind::none;
  int peer = -1;
};

/// A transfer's use of a range, from acquire() to release(). Kept by the front (in its frame, or with the
/// request).
struct Transfer {
  Record record;
  bool active = false;
  Ticks bookkeeping = 0;  ///< of the acquire, when this one is sampled
};

/// What becomes of a transfer whose memory cannot be registered.
enum class Refusal {
  charge,  ///< it goes on without: the copy that a bounce buffer would take is charged as time
  report,  ///< acquire() says no and nothing is held: the caller has a bounce buffer of its own
};

class Engine {
 public:
  /// The running engine, or null. One relaxed load: what hooks and fronts ask first.
  static Engine* running() { return running_.load(std::memory_order_acquire); }

  /// Starts the process's engine with one domain. An error leaves nothing behind.
  static Error start(const Options& options, const JobPlace& place, const std::string& command);
  /// Ends the run: lets everything idle go, completes the log, ends the helper. Harmless when nothing runs.
  static void stop();
  /// The same for a process that ends by exit(), perhaps in a signal handler that has interrupted anything:
  /// waits for the helper while it makes progress, at most about a minute, and leaves the rest of its work to
  /// the kernel.
  static void stop_at_exit();

  /// The same for several users in one process: the first to join starts the engine, the last to leave stops
  /// it. Who joins later with `insist` must want the options that run, else EBUSY. An engine that somebody
  /// start()ed is shared, and left running. leave() gives EINVAL where nobody has joined.
  static Error join(const Options& options, const JobPlace& place, bool insist);
  static Error leave();

  /// A domain with a device of its own (names as in make_device()); its number, or -1 and an error.
  int open_domain(const std::string& device, const std::string& nic, Error& error);
  /// The same on a device of the caller's own, which no name opens again.
  int add_domain(std::unique_ptr<Device> device, Error& error);
  /// Lets everything idle of the domain go, and forgets what retention has learnt in it. EBUSY while leases
  /// are out; the domain then stays open.
  Error close_domain(int number);
  /// A domain of add_domain() that was closed, for its owner to use again.
  void reopen_domain(int number);

  const Options& options() const { return options_; }
  const Limits& limits() const { return budget_->limits(); }
  const MemoryMonitor& monitor() const { return *monitor_; }
  Domain& domain(int number) { return *domain_of_[static_cast<std::size_t>(number)]; }
  /// Smallest transfer that needs registration, in bytes.
  std::uint64_t threshold() const { return threshold_; }
  int domain_count() const { return domain_count_.load(std::memory_order_acquire); }

  /// Leases `request` for a transfer. False only with Refusal::report, and then there is nothing to release.
  /// Returns the reason of a refusal in `error`, when given.
  bool acquire(ThreadContext& thread, int domain, const CallPoint& call, Range request, Access access,
               Transfer& transfer, Refusal refusal = Refusal::charge, Error* error = nullptr);
  /// The same where the memory is registered already; else false, and nothing has happened.
  bool try_acquire(ThreadContext& thread, int domain, const CallPoint& call, Range request, Access access,
                   Transfer& transfer);
  void release(ThreadContext& thread, Transfer& transfer);
  /// For a lease that outlived the run, or came into a forked child (where this does nothing).
  void release_after_stop(Transfer& transfer);

  /// Lets go what nobody uses, in all domains: for memory, or a limit of the system's, that is needed
  /// elsewhere.
  void let_idle_go(ThreadContext& thread);

  /// The process that this engine was started in.
  pid_t process() const { return process_; }
  /// The counters of the process up to now.
  runlog::Counters counters();
  /// One domain's share: acquires, registrations and their times, registered bytes; nothing else is set.
  runlog::Counters counters(int number);
  /// How many registrations the helper made ahead, in one domain.
  std::uint64_t registrations_ahead(int number) const {
    return domains_[static_cast<std::size_t>(number)]->by_helper.registrations.get();
  }
  const Budget& budget() const { return *budget_; }

  // Hooks. Brackets are the process's, not the run's: a run may begin or end inside one.
  static void on_memory_change_begin(Range range);
  static void on_memory_change_end(Range range);
  /// Events may be missed from now on: nothing that is registered is believed any more.
  static void on_sight_lost();
  /// There was nothing mapped here until now.
  static void on_memory_appeared(Range range);

  // Sight of memory events, with or without a run (fabric_monitor.h needs it beyond).
  /// Starts the monitor, and lets its self-test prove that events arrive.
  static StartedMonitor watch_events(MonitorKind kind);
  /// Other libraries may take the monitor's hooks away at any time. Sight that was lost meanwhile is regained
  /// here, if the hooks can be put back now. The error: it never will be.
  static Error regain_sight(MemoryMonitor& monitor);
  static const Brackets& brackets() { return brackets_; }
  static void watch_forks();

 private:
  /// A closed domain waits here to be opened again with the same device: nothing that threads may look at is
  /// freed.
  struct DomainSlot {
    DomainSlot(int of, Meter& process) : number(of), meter(process) {}
    const int number;
    std::string device_name, nic;
    bool open = true;  ///< guarded by domains_mutex_
    DomainMeter meter;
    ThreadCounters by_helper;
    double modelled_busy_seconds = 0;  ///< of the device, when it is gone
    std::unique_ptr<Device> device;    ///< null only after the run
    std::unique_ptr<Domain> domain;
    std::unique_ptr<Predictor> predictor;
    CostEstimates costs;
    std::unique_ptr<HelperRetention> retention;
  };

  /// The large objects of a run. Hooks may be inside when the run ends, so a body is never freed; the next
  /// run has it, once all leases of this run have ended.
  struct Body {
    EventBoard events;
    Meter meter;
    std::mutex told_mutex;
    runlog::Counters told{};      ///< the helper's share of the counters, for others to read
    runlog::Lateness lateness{};  ///< the helper's own
    std::vector<std::unique_ptr<DomainSlot>> slots;
    std::size_t slots_used = 0;  ///< in this run
    Body* next_spare = nullptr;
  };

  Engine(const Options& options, const JobPlace& place);
  ~Engine() = delete;

  /// Under domains_mutex_, or before anybody else knows the engine.
  int add_domain(std::unique_ptr<Device> device, const std::string& device_name, const std::string& nic,
                 Error& error);
  /// Starts the memory monitor that the options ask for.
  void watch_memory();
  void leave_memory();
  /// Before memory is registered: its events must be seen from now on. An error says that they will not.
  Error watch(Range pages);
  // Forks (engine/fork.cpp).
  void let_go_before_fork();
  void keep_nothing(const Error& why);
  void doom(Range range);
  /// regain_sight(), before anything is registered, and by the helper.
  void check_hooks();
  /// The helper, now and then: says so when somebody leaves the hooks open to be overwritten.
  void report_exposure();
  bool acquire_slow(ThreadContext& thread, int domain, Range request, Access access, Transfer& transfer,
                    Refusal refusal, Error* error);
  /// All of it that locks, waits and calls the device: `leased` or `refused`.
  Domain::Step acquire_by_steps(ThreadContext& thread, Domain::Ticket& ticket, Transfer& transfer);
  void begin_transfer(ThreadContext& thread, int domain, const CallPoint& call, Range request, Access access,
                      Transfer& transfer);
  void hit(ThreadContext& thread, Region* region, const CallPoint& call, Transfer& transfer);
  /// Of modelled time, the part that delayed the thread.
  Ticks spent(Ticks modelled) const { return spends_modelled_time_ ? modelled : 0; }
  void charge_bounce(ThreadContext& thread, Transfer& transfer, const Error& why);
  /// Whether so much memory can be: more than the machine has is a mistake of the caller's.
  bool is_possible(Range request) const {
    return is_addressable(request.begin, request.bytes()) && request.bytes() <= memory_bytes_;
  }
  /// The range is invalid: it stays out of the records.
  bool refuse_impossible(ThreadContext& thread, Transfer& transfer, Refusal refusal, Error* error);
  void retire_now(ThreadContext& thread, int domain, RegionRef ref);
  void reap_now(ThreadContext& thread, int domain);
  /// Wakes the helper when much waits to be reaped. Callable from hooks.
  void expect_reaping();
  void retire_claimed_here(ThreadContext& thread, int domain, Region* region);
  void push(ThreadContext& thread, const Record& record);
  double copy_speed();

  // The node's other processes (engine/node_place.cpp).
  /// Returns the process's part of the node's limit; 0: there is none.
  std::uint64_t enter_node();
  /// The same for a process outside of the room: the sum keeps to the limit in any case.
  std::uint64_t share_alone(const Error& why) const;
  void leave_node();
  /// The helper: what the others need, and what the policy says.
  void attend_node(Time now);
  void shrink_to(std::uint64_t bytes);

  // The helper (engine/helper_thread.cpp).
  Error start_helper();
  void helper_main();
  void ask_helper_to_end();
  /// False: its progress has stopped for long.
  bool await_end_of_helper();
  void publish_log(const runlog::Counters& all, Time now);
  void drain();
  void take(Record& record, std::uint16_t thread);
  void take_memory_change(Range range, Time time);
  void act();
  Time next_wake() const;
  std::size_t registered_bytes() const;
  std::size_t leave_pinned_bytes() const;
  void sleep_until(Time wake);
  void wake_helper();
  void note_device_call(DomainSlot& slot, Range pages, bool registration, const Error& error, Time begin,
                        Time end);
  /// Counts it, or reports a failed deregistration once. Any thread.
  void count_device_call(ThreadCounters& counters, bool registration, const Error& error);
  void retire_idle(DomainSlot& slot);
  void retire_all_idle();
  void serve_closing();
  void keep_profile();
  /// How much the kernel counts as pinned; now, or when more is registered than ever at a sample.
  void sample_pinned();
  void sample_pinned_growth(Time now);
  void tell();
  void end_of_run();
  /// Frees the memory that only the helper has used.
  void forget_what_helper_knew();

  /// After stop(), when no thread is inside: gives back what devices hold of the system (rings, locks), as
  /// far as no lease is out.
  void drop_devices();
  void drop_device(DomainSlot& slot);
  /// A spare one, or a new one.
  static Body& take_body();
  /// After drop_device(): the next run may have all that this one had, if all leases have ended.
  void spare_body();
  static void forget_bodies_after_fork();
  DomainSlot& new_slot(std::unique_ptr<Device> device);

  static std::atomic<Engine*> running_;
  static Brackets brackets_;
  static Body* spare_bodies_;
  static Engine* newest_;  ///< of all that were ever started: what is never freed stays reachable

  // One cache line with what every transfer reads (of the first domains); written seldom.
  alignas(64) const std::uint64_t threshold_;
  const bool observes_;
  const bool retire_at_release_;  ///< retention on-demand
  ForkGate fork_gate_;
  /// A NIC is emulated. Everywhere else modelled time is charged in the books only.
  const bool spends_modelled_time_;
  std::array<Domain*, kMostDomains> domain_of_{};

  Engine* earlier_ = nullptr;
  bool spared_ = false;               ///< guarded by domains_mutex_: another run may have the body
  MemoryMonitor* monitor_ = nullptr;  ///< set before the engine runs
  const Options options_;
  const JobPlace place_;
  const pid_t process_;
  const std::uint64_t memory_bytes_;  ///< of the machine
  mutable RealClock clock_;
  Body& body_;
  EventBoard& events_ = body_.events;
  Meter& meter_ = body_.meter;
  std::unique_ptr<node::Place> place_among_;  ///< null: nothing asks for the node's other processes
  std::unique_ptr<Budget> budget_;
  std::array<DomainSlot*, kMostDomains> domains_{};  ///< the body's
  std::atomic<int> domain_count_{0};
  std::mutex domains_mutex_;  ///< opening and closing
  std::atomic<double> copy_bytes_per_ns_{0};
  std::atomic<bool> bounce_reported_{false};
  std::atomic<bool> failed_deregistration_reported_{false};
  std::atomic<bool> hides_from_children_{false};  ///< a device of this run does (Device)
  std::atomic<bool> keeps_nothing_{false};        ///< some memory events stay unseen for good
  std::atomic<std::uint64_t> memory_events_{0};
  std::atomic<std::size_t> doomed_bytes_{0};                        ///< since the helper last reaped
  static constexpr std::size_t kMuchDoomed = std::size_t{1} << 20;  ///< not left pinned until the next look

  // The helper thread's own.
  std::thread helper_;
  std::atomic<bool> stopping_{false};
  std::atomic<std::uint32_t> helper_runs_{0};         ///< 1 from its start to the end of all that it does
  std::atomic<std::uint32_t> progress_{0};            ///< counts its device calls
  std::atomic<int> closing_{-1};                      ///< domain that the helper is asked to empty; -1: none
  alignas(64) std::atomic<std::uint32_t> asleep_{0};  ///< 1: asleep, 2: in deep sleep (a record wakes it)
  struct Drained {
    Record record;
    std::uint16_t thread;
  };
  std::vector<Drained> batch_;
  runlog::LogWriter log_;
  TimeBudget time_budget_;  ///< of all domains
  std::array<Coverage, kMostDomains> leave_pinned_;
  double leave_pinned_registration_ns_ = 0;
  std::unordered_set<CallSite> known_sites_;
  StableSites stable_sites_;
  std::string profile_;  ///< as it was read at the start, for each domain to begin with
  std::uint64_t dropped_seen_ = 0, dropped_before_ = 0;
  std::uint64_t wakeups_ = 0;
  Time last_update_ = 0;
  LookSchedule looks_{kMillisecond, 0};  ///< begun by the helper, as it begins
  int exposed_looks_ = 0;                ///< in a row at which the hooks were open to be overwritten
  PinnedCount pinned_count_;
  std::uint64_t pinned_at_start_ = 0;
  std::uint64_t pinned_peak_ = 0;     ///< as sampled, beyond pinned_at_start_
  std::size_t sampled_at_bytes_ = 0;  ///< the most that was registered at a sample
  Time last_sample_ = 0;
  std::uint64_t transfers_ = 0, transfers_attended_ = 0;  ///< drained; up to the last attend_node()
  bool has_helper_ = true;                                ///< as the policy says
  node::CpuSet cpus_allowed_, cpus_run_on_;
};

}  // namespace pinion
