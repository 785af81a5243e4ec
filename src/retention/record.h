// The records that application threads leave for the helper: one a transfer (an item of the paper's
// deregistration queue), a device call on the critical path, or a memory event. Plain data in raw ticks; made
// in a few stores. From the ring on it is an event (runlog/format.h), for retention and for the log alike.
#pragma once

#include <algorithm>
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

/// One cache line in the ring.
struct Record {
  Ticks begin = 0;  ///< acquire, or begin of the device call
  Ticks end = 0;    ///< release, or end of the device call
  Address address = 0;
  std::uint64_t site = 0;

  // Words of bit fields. A field of a small type must not cross a boundary of that type.
  std::uint64_t region_line : 42 = 0;  ///< of the region that served the transfer (region());
                                       ///< of a device call: page_bytes()
  std::uint64_t region_generation : RegionWord::kGenerationBits = 0;
  Access access : 3 = Access::read;

  std::uint64_t bytes : 56 = 0;  ///< enough for all addresses of a program (five levels of page tables)
  CallKind call : 8 = CallKind::none;

  std::uint8_t flags : 8 = 0;
  runlog::EventKind kind : 4 = runlog::EventKind::none;
  runlog::Outcome outcome : 3 = runlog::Outcome::hit;
  std::uint64_t domain : 4 = 0;    ///< the engine's number of the domain
  std::uint64_t delayed : 45 = 0;  ///< how long registration had made the thread wait before, in all: ticks;
                                   ///< of a device call: entries()

  std::uint64_t wait : 36 = 0;  ///< of the acquire, beyond a hit, at most kMostWait: ticks;
                                ///< of a device call: preempted()
  std::int64_t peer : 28 = -1;

  static constexpr Ticks kMostWait = (Ticks{1} << 36) - 1;  ///< some 20 s
  static constexpr std::uint64_t kMostBytes = (std::uint64_t{1} << 56) - 1;

  /// The translation entries of a device call's registration.
  std::uint64_t entries() const { return delayed; }
  void set_entries(std::uint32_t entries) { delayed = entries; }

  /// The part of a device call's time in which the kernel ran something else.
  Duration preempted() const { return static_cast<Duration>(wait); }
  void set_preempted(Duration lost) { wait = std::min(static_cast<Ticks>(lost), kMostWait); }

  /// DeviceCall::page_bytes of a device call.
  std::size_t page_bytes() const { return region_line; }

  /// The region that served the transfer.
  RegionRef region() const {
    return {reinterpret_cast<Region*>(static_cast<std::uintptr_t>(region_line) * alignof(Region)),
            static_cast<std::uint32_t>(region_generation)};
  }
  void set_region(const RegionRef& ref) {
    static_assert(alignof(Region) == 64);
    region_line = reinterpret_cast<std::uintptr_t>(ref.region) / alignof(Region);  // slab.h: below 2^48
    region_generation = ref.generation;
  }
};
static_assert(sizeof(Record) == 64);
static_assert(runlog::kMaxDomains <= 16);

/// The record is of a transfer whose memory was still unregistered.
inline bool is_unforeseen(const Record& record) {
  return record.kind == runlog::EventKind::lease &&
         (record.outcome == runlog::Outcome::miss || record.outcome == runlog::Outcome::wait);
}

/// A record that has left its ring, with the number of its thread.
struct TakenRecord {
  Record record;
  std::uint16_t thread = 0;
};

/// The record of a memory event.
inline Record memory_event_at(Ticks time, Range range) {
  Record record;
  record.begin = record.end = time;
  // "Everything" ends where addresses do; a call that the kernel refuses may name anything.
  record.address = std::min(range.begin, kAddressEnd);
  record.bytes = std::min<std::uint64_t>(std::clamp(range.end, record.address, kAddressEnd) - record.address,
                                         Record::kMostBytes);
  record.kind = runlog::EventKind::memory_event;
  return record;
}

/// The record of a device call, made for the transfer of record `transfer` (a default one: on its own).
inline Record record_of(const DeviceCall& call, const Record& transfer) {
  Record record = transfer;
  record.begin = call.begin;
  record.end = call.end;
  record.address = call.pages.begin;
  record.bytes = call.pages.bytes();
  record.kind = call.registration ? runlog::EventKind::registration : runlog::EventKind::deregistration;
  record.flags = call.error ? runlog::kFailed : std::uint8_t{0};
  record.region_line = call.page_bytes;
  record.set_entries(call.entries);
  record.set_preempted(call.preempted);
  return record;
}

/// The record as the log keeps it and retention learns from it: times in ns. Only `late` is still missing in
/// its flags, which retention finds out.
inline runlog::Event event_of(const TakenRecord& taken, const Calibration& scale) {
  const Record& record = taken.record;
  runlog::Event event{};
  event.begin_ns = scale.to_time(record.begin);
  event.end_ns = scale.to_time(record.end);
  event.address = record.address;
  event.bytes = record.bytes;
  event.site = record.site;
  const bool lease = record.kind == runlog::EventKind::lease;
  event.wait_ns = static_cast<std::uint64_t>(lease ? scale.to_duration(record.wait) : record.preempted());
  event.peer = record.peer;
  event.thread = taken.thread;
  event.kind = record.kind;
  event.call = static_cast<std::uint8_t>(record.call);
  event.outcome = record.outcome;
  event.flags = record.flags;
  event.access = static_cast<std::uint8_t>(record.access) & 7U;
  event.domain = record.domain;
  return event;
}

/// Returns the lease of a record whose times are known, and notes whether its memory went away meanwhile.
inline RegionWord::Released end_lease(Domain& domain, Record& record) {
  Region* region = record.region().region;
  if (region->memory_changed.load(std::memory_order_relaxed)) [[unlikely]]
    record.flags |= runlog::kMemoryGone;
  return domain.release(region, record.begin, record.end);
}

/// The outcome of an acquire that went through the registry's steps.
inline runlog::Outcome outcome_of(bool registered_here, bool waited) {
  return registered_here ? runlog::Outcome::miss : waited ? runlog::Outcome::wait : runlog::Outcome::hit;
}

}  // namespace pinion
