// An acquire in three parts: what its caller wants, the scratch of its steps, and what came of it. Plain data
// of one thread. Acquisition (acquisition.h) holds the three and takes the steps.
#pragma once

#include <cstdint>
#include <vector>

#include "base/access.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/large_pages.h"
#include "base/range.h"
#include "registry/region.h"

namespace pinion {

/// The next step of an acquire, or its end.
enum class [[nodiscard]] AcquireStep{
    leased,        ///< the end: the result's region is leased (or, for a request without lease, registered)
    refused,       ///< the end: the result's error says why; nothing is held
    busy,          ///< the end, without lease only: another thread registers the memory
    register_,     ///< call the device for the region's range, and pass on the registration
    deregister,    ///< deregister the victims, and go on
    await_region,  ///< another thread registers the memory: wait for it, and go on
    await_departure,  ///< regions on their way out make room: wait for the next of them, and go on
    await_event,      ///< another thread's memory event crosses the range: wait a little, and go on
};

struct AcquireRequest {
  Range pages{};  ///< whole pages; bytes, where the device registers such ranges (RegionLeases::unit_of())
  /// The same in whole pages of its memory, where these are larger than the system's, and forked children do
  /// not miss the rest of them (lease/acquire_by_steps.h).
  LargeRange large{};
  Access access = Access::read;
  bool lease = true;  ///< false: the helper registers ahead; it neither waits nor evicts
  /// The region is to be permanent: any address that its owner is known by. Just `pages` are registered, and
  /// ordinary regions that contain them, or lie within, are replaced. The owner dooms
  /// it before the domain is closed.
  const void* owner = nullptr;
  /// Ahead of requests: the registration takes about so long; 0: not known. A thread that waits for it lets
  /// it take twice that.
  Duration expected = 0;
};

/// Scratch of the steps, from one to the next.
struct AcquireAttempt {
  Range want{};              ///< the range to register: the pages, their large ones, or a merge with others
  bool as_large = false;     ///< the large range stands in for the pages
  Region* region = nullptr;  ///< being registered, by this acquire or by the awaited thread
  Access try_access = Access::read;  ///< to be asked of the device: at least the request's
  std::vector<Region*> victims;      ///< claimed, to be deregistered
  Time asked = 0;                    ///< when the registration under way began
  std::uint32_t seen = 0;            ///< the awaited region's transitions
  Time overdue = kNever;             ///< when the awaited registration takes too long
  std::uint32_t departures = 0;      ///< the budget's, before it was asked for room
  bool unshared = false;             ///< memory events may be missed: the region serves this lease alone
  bool changed = false;              ///< the memory changed during the attempt's device call
  bool relieved = false;             ///< idle regions went once already because the device had no memory
};

struct AcquireResult {
  Region* region = nullptr;
  Error error;
  bool registered_here = false;  ///< the acquire's own device call made the region
  bool waited = false;           ///< for another thread
  bool over_limit = false;       ///< refused for a limit of the process: its other domains may make room
  Duration preempted = 0;  ///< while it waited, it or the threads that it waited for had lost their core
  Duration rested = 0;     ///< all time of its waits
};

struct Acquire {
  AcquireRequest request;
  AcquireAttempt attempt{};
  AcquireResult result{};

  /// The range to register if nothing is merged with it.
  Range alone() const { return attempt.as_large ? request.large.range : request.pages; }
  /// Takes the next smaller range to register: without the merge, then without the large pages. False:
  /// there is none.
  bool narrow() {
    if (attempt.want == request.pages) return false;
    if (attempt.want == alone()) attempt.as_large = false;
    attempt.want = alone();
    return true;
  }
  AcquireStep refuse(const Error& why) {
    result.error = why;
    return AcquireStep::refused;
  }
};

}  // namespace pinion
