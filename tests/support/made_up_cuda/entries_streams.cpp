// Streams, events, kernels and the other work that moves no host memory.
#include <algorithm>
#include <cstring>

#include "support/made_up_cuda/captures.h"
#include "support/made_up_cuda/contexts.h"
#include "support/made_up_cuda/entry.h"

using namespace pinion::made_up_cuda;  // NOLINT(google-build-using-namespace): the exports are C

namespace {

using HostFunction = void (*)(void*);

/// Puts work into a stream, or into its capture.
Result put(Call& call, const StreamPointer& stream, std::function<Result()> body) {
  if (const Result refused = check_capture(*stream)) return refused;
  if (stream->capture) {
    record(*stream, {{}, std::move(body), nullptr});
    return kSuccess;
  }
  enter(call.lock(), *stream, call.name());
  auto work = std::make_shared<Work>();
  work->run = std::move(body);
  submit(stream, work);
  return kSuccess;
}

Result create_stream(Call& call, Handle* made, unsigned flags, int priority) {
  if (!made || flags > pinion::gpu::kNonBlocking) return kInvalidValue;
  const StreamPointer stream = make_stream(call.context(), flags);
  stream->priority = priority;
  stream->handle = world().streams.add(stream);
  *made = stream->handle;
  return kSuccess;
}

/// A word on the device, or in registered memory; null: neither.
const std::uint32_t* word(DevicePointer address) {
  if (world().memory.allocation(address))
    return reinterpret_cast<const std::uint32_t*>(world().memory.view(address));
  return registration_of(address) ? reinterpret_cast<const std::uint32_t*>(address) : nullptr;
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
  if (event->work && !event->work->done) return kNotReady;
  return event->context->sticky;
}

Result cuEventSynchronize(Handle handle) {
  MADE_UP_CALL(Need::kContext);
  if (const Result refused = forbid_in_captures()) return refused;
  const auto event = event_of(handle);
  if (!event) return kInvalidHandle;
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

/// Any name is a kernel that does nothing.
Result cuModuleGetFunction(Handle* function, Handle, const char* name) {
  MADE_UP_CALL(Need::kContext);
  Handle& known = world().named_kernels[name];
  if (!known) known = world().kernels.add(std::make_shared<Kernel>());
  *function = known;
  return kSuccess;
}

}  // extern "C"

MADE_UP_PAIR(cuStreamQuery, _ptsz, (Handle handle), (handle)) {
  MADE_UP_STREAM(stream, handle);
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

MADE_UP_PAIR(cuStreamWaitValue32_v2, _ptsz,
             (Handle handle, DevicePointer address, std::uint32_t value, unsigned flags),
             (handle, address, value, flags)) {
  MADE_UP_STREAM(stream, handle);
  const std::uint32_t* const at = word(address);
  if (!at || flags > 1) return kInvalidValue;
  if (const Result refused = check_capture(*stream)) return refused;
  if (stream->capture) return kNotSupported;
  enter(call.lock(), *stream, call.name());
  auto work = std::make_shared<Work>();
  work->polls = true;
  work->ready = [at, value, flags] {
    const std::uint32_t now = __atomic_load_n(at, __ATOMIC_ACQUIRE);
    return flags == 0 ? static_cast<std::int32_t>(now - value) >= 0 : now == value;
  };
  submit(stream, work);
  return kSuccess;
}
MADE_UP_END

MADE_UP_PAIR(cuEventRecord, _ptsz, (Handle event, Handle handle), (event, handle)) {
  MADE_UP_STREAM(stream, handle);
  const auto known = event_of(event);
  if (!known || known->context != stream->context) return kInvalidHandle;
  if (const Result refused = check_capture(*stream)) return refused;
  if (stream->capture) {
    known->capture = stream->capture;
    return kSuccess;
  }
  known->capture.reset();
  enter(call.lock(), *stream, call.name());
  known->work = std::make_shared<Work>();
  submit(stream, known->work);
  return kSuccess;
}
MADE_UP_END

MADE_UP_PAIR(cuLaunchHostFunc, _ptsz, (Handle handle, HostFunction function, void* data),
             (handle, function, data)) {
  MADE_UP_STREAM(stream, handle);
  if (!function) return kInvalidValue;
  return put(call, stream, [function, data] {
    ++self().in_callback;
    function(data);
    --self().in_callback;
    return kSuccess;
  });
}
MADE_UP_END

MADE_UP_PAIR(cuLaunchKernel, _ptsz,
             (Handle function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
              unsigned block_y, unsigned block_z, unsigned shared, Handle handle, void** parameters,
              void** extra),
             (function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, handle, parameters,
              extra)) {
  (void)shared;
  (void)extra;
  if (grid_x * grid_y * grid_z * block_x * block_y * block_z == 0) return kInvalidValue;
  MADE_UP_STREAM(stream, handle);
  const auto kernel = world().kernels.find(function);
  if (!kernel || stream->context != call.context()) return kInvalidHandle;
  std::vector<unsigned long long> values(kernel->parameters);
  for (unsigned i = 0; i < kernel->parameters; ++i) std::memcpy(&values[i], parameters[i], sizeof values[i]);
  return put(call, stream, [kernel, values] {
    if (kernel->body) kernel->body(values.data());
    return kSuccess;
  });
}
MADE_UP_END

MADE_UP_PAIR(cuStreamWriteValue32_v2, _ptsz,
             (Handle handle, DevicePointer address, std::uint32_t value, unsigned flags),
             (handle, address, value, flags)) {
  (void)flags;
  MADE_UP_STREAM(stream, handle);
  auto* const at = const_cast<std::uint32_t*>(word(address));
  if (!at) return kInvalidValue;
  return put(call, stream, [at, value] {
    __atomic_store_n(at, value, __ATOMIC_RELEASE);
    return kSuccess;
  });
}
MADE_UP_END

MADE_UP_PAIR(cuStreamAddCallback, _ptsz,
             (Handle handle, void (*function)(Handle, Result, void*), void* data, unsigned flags),
             (handle, function, data, flags)) {
  (void)flags;
  MADE_UP_STREAM(stream, handle);
  if (!function) return kInvalidValue;
  return put(call, stream, [handle, function, data] {
    ++self().in_callback;
    function(handle, kSuccess, data);
    --self().in_callback;
    return kSuccess;
  });
}
MADE_UP_END
