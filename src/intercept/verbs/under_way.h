// Keeps what a thread's call of the library has under way: bytes that count against the limits, a
// registration or a handle that is taken away from others. An exception or a cancellation gives it back by
// the destructors of the frames that it runs through. After a jump the thread's next call of the front does,
// or the thread's end.
//
// Owns one note a thread; used by its thread alone, outside of hooks.
#pragma once

#include "device/verbs/own_verbs_call.h"
#include "intercept/verbs/handles.h"
#include "intercept/verbs/own_registrations.h"
#include "lease/thread_context.h"

namespace pinion::verbs {

/// Gives back what a call has that the thread has left by a jump. Each call of the program's begins with it.
void mend_after_a_jump();
/// Gives it back for a thread that ends.
void end_call_left_behind(ThreadContext& thread);

/// Bytes that count against the limits while the library registers them.
class BytesUnderWay {
 public:
  BytesUnderWay() = default;
  ~BytesUnderWay() { end(); }
  BytesUnderWay(const BytesUnderWay&) = delete;
  BytesUnderWay& operator=(const BytesUnderWay&) = delete;

  void begin(ThreadContext& thread, LeasePath& leases, std::uint64_t bytes);
  /// They count no more.
  void end();
  /// They go on counting, as a registration's.
  std::uint64_t keep();

 private:
  bool counts_ = false;
};

/// Takes a registration that passed by out of the list while the library deregisters it.
class OwnLeaving {
 public:
  explicit OwnLeaving(const ibv_mr* mr);
  /// Puts it back unless it is gone.
  ~OwnLeaving();
  OwnLeaving(const OwnLeaving&) = delete;
  OwnLeaving& operator=(const OwnLeaving&) = delete;

  bool is_known() const { return is_known_; }
  /// It is deregistered.
  OwnRegistration gone();

 private:
  const OwnVerbsCall own_call_;
  bool is_known_ = false;
};

/// Takes a handle away from the program, which has it back in the end.
class TakenHandle {
 public:
  explicit TakenHandle(Handle& handle);
  ~TakenHandle();
  TakenHandle(const TakenHandle&) = delete;
  TakenHandle& operator=(const TakenHandle&) = delete;

  /// False: the program had it no more.
  bool is_ours() const { return is_ours_; }
  void has_moved_to(ibv_context* context);
  /// The program loses it.
  void keep();

 private:
  bool is_ours_ = false;
};

/// Counts no more against the limits.
void end_own(std::uint64_t bytes);

}  // namespace pinion::verbs
