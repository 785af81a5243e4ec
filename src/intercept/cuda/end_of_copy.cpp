#include "intercept/cuda/end_of_copy.h"

#include <sched.h>

#include "base/clock.h"
#include "intercept/cuda/kept.h"

namespace pinion::cuda {

namespace {

/// A wait asks again and again for so long: a blocking wait wakes some 15 us late.
constexpr Duration kSpin = 100 * kMicrosecond;
/// The GPU takes so long at most to pass an event of an idle stream.
constexpr Duration kPassesAtOnce = 20 * kMicrosecond;

}  // namespace

bool EndOfCopy::ready() {
  if (event_ != nullptr) return true;
  if (driver_.event_create(&event_, kEventBlocking | kEventNoTiming) != kSuccess) event_ = nullptr;
  return event_ != nullptr;
}

EndOfCopy::~EndOfCopy() {
  if (event_ == nullptr) return;
  const Uncancelled uncancelled;
  driver_.event_destroy(event_);
}

bool EndOfCopy::has_come(Stream stream) {
  const Kept<RelaxedCapture> relaxed(driver_);
  unsigned flags = 0;
  const bool alone = stream != kLegacyStream && stream != kThreadStream &&
                     driver_.stream_flags(stream, &flags) == kSuccess && (flags & kStreamNonBlocking) != 0;
  // A blocking stream without work of its own seems idle, and yet waits for the legacy stream.
  if (alone || stream == kLegacyStream) return driver_.stream_query(stream) == kSuccess;
  if (!ready() || driver_.event_record(event_, stream) != kSuccess) return false;
  const Time until = monotonic_now() + kPassesAtOnce;
  do {
    if (const Result result = driver_.event_query(event_); result != kNotReady) return result == kSuccess;
  } while (monotonic_now() < until);
  return false;
}

void EndOfCopy::mark(Stream stream) {
  marked_ = stream;
  recorded_ = ready() && driver_.event_record(event_, stream) == kSuccess;
}

Result EndOfCopy::wait() {
  const Kept<RelaxedCapture> relaxed(driver_);
  // Without the event the whole stream is awaited: the copy may be under way.
  const Time until = monotonic_now() + kSpin;
  for (;;) {
    const Result result = recorded_ ? driver_.event_query(event_) : driver_.stream_query(marked_);
    if (result != kNotReady) return result;
    if (monotonic_now() < until) continue;
    if (recorded_) return driver_.event_synchronize(event_);
    ::sched_yield();
  }
}

Context current_context(const Driver& driver) {
  Context current = nullptr;
  return driver.context_current(&current) == kSuccess ? current : nullptr;
}

bool can_wait(const Driver& driver, Stream stream) {
  const Context current = current_context(driver);
  if (current == nullptr) return false;
  Context streams = nullptr;
  if (stream == kLegacyStream || stream == kThreadStream) return true;
  return driver.stream_context(stream, &streams) == kSuccess && streams == current;
}

bool is_capturing(const Driver& driver, Stream stream) {
  int status = kCaptureNone;
  return driver.stream_is_capturing(stream, &status) != kSuccess || status != kCaptureNone;
}

bool captures(const Driver& driver, Stream stream) {
  int status = kCaptureNone;
  return stream != kLegacyStream && driver.stream_is_capturing(stream, &status) == kSuccess &&
         status != kCaptureNone;
}

bool is_in_callback(const Driver& driver) {
  Event event = nullptr;
  const Result result = driver.event_create(&event, kEventNoTiming);
  if (result == kSuccess) driver.event_destroy(event);
  return result == kNotPermitted;
}

bool is_pageable(const Driver& driver, const void* host) {
  unsigned type = 0;
  const auto address = reinterpret_cast<DevicePointer>(host);
  return driver.pointer_attribute(&type, kAttributeMemoryType, address) == kInvalidValue;
}

}  // namespace pinion::cuda
