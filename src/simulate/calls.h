// The device calls of a simulated process, and its acquisitions in virtual time (registry/blocking.h runs
// them in real threads): each call takes the device's time, and other events happen during it. A call belongs
// to a user, an application thread or the helper, who begins it and receives its end. One thread.
#pragma once

#include <cstdint>
#include <deque>
#include <list>
#include <optional>
#include <vector>

#include "registry/acquisition.h"
#include "registry/device_call.h"
#include "registry/domain.h"
#include "runlog/format.h"
#include "simulate/domains.h"
#include "simulate/events.h"
#include "simulate/observer.h"
#include "simulate/process_settings.h"

namespace pinion::simulate {

/// A call, or what it was last used for.
struct Call {
  enum class Phase : std::uint8_t {
    none,
    registering,  ///< for the acquisition
    evicting,     ///< the acquisition's victims
    retiring,     ///< regions that its user lets go
  };
  Phase phase = Phase::none;
  std::optional<Acquisition> acquisition;  ///< the last one
  std::vector<Region*> regions;            ///< being deregistered, from `next` on
  std::size_t next = 0;
  Registration registration;
  Time device_begin = 0;
  Duration in_device = 0;          ///< its device calls so far
  Duration registration_took = 0;  ///< the last one that succeeded
};

/// Begins calls, and receives their ends; `number` is the call's.
class CallUser {
 public:
  virtual ~CallUser() = default;
  /// A device call begins that computes for so long.
  virtual void computes(Duration) {}
  /// A device call has succeeded; the registry learns of it next.
  virtual void made(std::uint32_t /*number*/, const DeviceCall&) {}
  /// acquire() has ended, with the call's acquisition.
  virtual void acquired(std::uint32_t number, AcquireStep step) = 0;
  /// retire() has ended: its regions are gone.
  virtual void retired(std::uint32_t number) = 0;
};

class Calls {
 public:
  static constexpr std::uint32_t kHelper = 0;  ///< its call; a thread's is its number + 1

  /// All outlive it.
  Calls(const ProcessSettings& settings, Events& events, Domains& domains, Observer& observer,
        runlog::Counters& counters)
      : settings_(settings), events_(events), domains_(domains), observer_(observer), counters_(counters) {}

  void serve(CallUser& helper, CallUser& threads) {
    helper_ = &helper;
    threads_ = &threads;
  }
  void add_thread() { calls_.emplace_back(); }
  Call& call(std::uint32_t number) { return calls_[number]; }

  void acquire(std::uint32_t number, const AcquireRequest& request);
  /// Deregisters claimed regions.
  void retire(std::uint32_t number, std::vector<Region*> regions);

  // ---- events ----

  void device_call_done(std::uint32_t number);
  /// The call has waited long enough.
  void wait_ended(std::uint32_t number);
  bool waiting() const { return !waiting_.empty(); }

 private:
  Actor actor(std::uint32_t number) const { return number == kHelper ? Actor::helper : Actor::application; }
  CallUser& user(std::uint32_t number) { return number == kHelper ? *helper_ : *threads_; }
  /// Lets the device's call take its time: the clock stays, and the time passes in the events until then.
  template <class F>
  void call_device(std::uint32_t number, bool registration, F&& device_call);
  /// Does what the call's acquisition asks for.
  void go(std::uint32_t number, AcquireStep step);
  void retire_next(std::uint32_t number);
  void resume_waiters();

  const ProcessSettings& settings_;
  Events& events_;
  Domains& domains_;
  Observer& observer_;
  runlog::Counters& counters_;
  CallUser* helper_ = nullptr;
  CallUser* threads_ = nullptr;
  std::deque<Call> calls_ = std::deque<Call>(1);  ///< the helper's, and one for each thread
  std::list<std::uint32_t> waiting_;              ///< for other calls
};

}  // namespace pinion::simulate
