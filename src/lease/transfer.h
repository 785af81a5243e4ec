// Values that fronts and the lease sources exchange. They have no state of their own.
#pragma once

#include <cstdint>

#include "base/call_kind.h"
#include "base/clock.h"
#include "callsite/call_site.h"
#include "lease/thread_context.h"
#include "retention/record.h"

namespace pinion {

/// One call of the program, as a front sees it: made once, used for each of its buffers.
struct CallPoint {
  Ticks time = 0;
  CallSite site = 0;
  CallKind kind = CallKind::none;
  int peer = -1;
};

/// A transfer's use of a range, from acquire() to release(). Kept by the front (in its frame, or with the
/// request). One source has leased the range, or none: then it is recorded only.
struct Transfer {
  Record record;  ///< the use as the registry's source has it, where it leaves a record
  bool active = false;
  bool unrecorded = false;       ///< the registry serves it, and it leaves no record
  std::uint16_t counted_at = 0;  ///< 1 + the place of the thread's count of it; 0: its region counts it
  int domain = 0;                ///< of an unrecorded use
  Ticks bookkeeping = 0;         ///< of the acquire, when this one is sampled
  Region* served_by = nullptr;   ///< the registration, of a counted or an unrecorded use

  bool in_arena() const { return counted_at > kSharedPlaces; }
  /// The registration that serves it; null: none.
  Region* region() const { return counted_at != 0 || unrecorded ? served_by : record.region().region; }
};

/// The consequence for a transfer whose memory cannot be registered.
enum class Refusal {
  charge,  ///< it goes on without: the copy that a bounce buffer would take is charged as time
  report,  ///< acquire() returns false and holds nothing: the caller has a bounce buffer of its own
};

}  // namespace pinion
