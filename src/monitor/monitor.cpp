#include "monitor/monitor.h"

#include <atomic>
#include <utility>

#include "monitor/monitors.h"
#include "monitor/userfault.h"

namespace pinion {

namespace {

/// Replacements of libc's functions, and userfaultfd for what goes past them.
class Together final : public MemoryMonitor {
 public:
  Together(const char* name, MemoryMonitor& hooks) : name_(name), hooks_(hooks) {}

  const char* name() const override { return name_; }
  /// What both are blind to, in the words of the hooks; the kernel sees all calls that reach it.
  std::vector<const char*> blind_spots() const override {
    return {
        "mprotect, shmdt, and shmat or remap_file_pages over a mapping, where libc is not called for them",
        "files truncated or punched under a mapping", "userfaultfd's moves"};
  }
  HookReport start(const HookSink& sink) override {
    kernel_sees_rest_ = false;
    std::vector<HookStatus> rows = kernel_.start(sink).rows;
    kernel_row_ = rows.front();
    std::vector<HookStatus> hooks = hooks_.start(sink).rows;
    rows.insert(rows.end(), hooks.begin(), hooks.end());
    return summarize(std::move(rows));
  }
  void stop() override {
    hooks_.stop();
    kernel_.stop();
  }
  /// Without userfaultfd no memory can be watched, whatever the hooks see.
  HookReport self_test() override {
    if (kernel_row_.state == HookState::failed) return summarize({kernel_row_});
    return test_memory_events(watch_by_userfaultfd);
  }
  bool intact() const override { return kernel_sees_rest_ || hooks_.intact(); }
  bool exposed() const override { return !kernel_sees_rest_ && hooks_.exposed(); }
  /// The kernel may see what hooks that cannot be put back do not.
  HookReport repair() override {
    const HookReport report = hooks_.repair();
    if (report.complete) return report;
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

StartedMonitor start_and_test(MonitorKind kind, const HookSink& sink) {
  MemoryMonitor& monitor = monitor_of(kind);
  const HookReport started = monitor.start(sink);
  const HookReport tested = monitor.self_test();
  if (tested.complete) return {&monitor, {}};
  // What could not be put in place says more than what was missed for it.
  const bool is_cause = started.error && started.error.code != EBUSY;
  return {&monitor, is_cause ? started.error : tested.error};
}

}  // namespace

MemoryMonitor& monitor_of(MonitorKind kind) {
  static Together libc_userfaultfd("libc+userfaultfd", libc_monitor());
  static Together symbols_userfaultfd("symbols+userfaultfd", symbols_monitor());
  switch (kind) {
    case MonitorKind::automatic:
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

StartedMonitor start_monitor(MonitorKind kind, const HookSink& sink) {
  if (kind != MonitorKind::automatic) return start_and_test(kind, sink);
  const StartedMonitor libc = start_and_test(MonitorKind::libc, sink);
  if (!libc.missing || userfaultfd_refused()) return libc;
  libc.monitor->stop();
  const auto beside =
      symbols_are_preloaded() ? MonitorKind::symbols_userfaultfd : MonitorKind::libc_userfaultfd;
  const StartedMonitor both = start_and_test(beside, sink);
  if (!both.missing) return both;
  // More threads and slower unmapping for nothing: not all is seen this way either.
  both.monitor->stop();
  return start_and_test(MonitorKind::libc, sink);
}

}  // namespace pinion
