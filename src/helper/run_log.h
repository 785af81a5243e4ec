// The log of a run, as the helper writes it: events in the log's own form, call sites as they are met, and
// the figures now and then. Owns the writer. One thread at a time: the engine while it starts, then the
// helper.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_set>

#include "base/error.h"
#include "callsite/call_site.h"
#include "lease/domain_table.h"
#include "lease/meter.h"
#include "runlog/writer.h"

namespace pinion {

class RunLog {
 public:
  explicit RunLog(Meter& meter) : meter_(meter) {}

  Error open(const std::string& directory, const runlog::RunInfo& info, std::uint64_t bytes) {
    return writer_.open(directory, info, bytes);
  }

  bool is_open() const { return writer_.is_open(); }
  /// Domains still missing in the log's table.
  void add_domains(const DomainTable& domains);
  /// A domain's share, for the next publish() or finish().
  void set_domain(const DomainSlot& slot, const runlog::Counters& share);

  void note_stop(Time now) { writer_.note_stop(now); }
  void set_acts(runlog::Acts acts, const char* retention, const std::string& device) {
    writer_.set_acts(acts, retention, device);
  }

  void add(const runlog::Event& event);
  std::uint64_t events_dropped() const { return writer_.events_dropped(); }

  void publish(const runlog::Counters& counters, Time now);
  /// The last state. `pinned`: bytes that the kernel still counts.
  void finish(const runlog::Counters& counters, Time now, std::uint64_t pinned);

 private:
  void add_site(CallSite site);

  Meter& meter_;
  runlog::LogWriter writer_;
  std::unordered_set<CallSite> known_sites_;
};

}  // namespace pinion
