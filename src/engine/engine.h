// The process's one engine: options, domains, budget, memory events, the helper thread and the log, and the
// two calls that every front makes for a transfer: acquire() and release().
//
// start() and stop() are for one thread at a time (a front's init and finalize, or the C API under its own
// lock). acquire() and release() may be called by any thread between them, not from hooks. on_memory_* are
// for hooks. The engine object is never freed: threads may be inside it when the run ends.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_set>

#include "base/options.h"
#include "device/device.h"
#include "engine/meter.h"
#include "engine/thread_context.h"
#include "monitor/brackets.h"
#include "monitor/event_board.h"
#include "predict/predictor.h"
#include "registry/domain.h"
#include "retention/helper_retention.h"
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

class Engine {
 public:
  /// The running engine, or null. One relaxed load: what hooks and fronts ask first.
  static Engine* running() { return running_.load(std::memory_order_acquire); }

  /// Starts the process's engine with one domain. An error leaves nothing behind.
  static Error start(const Options& options, const JobPlace& place, const std::string& command);
  /// Ends the run: lets everything idle go, completes the log, ends the helper. Harmless when nothing runs.
  static void stop();

  /// Another domain with a device of its own; its number, or -1 and an error.
  int add_domain(std::unique_ptr<Device> device, Error& error);

  const Options& options() const { return options_; }
  const Limits& limits() const { return budget_->limits(); }
  Domain& domain(int number) { return *domains_[static_cast<std::size_t>(number)]->domain; }
  int domain_count() const { return domain_count_.load(std::memory_order_acquire); }

  /// Leases `request` for a transfer. Never fails: what cannot be registered is charged as a bounce. Returns
  /// the reason in `error`, when given.
  void acquire(ThreadContext& thread, int domain, const CallPoint& call, Range request, Access access,
               Transfer& transfer, Error* error = nullptr);
  void release(ThreadContext& thread, Transfer& transfer);

  /// The counters of the process up to now.
  runlog::Counters counters();

  // Hooks.
  void on_memory_change_begin(Range range);
  void on_memory_change_end(Range range);

 private:
  static constexpr int kMostDomains = 16;
  struct DomainSlot {
    std::unique_ptr<Device> device;
    std::unique_ptr<Domain> domain;
    std::unique_ptr<Predictor> predictor;
    CostEstimates costs;
    std::unique_ptr<HelperRetention> retention;
  };

  Engine(const Options& options, const JobPlace& place);
  ~Engine() = delete;

  void watch_memory();
  void keep_nothing(const Error& why);
  /// Other libraries may patch over our hooks at any time: asked before anything is registered, and by the helper.
  void check_hooks();
  void acquire_slow(ThreadContext& thread, int domain, Range request, Access access, Transfer& transfer,
                    Error* error);
  void bounce(ThreadContext& thread, Transfer& transfer, const Error& why, Error* error);
  void retire_now(ThreadContext& thread, int domain, RegionRef ref);
  void retire_claimed_here(ThreadContext& thread, int domain, Region* region);
  void push(ThreadContext& thread, const Record& record);
  double memcpy_bandwidth();

  // The helper (engine/helper_thread.cpp).
  void start_helper();
  void helper_main();
  void drain();
  void take(Record& record, std::uint16_t thread);
  void take_memory_change(Range range, Time time);
  void act();
  Time next_wake() const;
  void sleep_until(Time wake);
  void wake_helper();
  void note_device_call(Range pages, bool registration, bool failed, Time begin, Time end);
  void tell();
  void end_of_run();

  static std::atomic<Engine*> running_;

  const Options options_;
  const JobPlace place_;
  mutable RealClock clock_;
  Brackets brackets_;
  EventBoard events_;
  Meter meter_;
  std::unique_ptr<Budget> budget_;
  std::array<std::unique_ptr<DomainSlot>, kMostDomains> domains_;
  std::atomic<int> domain_count_{0};
  std::mutex domains_mutex_;
  std::atomic<bool> retire_at_release_;  ///< retention on-demand, or memory events that cannot be seen
  std::atomic<double> memcpy_bytes_per_ns_{0};
  std::atomic<bool> bounce_reported_{false};
  std::atomic<std::uint64_t> memory_events_{0};

  // The helper thread's own.
  std::thread helper_;
  std::atomic<bool> stopping_{false};
  std::atomic<std::uint32_t> asleep_{0};  ///< 1: asleep, 2: in deep sleep (a record wakes it)
  struct Drained {
    Record record;
    std::uint16_t thread;
  };
  std::vector<Drained> batch_;
  runlog::LogWriter log_;
  Coverage leave_pinned_;
  double leave_pinned_registration_ns_ = 0;
  std::unordered_set<CallSite> known_sites_;
  std::uint64_t dropped_seen_ = 0, dropped_before_ = 0;
  std::uint64_t wakeups_ = 0, registrations_ = 0, deregistrations_ = 0, registration_failures_ = 0;
  Time last_record_ = 0, last_update_ = 0;
  Duration record_gap_ = 0;  ///< typical time between batches of records
  std::uint64_t pinned_at_start_ = 0;

  // What the helper tells others: its share of the counters, brought up to date after each batch.
  std::mutex told_mutex_;
  runlog::Counters told_{};
};

}  // namespace pinion
