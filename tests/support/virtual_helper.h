// A simulated process (simulate/process.h) for tests: its threads' transfers are added as the test goes, and
// everything that happens is kept. Deterministic: equal scripts give equal runs. Not thread-safe.
#pragma once

#include <algorithm>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "retention/helper_retention.h"
#include "simulate/process.h"

namespace pinion::test {

/// Pages of an imaginary memory far from address 0.
inline Range virtual_pages(std::size_t first, std::size_t count) {
  constexpr Address kBase = Address{1} << 40;
  return {kBase + first * page_size(), kBase + (first + count) * page_size()};
}

/// A number of bytes over time.
class Level {
 public:
  void set(Time time, std::uint64_t bytes) {
    if (!steps_.empty() && steps_.back().time == time) {
      steps_.back().bytes = bytes;
    } else {
      steps_.push_back({time, bytes});
    }
  }
  void change(Time time, std::int64_t bytes) { set(time, now() + static_cast<std::uint64_t>(bytes)); }
  /// It is certain now that the number has been higher by `bytes` since `since`.
  void change_since(Time since, std::int64_t bytes) {
    auto step = std::find_if(steps_.begin(), steps_.end(), [&](const Step& s) { return s.time >= since; });
    if (step == steps_.end() || step->time != since)
      step = steps_.insert(step, {since, step == steps_.begin() ? 0 : std::prev(step)->bytes});
    for (; step != steps_.end(); ++step) step->bytes += static_cast<std::uint64_t>(bytes);
  }
  std::uint64_t now() const { return steps_.empty() ? 0 : steps_.back().bytes; }
  /// Returns the peak of [from, to): levels of zero length are left out.
  std::uint64_t peak(Time from, Time to) const {
    std::uint64_t peak = 0;
    for_each(from, to, [&](std::uint64_t bytes, Duration) { peak = std::max(peak, bytes); });
    return peak;
  }
  double mean(Time from, Time to) const {
    double sum = 0;
    for_each(from, to, [&](std::uint64_t bytes, Duration held) {
      sum += static_cast<double>(bytes) * static_cast<double>(held);
    });
    return sum / static_cast<double>(to - from);
  }

 private:
  struct Step {
    Time time;
    std::uint64_t bytes;
  };
  template <class F>
  void for_each(Time from, Time to, F&& f) const {
    for (std::size_t i = 0; i < steps_.size(); ++i) {
      const Time begin = std::max(from, steps_[i].time);
      const Time end = i + 1 < steps_.size() ? std::min(to, steps_[i + 1].time) : to;
      if (begin < end) f(steps_[i].bytes, end - begin);
    }
  }
  std::vector<Step> steps_;
};

class VirtualHelper final : private simulate::Observer {
 public:
  struct Settings {
    /// UCX's model of an InfiniBand device, as the priors of CostEstimates have it.
    CostModel nic = {"virtual", 246, 16000, 62, 4000, {}};
    std::string predictor = "shortest";
    unsigned window = 2;
    TimeBudget::Settings time_budget = {.share = TimeBudget::kUnbounded, .core_idle = true};
    Duration wake_cost = 0, record_cost = 0;  ///< of the helper
    std::uint64_t limit = UINT64_MAX;
    RetentionKind retention = RetentionKind::helper;
    bool own_core = true;
    Duration poll = 0;  ///< 0: the helper sees a record at once
    std::size_t ring = 256;
    Time start = kSecond;
    std::function<Duration()> wake_latency = [] { return Duration{0}; };
    /// The length of a device call, `modelled` by the device. Empty: just that.
    std::function<Duration(Actor, bool registration, Duration modelled)> call_time = {};
  };

  struct Transfer {
    std::uint64_t site = 0;
    Range range;
    Duration compute = 0;   ///< by the thread, since its previous call
    Time not_before = 0;    ///< absolute
    Duration duration = 0;  ///< from lease to release
    bool blocking = true;   ///< false: the thread goes on while the transfer runs
    std::uint16_t thread = 0;
    CallKind call = CallKind::send;
    Access access = Access::read;
  };

  struct Served {
    Time asked = 0, leased = 0;
    runlog::Outcome outcome = runlog::Outcome::hit;
    bool late =
        false;  ///< a reuse that was not registered in time; known once the helper has seen its record
  };
  struct DeviceCall {
    Time begin, end;
    Range pages;
    bool registration;
    bool failed;
    Actor actor;
  };

  explicit VirtualHelper(Settings settings)
      : process_({.retention = settings.retention,
                  .nic = settings.nic,
                  .limit = settings.limit,
                  .time_budget = settings.time_budget,
                  .helper_cpu = {settings.wake_cost, settings.record_cost},
                  .delays_threads = settings.own_core ? 0 : settings.time_budget.delay,
                  .poll = settings.poll,
                  .ring = settings.ring,
                  .start = settings.start,
                  .wake_latency = settings.wake_latency,
                  .call_time = settings.call_time},
                 make_predictor(settings.predictor, settings.window, 4), *this) {
    registered_.set(settings.start, 0);
    leave_pinned_.set(settings.start, 0);
  }

  // ---- the script ----

  /// Appends to its thread's program.
  void add(const Transfer& transfer) {
    for (std::size_t thread = programs_.size(); thread <= transfer.thread; ++thread)
      process_.add_thread(programs_.emplace_back());
    programs_[transfer.thread].transfers.push_back(transfer);
    process_.resume(transfer.thread);
  }
  /// Does something at that time.
  void at(Time time, std::function<void()> what) { process_.at(time, std::move(what)); }

  /// Runs until the programs have ended and every transfer is complete. The helper's later plans wait.
  void run() {
    while (process_.running()) step();
  }
  void run_until(Time time) {
    while (process_.next_event() <= time) step();
    process_.pass(time);
  }
  /// run(), then everything idle is let go.
  void finish() {
    run();
    process_.finish();
  }
  /// Called after each event.
  std::function<void()> after_each = [] {};

  /// A memory event, as the hooks report it.
  void change_memory(Range range) { process_.change_memory(range); }

  // ---- what happened ----

  Time now() { return process_.now(); }
  /// The acquires, by number.
  const std::deque<Served>& served() const { return served_; }
  const std::vector<DeviceCall>& device_calls() const { return calls_; }
  const Level& registered() const { return registered_; }
  /// The union of pages ever leased, shrunk by memory events only.
  const Level& leave_pinned() const { return leave_pinned_; }
  /// Late transfers among those asked for at `from` or later.
  std::size_t late(Time from = 0) const {
    return static_cast<std::size_t>(std::count_if(served_.begin(), served_.end(), [&](const Served& served) {
      return served.late && served.asked >= from;
    }));
  }
  std::size_t calls(bool registration, Actor actor) const {
    return static_cast<std::size_t>(std::count_if(calls_.begin(), calls_.end(), [&](const DeviceCall& call) {
      return call.registration == registration && call.actor == actor && !call.failed;
    }));
  }
  template <class F>
  void for_each_lease(F&& f) const {
    process_.for_each_lease(f);
  }

  HelperRetention& retention() { return static_cast<HelperRetention&>(process_.retention()); }
  Domain& domain() { return process_.domain(); }
  ModelDevice& device() { return process_.device(); }
  const Budget& budget() { return process_.budget(); }
  const TimeBudget& time_budget() const { return process_.time_budget(); }
  runlog::Counters counters() { return process_.counters(); }

 private:
  /// A blocking transfer is an acquire and a release; another one lasts by itself.
  struct Program final : simulate::Script {
    std::deque<Transfer> transfers;
    bool leased = false;

    bool next(simulate::Operation& operation) override {
      operation = {};
      if (transfers.empty()) return false;
      const Transfer transfer = transfers.front();
      if (leased) {
        operation.kind = simulate::Operation::Kind::release;
        operation.transfer = transfer.duration;
      } else {
        operation.call = transfer.call;
        operation.access = transfer.access;
        operation.site = transfer.site;
        operation.range = transfer.range;
        operation.compute = transfer.compute;
        operation.not_before = transfer.not_before;
        if (!transfer.blocking) operation.lasts = transfer.duration;
      }
      leased = !leased && transfer.blocking;
      if (!leased) transfers.pop_front();
      return true;
    }
  };

  void step() {
    process_.step();
    after_each();
  }

  void registered(Time, Time since, std::int64_t bytes) override { registered_.change_since(since, bytes); }
  void left_pinned(Time now, std::int64_t bytes) override { leave_pinned_.change(now, bytes); }
  void acquired(std::uint64_t number, Time asked, Time leased, runlog::Outcome outcome) override {
    if (number >= served_.size()) served_.resize(number + 1);
    served_[number] = {asked, leased, outcome, false};
  }
  void found_late(std::uint64_t number) override { served_[number].late = true; }
  void device_call(Time begin, Time end, Range pages, bool registration, bool failed, Actor actor) override {
    calls_.push_back({begin, end, pages, registration, failed, actor});
  }

  Level registered_, leave_pinned_;
  std::deque<Served> served_;
  std::vector<DeviceCall> calls_;
  std::deque<Program> programs_;
  simulate::Process process_;
};

}  // namespace pinion::test
