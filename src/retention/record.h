// What an application thread leaves behind for the helper: one record a transfer (an item of the paper's
// deregistration queue), a device call on the critical path, or a memory event. Plain data in raw ticks; made
// in a few stores. From the ring on it is an event (runlog/format.h), for retention and for the log alike.
#pragma once

#include <cstdint>

#include "base/access.h"
#include "base/call_kind.h"
#include "base/clock.h"
#include "base/range.h"
#include "registry/device_call.h"
#include "registry/domain.h"
#include "registry/region.h"
#include "runlog/format.h"

namespace pinion {

struct Record {
  Ticks begin = 0;    ///< acquire, or begin of the device call
  Ticks end = 0;      ///< release, or end of the device call
  Ticks wait = 0;     ///< of the acquire, beyond a hit
  Ticks delayed = 0;  ///< how long registration had made the thread wait before, in all
  Address address = 0;
  std::size_t bytes = 0;
  std::uint64_t site = 0;
  RegionRef region;  ///< what served the transfer
  std::int32_t peer = -1;
  runlog::EventKind kind = runlog::EventKind::none;
  CallKind call = CallKind::none;
  runlog::Outcome outcome = runlog::Outcome::hit;
  Access access = Access::read;
  std::uint8_t flags = 0;
  std::uint8_t domain = 0;   ///< the engine's number of the domain
  std::uint16_t thread = 0;  ///< filled in by the taker of the ring: the thread's number
};

/// The record of a device call, made for the transfer of record `transfer`, or for none.
Record record_of(const DeviceCall& call, const Record& transfer);

/// The record as the log keeps it and retention learns from it: times in ns. Only `late` is still missing in
/// its flags, which retention finds out.
runlog::Event event_of(const Record& record, const Calibration& scale);

/// Returns the lease of a record whose times are known, and notes whether its memory went away meanwhile.
inline RegionWord::Released end_lease(Domain& domain, Record& record) {
  Region* region = record.region.region;
  region->used(record.begin, record.end);
  if (region->memory_changed.load(std::memory_order_relaxed)) [[unlikely]]
    record.flags |= runlog::kMemoryGone;
  return domain.release(region);
}

/// The outcome of an acquire that went through the registry's steps.
inline runlog::Outcome outcome_of(bool registered_here, bool waited) {
  return registered_here ? runlog::Outcome::miss : waited ? runlog::Outcome::wait : runlog::Outcome::hit;
}

}  // namespace pinion
