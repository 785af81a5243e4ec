// The monitors whose events come from the replacements of libc_hooks.h: called instead of libc's functions,
// because those were redirected or because a preloaded library's symbols come before them.
#include <utility>

#include "monitor/loader.h"
#include "monitor/monitors.h"
#include "monitor/patch_exposure.h"

namespace pinion {

namespace {

class LibcMonitor final : public MemoryMonitor {
 public:
  const char* name() const override { return "libc"; }
  std::vector<const char*> blind_spots() const override { return hook_blind_spots(); }
  HookReport start(const HookCallbacks& callbacks) override {
    const HookReport report = install_libc_hooks(callbacks);
    is_installer_ = hooks_call(callbacks);
    return with_loader(report, watch_loader(callbacks));
  }
  void stop() override {
    if (!is_installer_) return;
    uninstall_libc_hooks();
    unwatch_loader();
  }
  HookReport self_test() override { return with_loader(test_memory_events(), test_loader()); }
  bool intact() const override { return hooks_intact() && loader_watched(); }
  bool exposed() const override { return hooks_exposed(); }
  HookReport repair() override { return with_loader(reinstall_hooks(), rewatch_loader()); }

 private:
  /// The dynamic linker's unmappings go past libc.
  static HookReport with_loader(const HookReport& report, const Error& unseen) {
    std::vector<HookStatus> rows = report.rows;
    rows.push_back({"unloading of a library", unseen ? HookState::failed : HookState::good, unseen});
    HookReport both = summarize(std::move(rows));
    if (report.error) both.error = report.error;
    return both;
  }

  bool is_installer_ = false;  ///< else other code has installed the hooks, and will take them away
};

class SymbolsMonitor final : public MemoryMonitor {
 public:
  const char* name() const override { return "symbols"; }
  std::vector<const char*> blind_spots() const override {
    auto spots = hook_blind_spots();
    spots.insert(spots.begin(), "calls of libc's own (free, malloc_trim, realloc, the end of threads)");
    return spots;
  }
  HookReport start(const HookCallbacks& callbacks) override { return install_symbols(callbacks); }
  void stop() override { uninstall_libc_hooks(); }
  HookReport self_test() override { return test_memory_events(); }
};

}  // namespace

std::vector<const char*> hook_blind_spots() {
  return {"system calls made without libc", "io_uring's madvise",
          "mapped files that other processes or O_TRUNC cut", "userfaultfd's moves"};
}

MemoryMonitor& libc_monitor() {
  static LibcMonitor monitor;
  return monitor;
}

MemoryMonitor& symbols_monitor() {
  static SymbolsMonitor monitor;
  return monitor;
}

}  // namespace pinion
