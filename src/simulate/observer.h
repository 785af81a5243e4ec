// Receives the events of a simulated process. Its caller owns it; one thread.
#pragma once

#include <cstdint>

#include "base/clock.h"
#include "base/range.h"
#include "device/device.h"
#include "retention/record.h"
#include "runlog/format.h"

namespace pinion::simulate {

/// Events come in order of time except where noted. Byte counts are changes.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void registered(Time, Time /*since*/, std::int64_t /*bytes*/) {}
  /// Pages ever leased, less memory events.
  virtual void left_pinned(Time, std::int64_t /*bytes*/) {}
  /// Pages that an oracle would hold: in order of time too, but reported only when certain.
  virtual void oracle_held(Time, std::int64_t /*bytes*/) {}
  virtual void acquired(std::uint64_t /*number of the acquire*/, Time /*asked*/, Time /*leased*/,
                        runlog::Outcome) {}
  /// A lease has ended.
  virtual void used(const TakenRecord&) {}
  /// The helper has taken a record: an event of a log, in the order of its looks.
  virtual void logged(const runlog::Event&) {}
  /// The acquire had been predicted, or seen before, and was not registered in time.
  virtual void found_late(std::uint64_t /*number of the acquire*/) {}
  virtual void device_call(Time /*begin*/, Time /*end*/, Range, bool /*registration*/, bool /*failed*/,
                           Actor) {}
};

}  // namespace pinion::simulate
