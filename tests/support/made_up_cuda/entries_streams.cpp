// Streams, events and modules.
#include <algorithm>

#include "support/made_up_cuda/captures.h"
#include "support/made_up_cuda/contexts.h"
#include "support/made_up_cuda/entry.h"
#include "support/made_up_cuda/kernels.h"

using namespace pinion::made_up_cuda;  // NOLINT(google-build-using-namespace): the exports are C

namespace {

Result create_stream(Call& call, Handle* made, unsigned flags, int priority) {
  if (!made || flags > pinion::gpu::kNonBlocking) return kInvalidValue;
  const StreamPointer stream = make_stream(call.context(), flags);
  stream->priority = priority;
  stream->handle = world().streams.add(stream);
  *made = stream->handle;
  return kSuccess;
}

std::shared_ptr<Event> event_of(Handle handle) { return world().events.find(handle); }

Result query(const Stream& stream) {
  if (!done_up_to(stream, stream.context->works)) return kNotReady;
  return stream.context->sticky;
}

}  // namespace

extern "C" {

Result cuStreamCreate(Handle* stream, unsigned flags) {
  MADE_UP_CALL(Need::kContext);
  return create_stream(call, stream, flags, 0);
}

Result cuStreamCreateWithPriority(Handle* stream, unsigned flags, int priority) {
  MADE_UP_CALL(Need::kContext);
  return create_stream(call, stream, flags, priority);
}

Result cuStreamDestroy_v2(Handle handle) {
  MADE_UP_CALL(Need::kContext);
  const StreamPointer stream = world().streams.remove(handle);
  if (!stream) return kInvalidHandle;
  stream->handle = nullptr;
  stream->destroyed = true;
  if (stream->queue.empty()) std::erase(stream->context->streams, stream);
  stream->wake.notify_one();
  return kSuccess;
}

Result cuEventCreate(Handle* event, unsigned flags) {
  MADE_UP_CALL(Need::kContext);
  if (!event) return kInvalidValue;
  auto made = std::make_shared<Event>();
  made->flags = flags;
  made->context = call.context();
  *event = world().events.add(std::move(made));
  return kSuccess;
}

Result cuEventDestroy_v2(Handle handle) {
  MADE_UP_CALL(Need::kContext);
  return world().events.remove(handle) ? kSuccess : kInvalidHandle;
}

Result cuEventQuery(Handle handle) {
  MADE_UP_CALL(Need::kContext);
  if (const Result refused = forbid_in_captures()) return refused;
  const auto event = event_of(handle);
  if (!event) return kInvalidHandle;
  if (const Result refused = forbid_question(event->capture, kCapturedEvent)) return refused;
  if (event->work && !event->work->done) return kNotReady;
  return event->context->sticky;
}

Result cuEventSynchronize(Handle handle) {
  MADE_UP_CALL(Need::kContext);
  if (const Result refused = forbid_in_captures()) return refused;
  const auto event = event_of(handle);
  if (!event) return kInvalidHandle;
  if (const Result refused = forbid_question(event->capture, kCapturedEvent)) return refused;
  const WorkPointer work = event->work;
  return work ? await(call.lock(), *event->context, *work, call.name()) : event->context->sticky;
}

Result cuEventElapsedTime(float* milliseconds, Handle first, Handle second) {
  MADE_UP_CALL(Need::kContext);
  const auto from = event_of(first), to = event_of(second);
  if (!from || !to || !from->work || !to->work) return kInvalidHandle;
  if (!from->work->done || !to->work->done) return kNotReady;
  *milliseconds = std::chrono::duration<float, std::milli>(to->work->ended - from->work->ended).count();
  return kSuccess;
}

Result cuModuleLoadData(Handle* module, const void*) {
  MADE_UP_CALL(Need::kContext);
  *module = &world();
  return kSuccess;
}

Result cuModuleUnload(Handle) {
  MADE_UP_CALL(Need::kContext);
  return kSuccess;
}

Result cuModuleGetFunction(Handle* function, Handle, const char* name) {
  MADE_UP_CALL(Need::kContext);
  if (!function || !name) return kInvalidValue;
  *function = named_kernel(name);
  return kSuccess;
}

}  // extern "C"

MADE_UP_PAIR(cuStreamQuery, _ptsz, (Handle handle), (handle)) {
  MADE_UP_STREAM(stream, handle);
  if (const Result refused = forbid_question(stream->capture, kCaptureUnsupported)) return refused;
  if (const Result refused = forbid_in_captures()) return refused;
  return query(*stream);
}
MADE_UP_END

MADE_UP_PAIR(cuStreamSynchronize, _ptsz, (Handle handle), (handle)) {
  MADE_UP_STREAM(stream, handle);
  if (const Result refused = forbid_in_captures()) return refused;
  if (stream->capture) {
    stream->capture->lost = true;
    return kCaptureUnsupported;
  }
  const std::uint64_t last = stream->context->works;
  wait(call.lock(), call.name(), [&] { return done_up_to(*stream, last); });
  return stream->context->sticky;
}
MADE_UP_END

MADE_UP_PAIR(cuStreamGetCtx, _ptsz, (Handle handle, Handle* context), (handle, context)) {
  MADE_UP_STREAM(stream, handle);
  *context = stream->context->handle;
  return kSuccess;
}
MADE_UP_END

MADE_UP_PAIR(cuStreamGetFlags, _ptsz, (Handle handle, unsigned* flags), (handle, flags)) {
  MADE_UP_STREAM(stream, handle);
  *flags = stream->flags;
  return kSuccess;
}
MADE_UP_END

MADE_UP_PAIR(cuStreamGetPriority, _ptsz, (Handle handle, int* priority), (handle, priority)) {
  MADE_UP_STREAM(stream, handle);
  *priority = stream->priority;
  return kSuccess;
}
MADE_UP_END

MADE_UP_PAIR(cuStreamWaitEvent, _ptsz, (Handle handle, Handle event, unsigned flags),
             (handle, event, flags)) {
  (void)flags;
  MADE_UP_STREAM(stream, handle);
  const auto known = event_of(event);
  if (!known) return kInvalidHandle;
  if (known->capture && known->capture->origin) {
    // The stream joins the capture in which the event was recorded.
    if (!stream->capture) stream->capture = known->capture;
    return stream->capture == known->capture ? kSuccess : kInvalidValue;
  }
  if (const Result refused = check_capture(*stream)) return refused;
  if (stream->capture || !known->work || known->work->done) return kSuccess;
  enter(call.lock(), *stream, call.name());
  auto work = std::make_shared<Work>();
  work->ready = [awaited = known->work] { return awaited->done; };
  submit(stream, work);
  return kSuccess;
}
MADE_UP_END
