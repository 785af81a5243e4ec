#include "monitor/monitor.h"

#include <atomic>
#include <cerrno>
#include <utility>

#include "base/process_mutex.h"
#include "monitor/loader.h"
#include "monitor/monitors.h"
#include "monitor/own_calls.h"
#include "monitor/userfault.h"

namespace pinion {

namespace {

/// Replacements of libc's functions, and userfaultfd for the calls that bypass them.
class Together final : public MemoryMonitor {
 public:
  Together(const char* name, MemoryMonitor& hooks) : name_(name), hooks_(hooks) {}

  const char* name() const override { return name_; }
  /// Blind spots of both, in the words of the hooks; the kernel sees all calls that reach it.
  std::vector<const char*> blind_spots() const override {
    return {
        "mprotect, shmdt, and shmat or remap_file_pages over a mapping, where libc is not called for them",
        "mapped files that other processes, O_TRUNC or calls past libc cut", "userfaultfd's moves"};
  }
  HookReport start(const HookCallbacks& callbacks) override {
    kernel_sees_rest_ = false;
    std::vector<HookStatus> rows = kernel_.start(callbacks).rows;
    kernel_row_ = rows.front();
    std::vector<HookStatus> hooks = hooks_.start(callbacks).rows;
    rows.insert(rows.end(), hooks.begin(), hooks.end());
    return summarize(std::move(rows));
  }
  void stop() override {
    hooks_.stop();
    kernel_.stop();
  }
  /// Watching memory needs userfaultfd, even beside complete hooks.
  HookReport self_test() override {
    if (kernel_row_.state == HookState::failed) return summarize({kernel_row_});
    return test_memory_events(watch_by_userfaultfd);
  }
  bool intact() const override { return kernel_sees_rest_ || hooks_.intact(); }
  bool exposed() const override { return !kernel_sees_rest_ && hooks_.exposed(); }
  /// Restores the hooks; if that fails, the kernel may see enough.
  HookReport repair() override {
    const HookReport kernel = kernel_.repair();
    if (!kernel.complete) return kernel;
    const HookReport report = hooks_.repair();
    if (report.complete || report.error.code == EAGAIN) return report;
    const HookReport tested = self_test();
    kernel_sees_rest_ = tested.complete;
    return tested;
  }
  Error watch(Range pages) override { return kernel_.watch(pages); }

 private:
  const char* const name_;
  MemoryMonitor& hooks_;
  MemoryMonitor& kernel_ = userfaultfd_monitor();
  HookStatus kernel_row_{"userfaultfd", HookState::failed, {}};  ///< whether it was started
  std::atomic<bool> kernel_sees_rest_{false};
};

StartedMonitor start_and_test(MonitorKind kind, const HookCallbacks& callbacks) {
  MemoryMonitor& monitor = monitor_of(kind);
  const HookReport started = monitor.start(callbacks);
  const HookReport tested = monitor.self_test();
  if (tested.complete) return {&monitor, {}};
  // The failure to put a hook in place explains more than the event missed for it.
  const bool is_cause = started.error && started.error.code != EBUSY;
  return {&monitor, is_cause ? started.error : tested.error};
}

constinit ProcessMutex changing;  // guards the automatic monitor, but for reading its choice

class Automatic final : public MemoryMonitor {
 public:
  const char* name() const override { return current().name(); }
  std::vector<const char*> blind_spots() const override { return current().blind_spots(); }
  const MemoryMonitor& chosen() const override { return current(); }

  HookReport start(const HookCallbacks& callbacks) override {
    const ProcessLock lock(changing);
    callbacks_ = callbacks;
    missing_ = choose();
    report_loads(on_libc());
    return summarize({{name(), missing_ ? HookState::failed : HookState::good, missing_}});
  }
  void stop() override {
    const ProcessLock lock(changing);
    report_loads(false);
    current().stop();
  }
  HookReport self_test() override { return current().self_test(); }
  bool intact() const override { return current().intact(); }
  bool exposed() const override { return current().exposed(); }
  bool knows_code() override { return !on_libc() || look_at_loaded_code(kAtOnce).complete; }
  HookReport repair() override {
    const HookReport report = current().repair();
    if (!report.complete || !on_libc()) return report;
    const Error doubt = own_calls_found();
    return doubt ? take_userfaultfd(doubt) : report;
  }
  Error watch(Range pages) override { return current().watch(pages); }

  Error missing() const { return missing_; }
  Error keep_to_libc() {
    const ProcessLock lock(changing);
    if (!on_libc()) return Error::make(ENOTSUP, "memory events are seen by %s", name());
    only_libc_ = true;
    return {};
  }

 private:
  /// Read at a time: some 10 ms.
  static constexpr std::size_t kAtOnce = std::size_t{32} << 20;

  MemoryMonitor& current() const { return *current_.load(std::memory_order_acquire); }
  bool on_libc() const { return &current() == &libc_monitor(); }

  /// The error: an event that is missed still.
  Error choose() REQUIRES(changing) {
    current_.store(&libc_monitor(), std::memory_order_release);
    Error missing = start_and_test(MonitorKind::libc, callbacks_).missing;
    // Code beyond this stays in doubt until it is read (knows_code()).
    if (!missing) missing = look_at_loaded_code(kAtOnce).own_calls;
    if (!missing || only_libc_ || userfaultfd_refused()) return missing;
    libc_monitor().stop();
    const auto beside =
        symbols_are_preloaded() ? MonitorKind::symbols_userfaultfd : MonitorKind::libc_userfaultfd;
    const StartedMonitor both = start_and_test(beside, callbacks_);
    if (!both.missing) {
      current_.store(both.monitor, std::memory_order_release);
      return {};
    }
    // A gap remains this way too, so more threads and slower unmapping would be in vain.
    both.monitor->stop();
    static_cast<void>(start_and_test(MonitorKind::libc, callbacks_));
    return missing;
  }

  /// Called while all registrations are in doubt.
  HookReport take_userfaultfd(const Error& doubt) {
    const ProcessLock lock(changing);
    if (!on_libc()) return complete_report();
    MemoryMonitor& both = monitor_of(MonitorKind::libc_userfaultfd);
    if (!only_libc_ && !userfaultfd_refused() &&
        !start_and_test(MonitorKind::libc_userfaultfd, callbacks_).missing) {
      current_.store(&both, std::memory_order_release);
      report_loads(false);
      return complete_report();
    }
    return summarize({{"code that goes past libc", HookState::failed, doubt}});
  }

  std::atomic<MemoryMonitor*> current_{&libc_monitor()};
  HookCallbacks callbacks_ GUARDED_BY(changing);
  Error missing_;
  bool only_libc_ GUARDED_BY(changing) = false;
};

Automatic& automatic() {
  static Automatic monitor;
  return monitor;
}

}  // namespace

MemoryMonitor& monitor_of(MonitorKind kind) {
  static Together libc_userfaultfd("libc+userfaultfd", libc_monitor());
  static Together symbols_userfaultfd("symbols+userfaultfd", symbols_monitor());
  switch (kind) {
    case MonitorKind::automatic:
      return automatic();
    case MonitorKind::libc:
      break;
    case MonitorKind::libc_userfaultfd:
      return libc_userfaultfd;
    case MonitorKind::symbols:
      return symbols_monitor();
    case MonitorKind::symbols_userfaultfd:
      return symbols_userfaultfd;
    case MonitorKind::userfaultfd:
      return userfaultfd_monitor();
    case MonitorKind::brackets:
      return brackets_monitor();
  }
  return libc_monitor();
}

StartedMonitor start_monitor(MonitorKind kind, const HookCallbacks& callbacks) {
  if (kind != MonitorKind::automatic) return start_and_test(kind, callbacks);
  automatic().start(callbacks);
  return {&automatic(), automatic().missing()};
}

Error keep_to_libc() { return automatic().keep_to_libc(); }

}  // namespace pinion
