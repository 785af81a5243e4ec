// The log of a run, as the helper writes it: events in the log's own form, call sites as they are met, and
// the figures now and then. Owns the writer. One thread at a time: the engine while it starts, then the
// helper.
#pragma once

#include <cstdint>
#include <unordered_set>

#include "base/error.h"
#include "base/range.h"
#include "engine/meter.h"
#include "predict/call_site.h"
#include "retention/record.h"
#include "runlog/writer.h"

namespace pinion {

class RunLog {
 public:
  explicit RunLog(Meter& meter) : meter_(meter) {}

  Error open(const std::string& directory, const runlog::RunInfo& info, std::uint64_t bytes) {
    return writer_.open(directory, info, bytes);
  }

  /// A record of thread number `thread`.
  void add(const Record& record, std::uint16_t thread);
  void add_memory_event(Range range, Time time);
  /// A device call of the helper's.
  void add_device_call(int domain, Range pages, bool registration, const Error& error, Time begin, Time end);
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
