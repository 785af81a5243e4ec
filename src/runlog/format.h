// The run log's file format, version 10: one file for all processes of a job on a node, written through
// mappings, read by untrusting readers. (On file systems with private mappings: a file for each process,
// written by calls; node_file.h.)
//
// The file is a row of chunks. Chunk 0 holds the NodeHeader; chunk 1, and every (kOwnersPerTable + 1)th from
// there, a table with the owner of each of the chunks after it; the others belong to a process each.
// A process's log is its chunks in their order:
//
//   ProcessHeader | DomainEntry[kMaxDomains] | LiveState[2] | ModuleEntry[kMaxModules] | padding |
//   SiteEntry[kMaxSites] | Event[...]
//
// It is true at every instant, so it survives kill -9: a chunk is there before the table names its owner; an
// event, a site or a domain is there before its count includes it. The live state has two copies, of which
// the header names the one that is whole. Little-endian, natural alignment, no pointers; chunks exist once
// the run reaches them. The event stream is the bounded part: when it is full, events are counted as
// dropped, and counters, peaks, means and the time series of the live state go on.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "base/collapse_refusal.h"
#include "base/range.h"
#include "runlog/lateness.h"

namespace pinion::runlog {

constexpr char kMagic[8] = {'P', 'I', 'N', 'I', 'O', 'N', 'L', 'G'};
constexpr std::uint32_t kVersion = 11;
/// The oldest version that is read: its counters end before `copies_to_gpu`, its call sites before `python`.
/// The counters of version 9 end before `passed`.
constexpr std::uint32_t kOldestVersion = 8;
/// The unit that processes take of the file; a multiple of every page size in use.
constexpr std::uint64_t kChunkBytes = 64 << 10;
constexpr std::uint64_t kOwnersPerTable = kChunkBytes / 8;
/// Most chunks, tables not counted: 1 TiB.
constexpr std::uint64_t kMaxChunks = 16 << 20;
constexpr std::uint32_t kSeriesBins = 1024;
constexpr std::uint32_t kMaxSites = 2048;
constexpr std::uint32_t kMaxFrames = 16;
constexpr std::uint32_t kMaxDomains = 16;
constexpr std::uint32_t kMaxModules = 32;
constexpr std::uint32_t kMostBuildIdBytes = 20;

enum class EventKind : std::uint8_t {
  none = 0,
  lease = 1,         ///< a transfer's use of a range: begin = acquire, end = release
  registration = 2,  ///< begin = call, end = return of the device
  deregistration = 3,
  memory_event = 4,  ///< the range was unmapped, remapped or dropped; end = begin
  uses = 5,          ///< `count` leases of equal range and origin: begin = first acquire, end = last release
  hold_begin = 6,    ///< `peer` may use the range remotely from now on; end = begin
  hold_end = 7,      ///< one hold of `peer` on the range has ended; end = begin
  transfer = 8,      ///< bytes moved: `call` names the operation, `protocol` the way; begin to completion
};
inline constexpr EventKind kLastKind = EventKind::transfer;

/// The answer to an acquire.
enum class Outcome : std::uint8_t {
  hit = 0,       ///< found registered
  wait = 1,      ///< waited for a registration in progress
  miss = 2,      ///< registered on the critical path
  bounced = 3,   ///< not backed by registration; a copy was charged
  observed = 4,  ///< retention observe: nothing was registered
};

/// Pinion's part in the registrations of the process.
enum class Acts : std::uint32_t {
  pinned = 0,    ///< registers for its transfers, with a device of its own
  measured = 1,  ///< records transfers; nothing is registered
  verbs = 2,     ///< answers the registrations of the program's libraries
  cuda = 3,      ///< makes the program's copies to and from GPUs
};
inline constexpr Acts kLastActs = Acts::cuda;

/// The way in which a transfer moves its bytes.
enum class Protocol : std::uint8_t {
  bounce = 0,      ///< through buffers that stay registered
  rendezvous = 1,  ///< both sides register, then one of them moves the bytes
  pipeline = 2,    ///< registration and transfer in overlapping parts
  prepared = 3,    ///< both sides were registered ahead
  direct = 4,      ///< one-sided, with a key that the process held already
};
inline constexpr Protocol kLastProtocol = Protocol::direct;

constexpr std::uint8_t kLate =
    1;  ///< flag of a lease: wait or miss although a use had been predicted (or seen) before
constexpr std::uint8_t kByHelper = 2;    ///< flag of a (de)registration: off the critical path
constexpr std::uint8_t kFailed = 4;      ///< flag of a device call: refused
constexpr std::uint8_t kMemoryGone = 8;  ///< flag of a lease: its memory changed while it was out
constexpr std::uint8_t kCharged = 16;    ///< flag of a bounced lease: the copy's time was charged only

struct Event {
  std::int64_t begin_ns;  ///< CLOCK_MONOTONIC
  std::int64_t end_ns;
  std::uint64_t address;
  std::uint64_t bytes;  ///< of the request (lease, each of the uses, transfer); otherwise of whole pages
  std::uint64_t site;   ///< hash of the call site's frames; 0: none
  union {
    std::uint64_t wait_ns;    ///< lease: time of the acquire on the critical path beyond a hit;
                              ///< device call: of its time, the kernel ran something else on the core
    std::uint64_t leased_ns;  ///< uses: time under lease, the sum over them
  };
  std::int32_t peer;  ///< rank of the other side in its communicator; -1: none or many
  std::uint16_t thread;
  EventKind kind;
  std::uint8_t call;  ///< lease, uses, transfer: CallKind
  union {
    Outcome outcome;
    Protocol protocol;  ///< transfer
  };
  std::uint8_t flags;
  std::uint8_t access : 3;
  /// The pages of a lease, uses or holds: the process's page size times 2^page_order. The range counts as
  /// whole ones (hugetlb memory, as its registrations met it). Otherwise 0.
  std::uint8_t page_order : 5;
  std::uint8_t domain;  ///< number in the table; a memory event has 0 and concerns all domains
  std::uint32_t count;  ///< uses: how many, at least 1; otherwise 0
};
static_assert(sizeof(Event) == 64);

/// Returns whether the event's range is that of a request, rather than of whole pages.
constexpr bool is_request(EventKind kind) {
  return kind == EventKind::lease || kind == EventKind::uses || kind == EventKind::hold_begin ||
         kind == EventKind::hold_end;
}

/// No kernel has larger hugepages.
constexpr std::uint64_t kLargestPage = std::uint64_t{16} << 30;

/// Notes the pages of a request that are larger than the system's; `around(Range)` returns those around its
/// range as a LargeRange.
template <class Around>
void note_pages(Event& event, Around&& around) {
  if (!is_request(event.kind)) return;
  const std::size_t bytes = around(Range{event.address, event.address + event.bytes}).page_bytes;
  if (bytes == 0) return;
  event.page_order = static_cast<std::uint8_t>(std::countr_zero(bytes) - std::countr_zero(page_size())) & 31U;
}

/// The whole pages of an event, by the page size of its process.
inline Range pages_of(const Event& event, std::uint64_t page_bytes) {
  const std::uint64_t mask = (page_bytes << event.page_order) - 1;
  return {event.address & ~mask, (event.address + event.bytes + mask) & ~mask};
}

/// Returns the number of leases that an event stands for.
constexpr std::uint64_t uses_of(const Event& event) {
  return event.kind == EventKind::lease ? 1 : event.kind == EventKind::uses ? event.count : 0;
}

struct SiteEntry {
  std::uint64_t hash;
  std::uint32_t frame_count;
  std::uint32_t first_frame;         ///< of the program; those before it are MPI's own
  std::uint64_t frames[kMaxFrames];  ///< return addresses, innermost first
  char name[240];                    ///< "function+0x12 (module) < caller ...", filled at the end of the run
  char python[96];                   ///< "train.py:41 in step", where Python called; filled with the name
};
static_assert(sizeof(SiteEntry) == 480);

/// A file of code that frames of call sites lie in: the program, or a library. Filled at the end of the run,
/// for readers with its debug information.
struct ModuleEntry {
  std::uint64_t begin, end;  ///< addresses in the process
  std::uint64_t bias;        ///< an address in the process, less the one in the file
  std::uint32_t build_id_bytes;
  std::uint8_t build_id[kMostBuildIdBytes];
  char path[208];
};
static_assert(sizeof(ModuleEntry) == 256);

/// A domain of the process. One that was closed keeps its entry; opened again, it has the same number.
struct DomainEntry {
  char device[64];        ///< its name, as for option `device`; of a device of the program's own: its kind
  char nic[64];           ///< as for option `nic`
  char description[240];  ///< the real effect of registering in it
  // Caps of the device; 0: none.
  std::uint64_t max_regions, max_region_bytes, max_bytes;
  std::uint64_t reserved[4];  ///< 0
};
static_assert(sizeof(DomainEntry) == 424);

/// The registered memory of a domain, and its share of the process's counters.
struct DomainState {
  std::uint64_t registered_peak_bytes, registered_now_bytes, regions_now;
  double registered_byte_ns;  ///< integral of registered bytes from start to `last_ns`
  std::uint64_t acquires, hits, waits, misses, bounced, observed;
  std::uint64_t registrations, deregistrations, registration_failures;
  // The helper's fit of t = a * pages + b for this domain's device, as used for decisions.
  double fit_register_a_ns, fit_register_b_ns, fit_deregister_a_ns, fit_deregister_b_ns;
  std::uint64_t reserved[6];  ///< 0
};

struct SeriesBin {
  std::uint64_t peak_bytes;
  double byte_ns;  ///< integral of registered bytes over the bin
};

/// Counters of one process over its run; times in ns. Kept by the engine; copied into the live state as the
/// run goes.
/// The ways of a copy between host memory and a GPU.
enum class CopyWay : std::uint8_t { plain, staged, registered };
inline constexpr unsigned kCopyWays = 3;

/// Copies of one way and direction, from the call to its return.
struct Copies {
  std::uint64_t count, bytes, ns;
};

/// Why a registration of the program's went on to its libibverbs.
enum class PassedFor : std::uint8_t {
  keys,    ///< its key ends with it
  device,  ///< no domain is to be had: a copy of libibverbs or a device that Pinion cannot use, or too many
  kind,    ///< on demand, zero-based, for windows, at another address for peers, or not valid
  room,    ///< a limit, the device or the memory refused Pinion
};
inline constexpr unsigned kPassedReasons = 4;

struct Passed {
  std::uint64_t count, bytes;  ///< bytes: of whole pages
};

/// The helper has turned memory into transparent hugepages.
struct Collapses {
  std::uint64_t bytes, cpu_ns;
  std::uint64_t longest_ns;                        ///< wall time of a call
  std::uint64_t refused_bytes[kCollapseRefusals];  ///< by CollapseRefusal: of whole units
};

struct Counters {
  std::uint64_t acquires, hits, waits, misses, late, bounced, observed;
  std::uint64_t registrations, deregistrations, registration_failures;
  std::uint64_t acquired_bytes, bounced_bytes;
  std::uint64_t wait_ns;          ///< for registrations in progress, and for memory events of other threads
  std::uint64_t registration_ns;  ///< registration on the critical path (deregistration on it included)
  std::uint64_t bounce_ns;        ///< modelled copies
  std::uint64_t bookkeeping_ns;  ///< signature, time stamps, lookup, lease, record: sum over sampled acquires
  std::uint64_t bookkeeping_samples;  ///< so the run's total is bookkeeping_ns * acquires / samples
  std::uint64_t helper_cpu_ns, helper_wakeups;
  std::uint64_t modelled_busy_ns;  ///< CPU burnt by the emulated NIC's waits on application threads
  std::uint64_t records_dropped, events_dropped, memory_events;
  std::uint64_t registered_peak_bytes, registered_now_bytes, regions_now, regions_peak;
  double registered_byte_ns;         ///< integral of registered bytes from start to `last_ns`
  std::uint64_t leave_pinned_bytes;  ///< union of pages ever leased, shrunk by memory events
  // Prediction: every reuse counts.
  std::uint64_t reuses, within_0_5, within_5, at_release_within_0_5, at_release_within_5;
  // Leave-pinned's own first registrations on the same stream, by the domains' fits.
  double leave_pinned_registration_ns;
  // Time budget of retention helper: allowed, spent on threads, and how often it kept a region registered.
  std::uint64_t budget_ns;
  std::int64_t budget_on_threads_ns;
  std::uint64_t budget_refused;
  // The helper's work while no core was idle, in time of the run (retention/costs.h).
  std::uint64_t helper_bound_ns;  ///< its own bound, which versions before had; otherwise 0
  std::uint64_t helper_charged_ns;
  std::uint64_t kernel_pinned_peak_bytes;  ///< VmPin + VmLck beyond those at the start, by samples
  std::uint64_t preempted_ns;  ///< of wait_ns and registration_ns: grown as the kernel ran something else
  Lateness lateness;           ///< of the helper's timed wake-ups
  // Registrations that the program made without Pinion, where they exceeded the limits: at most, and in all.
  std::uint64_t beyond_bytes, beyond_regions, beyond_ns;
  double exposed_byte_ns;  ///< integral of the bytes that peers could reach beyond the program's
                           ///< registrations
  std::uint64_t
      strict_keys_ns;  ///< registering each key for peers anew: measured where it was, else modelled
  // From here on since version 9.
  // By CopyWay. Calls that return before their copy is done are left out.
  Copies copies_to_gpu[kCopyWays], copies_from_gpu[kCopyWays];
  // Let go while the node was short of memory: in all, and in how many shortages.
  std::uint64_t pressure_released_bytes, pressure_releases;
  // Copies whose bytes were compared at both ends, and those of them that differed (option verify).
  std::uint64_t copies_verified, copies_differing;
  std::uint64_t kept_all_below_bytes;  ///< the minimum gain, where all stayed registered for it; 0: not so
  // From here on since version 10.
  Passed passed[kPassedReasons];  ///< by PassedFor: registrations of the program's that libibverbs made
  Collapses collapses;
  // From here on since version 11.
  std::uint64_t advised_bytes;  ///< mappings of the program's that were to lie in hugepages from the start
};

/// The common values and counters of all processes that share the file.
struct NodeHeader {
  char magic[8];
  std::uint32_t version;
  std::uint32_t chunk_bytes;
  std::uint32_t process_bytes;  ///< sizeof(ProcessHeader)
  std::uint32_t live_bytes;     ///< sizeof(LiveState)
  std::uint32_t site_bytes;     ///< sizeof(SiteEntry)
  std::uint32_t event_bytes;    ///< sizeof(Event)
  std::uint32_t domain_bytes;   ///< sizeof(DomainEntry)
  std::uint32_t module_bytes;   ///< sizeof(ModuleEntry)
  // Counted up atomically.
  std::uint64_t chunks;     ///< taken, tables not counted
  std::uint32_t processes;  ///< that have joined
  std::uint32_t one_each;   ///< 1: this file stays empty, and each process has one of its own beside it
};

struct ChunkOwner {
  std::uint32_t process;  ///< as the processes joined, from 1; 0: nobody's (or lost with a killed process)
  std::uint32_t index;    ///< of the chunk in the process's log
};
static_assert(sizeof(ChunkOwner) * kOwnersPerTable == kChunkBytes);

struct ProcessHeader {
  std::uint32_t begun;  ///< 1 when all that follows is there
  std::uint32_t run;    ///< the same in all processes of a run, on all its nodes; 0: unknown
  char pinion_version[16];
  char host[64];
  char command[512];
  char options[512];  ///< as format_options() writes it
  char retention[16];
  char predictor[16];
  char device[240];                       ///< the real effect of registering in the first domain of this run
  std::int32_t rank, ranks, local_ranks;  ///< -1 where unknown (no MPI)
  std::int32_t cores;
  std::uint32_t page_bytes;
  std::uint32_t process;
  std::uint64_t limit_bytes;  ///< of all domains together
  double ns_per_tick;         ///< calibration of the cycle counter against CLOCK_MONOTONIC
  std::uint64_t base_ticks;
  std::int64_t base_ns;
  double memcpy_bytes_per_ns;  ///< measured; the charge for a bounce
  std::int64_t start_ns;       ///< MPI_Init returned, or the first acquire

  // Stored with release, each after the data that it counts or names.
  std::uint64_t event_count;
  std::uint32_t site_count;
  std::uint32_t live;  ///< which LiveState is whole: 0 or 1
  std::uint32_t domain_count;
  std::uint32_t module_count;
  Acts acts;  ///< may change during the run, with `retention` and `device`
};

/// Kept online while the process runs, written as a whole.
struct LiveState {
  std::int64_t last_ns;        ///< end of the run, or when this state was written
  std::int64_t series_bin_ns;  ///< width of a bin; the first begins at start_ns
  std::uint64_t
      pinned_at_exit_bytes;  ///< VmPin + VmLck of the process at the end of the run, less that at its start
  std::uint32_t complete;    ///< 1: the run ended in order (Finalize or exit)
  /// Time into the run at which `pinion stop` made Pinion stand aside, at least 1 ms; 0: it did not.
  std::uint32_t stopped_after_ms;
  Counters counters;
  DomainState domains[kMaxDomains];  ///< those of the table; else 0
  SeriesBin series[kSeriesBins];
};

// Offsets in a process's log.
constexpr std::uint64_t domains_offset() { return 4096; }
constexpr std::uint64_t live_offset() { return 12288; }
/// The bytes that a LiveState of an older version lacks, before its `domains`.
constexpr std::uint64_t lacking_in(std::uint32_t version) {
  const std::uint64_t end = version < 9    ? offsetof(Counters, copies_to_gpu)
                            : version < 10 ? offsetof(Counters, passed)
                            : version < 11 ? offsetof(Counters, advised_bytes)
                                           : sizeof(Counters);
  return sizeof(Counters) - end;
}
constexpr std::uint64_t live_bytes(std::uint32_t version = kVersion) {
  return sizeof(LiveState) - lacking_in(version);
}
constexpr std::uint64_t modules_offset(std::uint32_t version = kVersion) {
  return live_offset() + 2 * live_bytes(version);
}
constexpr std::uint64_t sites_offset() { return kChunkBytes; }
/// The bytes of a SiteEntry: those of an older version end before `python`.
constexpr std::uint64_t site_bytes(std::uint32_t version = kVersion) {
  return version < 9 ? offsetof(SiteEntry, python) : sizeof(SiteEntry);
}
constexpr std::uint64_t events_offset(std::uint32_t version = kVersion) {
  return sites_offset() + kMaxSites * site_bytes(version);
}
static_assert(sizeof(ProcessHeader) <= domains_offset());
static_assert(domains_offset() + kMaxDomains * sizeof(DomainEntry) <= live_offset());
static_assert(modules_offset() + kMaxModules * sizeof(ModuleEntry) <= sites_offset());
static_assert(events_offset() % kChunkBytes == 0 && kChunkBytes % sizeof(Event) == 0);

/// The offset of chunk `number` in the file, and the offset of its owner in the table.
constexpr std::uint64_t table_offset(std::uint64_t number) {
  return (1 + number / kOwnersPerTable * (kOwnersPerTable + 1)) * kChunkBytes;
}
constexpr std::uint64_t chunk_offset(std::uint64_t number) {
  return table_offset(number) + (1 + number % kOwnersPerTable) * kChunkBytes;
}
constexpr std::uint64_t owner_offset(std::uint64_t number) {
  return table_offset(number) + number % kOwnersPerTable * sizeof(ChunkOwner);
}

}  // namespace pinion::runlog
