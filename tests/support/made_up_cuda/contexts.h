// Contexts of the made-up driver: the current one of each thread, their streams, their end.
//
// Owns nothing (world.h does). Under the driver's mutex.
#pragma once

#include "support/made_up_cuda/world.h"

namespace pinion::made_up_cuda {

/// Null: the calling thread has none, or its context was destroyed.
ContextPointer current_context();
ContextPointer make_context(int device, unsigned flags);
/// Waits for the context's work; then its registrations, memory and streams end.
void end_context(Lock& lock, const ContextPointer& context, const char* call);

StreamPointer make_stream(const ContextPointer& context, unsigned flags);
/// The calling thread's own default stream.
StreamPointer thread_stream(const ContextPointer& context);
/// A thread has ended.
void end_thread_streams(std::uint64_t thread);

}  // namespace pinion::made_up_cuda
