// Waits for a copy that is in a stream: by an event of our own, recorded directly behind it, because the
// program may have put more work into the stream since. And what the front asks a stream beforehand.
//
// The functions are for any thread of the program; they leave its captures valid. An EndOfCopy belongs to one
// thread and one copy.
#pragma once

#include "device/cuda/driver_api.h"

namespace pinion::cuda {

class EndOfCopy {
 public:
  explicit EndOfCopy(const Driver& driver) : driver_(driver) {}
  ~EndOfCopy();
  EndOfCopy(const EndOfCopy&) = delete;
  EndOfCopy& operator=(const EndOfCopy&) = delete;

  /// Makes the event. False: there is none, so that an asynchronous copy must not be made.
  bool ready();
  // The caller has asked, inside the submission gate, that the stream does not capture: an event that a
  // capture takes up cannot be awaited, and the capture would be lost.
  /// Whether the stream has come to what would be put into it now: all work that it waits for is done.
  [[nodiscard]] bool has_come(Stream stream);
  /// Marks the end of what was put into the stream so far.
  void mark(Stream stream);

  /// Waits until what was marked is done; returns its result.
  [[nodiscard]] Result wait();

 private:
  const Driver& driver_;
  Event event_ = nullptr;
  Stream marked_ = nullptr;
  bool recorded_ = false;
};

/// Null: the thread has none.
Context current_context(const Driver& driver);
/// Whether the front may record and await an event in the stream: its context is the current one.
bool can_wait(const Driver& driver, Stream stream);
/// Whether the stream captures, or the driver refuses to say.
bool is_capturing(const Driver& driver, Stream stream);
/// Whether a graph may have taken up what was put into the stream just now.
bool captures(const Driver& driver, Stream stream);
/// Whether the thread runs a callback of the driver's, where most calls are forbidden.
bool is_in_callback(const Driver& driver);
/// Whether the driver knows nothing of the memory: neither pinned, nor managed, nor on a device.
bool is_pageable(const Driver& driver, const void* host);

}  // namespace pinion::cuda
