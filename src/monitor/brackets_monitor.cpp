// No monitor: the program brackets every change by pinion_memory_begin and pinion_memory_end, and vouches for
// that by naming this monitor.
#include "monitor/monitors.h"

namespace pinion {

namespace {

class BracketsMonitor final : public MemoryMonitor {
 public:
  const char* name() const override { return "brackets"; }
  std::vector<const char*> blind_spots() const override {
    return {"everything that the program does not bracket by pinion_memory_begin and pinion_memory_end"};
  }
  HookReport start(const HookCallbacks&) override { return complete_report(); }
  void stop() override {}
  HookReport self_test() override { return complete_report(); }
};

}  // namespace

MemoryMonitor& brackets_monitor() {
  static BracketsMonitor monitor;
  return monitor;
}

}  // namespace pinion
