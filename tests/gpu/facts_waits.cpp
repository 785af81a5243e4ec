// Finds what register, unregister and the allocation of host memory wait for: for a gated stream of the same
// context, of another context, for the legacy stream, for a copy that uses the range, or for nothing.
#include <thread>

#include "facts.h"

namespace pinion::gpu {
namespace {

constexpr std::size_t kRange = kMiB;

enum class Place {
  kOtherStream,     // The gated stream has no work with the range.
  kOtherContext,    // The gated stream belongs to a second context.
  kLegacyStream,    // The legacy stream is gated.
  kOwnCopyPending,  // A copy of the range waits behind the gate.
  kOwnCopyOtherContext,
  kOwnCopyDone,  // A copy of the range is done; later work of its stream is gated.
};

const char* place_name(Place place) {
  switch (place) {
    case Place::kOtherStream:
      return "unrelated stream of the same context";
    case Place::kOtherContext:
      return "unrelated stream of another context";
    case Place::kLegacyStream:
      return "the legacy stream";
    case Place::kOwnCopyPending:
      return "a pending copy of the range";
    case Place::kOwnCopyOtherContext:
      return "a pending copy of the range in another context";
    case Place::kOwnCopyDone:
      return "its stream after the range's copy is done";
  }
  return "";
}

/// A registered range and a stream, gated as the place says.
struct Scene {
  Scene(GateKind kind, Place where) : gate(kind), place(where) {
    range = map_memory(kRange);
    fill(range, kRange, 1);
    must(driver().host_register(range, kRange, kPortable), "cuMemHostRegister");
    must(driver().allocate(&target, kRange), "cuMemAlloc");
    stream = session.stream;
    kernels = session.kernels;
    if (place == Place::kLegacyStream) stream = kLegacyStream;
    if (place == Place::kOtherContext || place == Place::kOwnCopyOtherContext) {
      must(driver().context_create(&other, 0, session.device), "cuCtxCreate");
      must(driver().stream_create(&stream, kNonBlocking), "cuStreamCreate");
      must(driver().allocate(&target, kRange), "cuMemAlloc");
      kernels = Kernels::load();
    }
    driver().context_set(session.context);
  }
  void close() {
    if (other) driver().context_set(other);
    if (place == Place::kOwnCopyDone) {
      must(driver().copy_in_async(target, range, kRange, stream), "cuMemcpyHtoDAsync");
      must(driver().stream_synchronize(stream), "cuStreamSynchronize");
    }
    gate.close(stream, kernels);
    if (place == Place::kOwnCopyPending || place == Place::kOwnCopyOtherContext) {
      must(driver().copy_in_async(target, range, kRange, stream), "cuMemcpyHtoDAsync");
    }
    driver().context_set(session.context);
  }
  /// Opens the gate and returns how the gated work ended.
  Result open() {
    gate.open();
    if (other) driver().context_set(other);
    const Result ended = driver().stream_synchronize(stream);
    driver().context_set(session.context);
    return ended;
  }
  Session session;
  Gate gate;
  Place place;
  char* range = nullptr;
  DevicePointer target = 0;
  Stream stream = nullptr;
  Context other = nullptr;
  Kernels kernels;
};

void try_call(Scene& scene, GateKind kind, const char* call, std::function<Result()> body) {
  scene.close();
  const Step outcome = step(scene.session.context, scene.gate, std::move(body));
  const Result ended = scene.open();
  emit(format("%s beside %s", call, place_name(scene.place)),
       outcome.text() + (ended == kSuccess ? "" : "; the gated work ends with " + result_name(ended)), "",
       format("gate: %s; range of 1 MiB", gate_name(kind)));
}

void waits_of(GateKind kind, Place place) {
  Scene scene(kind, place);
  char* const fresh = map_memory(kRange);
  fill(fresh, kRange, 1);
  // The first call of each kind sets things up that later ones find.
  must(driver().host_register(fresh, kRange, kPortable), "cuMemHostRegister");
  must(driver().host_unregister(fresh), "cuMemHostUnregister");
  if (place != Place::kOwnCopyPending && place != Place::kOwnCopyOtherContext &&
      place != Place::kOwnCopyDone) {
    void* memory = nullptr;
    DevicePointer device_memory = 0;
    try_call(scene, kind, "register", [&] { return driver().host_register(fresh, kRange, kPortable); });
    try_call(scene, kind, "cuMemHostAlloc", [&] { return driver().allocate_host(&memory, kRange, 0); });
    try_call(scene, kind, "cuMemAlloc", [&] { return driver().allocate(&device_memory, kRange); });
    try_call(scene, kind, "cuMemFreeHost", [&] { return driver().free_host(memory); });
    Event event = nullptr;
    try_call(scene, kind, "cuEventCreate", [&] { return driver().event_create(&event, kEventNoTiming); });
  }
  try_call(scene, kind, "unregister", [&] { return driver().host_unregister(scene.range); });
  if (place == Place::kOwnCopyPending) {
    emit("contents after an unregister beside its pending copy", device_contents(scene.target, kRange), "",
         "1 is right");
  }
}

/// An unregister beside a pending copy back into the range.
void unregister_beside_copy_out(GateKind kind) {
  Scene scene(kind, Place::kOtherStream);
  must(driver().set_bytes(scene.target, 2, kRange), "cuMemsetD8");
  must(driver().context_synchronize(), "cuCtxSynchronize");
  scene.close();
  must(driver().copy_out_async(scene.range, scene.target, kRange, scene.stream), "cuMemcpyDtoHAsync");
  const Step outcome =
      step(scene.session.context, scene.gate, [&] { return driver().host_unregister(scene.range); });
  scene.open();
  emit("unregister beside a pending copy into the range", outcome.text(), "",
       format("gate: %s; the range then holds %s (33686018 is right)", gate_name(kind),
              contents(scene.range, kRange).c_str()));
}

/// A register and an unregister made inside a host callback.
void inside_callback() {
  struct Shared {
    char* range;
    char* fresh;
    std::atomic<bool> done{false};
    Result registered = -1, unregistered = -1;
  };
  Session session;
  Shared shared{map_memory(kRange), map_memory(kRange)};
  fill(shared.range, kRange, 1);
  fill(shared.fresh, kRange, 1);
  must(driver().host_register(shared.range, kRange, kPortable), "cuMemHostRegister");
  must(driver().launch_host(
           session.stream,
           [](void* data) {
             Shared& seen = *static_cast<Shared*>(data);
             seen.registered = driver().host_register(seen.fresh, kRange, kPortable);
             seen.unregistered = driver().host_unregister(seen.range);
             seen.done = true;
           },
           &shared),
       "cuLaunchHostFunc");
  must(driver().stream_synchronize(session.stream), "cuStreamSynchronize");
  emit("register inside a host callback", result_name(shared.registered));
  emit("unregister inside a host callback", result_name(shared.unregistered));
}

enum class Waiter { kUnregister, kPageableAsync, kPageableSync, kEvent, kCallback };

const char* waiter_name(Waiter waiter) {
  switch (waiter) {
    case Waiter::kUnregister:
      return "an unregister waits";
    case Waiter::kPageableAsync:
      return "a pageable async copy of 16 MiB waits";
    case Waiter::kPageableSync:
      return "a pageable sync copy of 16 MiB waits";
    case Waiter::kEvent:
      return "a blocking event synchronize waits";
    case Waiter::kCallback:
      return "only the gate waits, in a host callback";
  }
  return "";
}

/// Finds the calls that other threads can make while one waits in the driver for a gated stream.
void while_waiting(Waiter waiter) {
  constexpr std::size_t kLarge = 16 * kMiB;
  Session session;
  Gate gate(waiter == Waiter::kCallback ? GateKind::kCallback : GateKind::kValue);
  char* const range = map_memory(kRange);
  char* const fresh = map_memory(kRange);
  char* const large = map_memory(kLarge);
  DevicePointer device = 0;
  Stream unrelated = nullptr;
  Event event = nullptr;
  fill(range, kRange, 1);
  fill(fresh, kRange, 1);
  fill(large, kLarge, 1);
  must(driver().allocate(&device, kLarge), "cuMemAlloc");
  must(driver().stream_create(&unrelated, kNonBlocking), "cuStreamCreate");
  must(driver().event_create(&event, kEventBlocking | kEventNoTiming), "cuEventCreate");
  const Stream gated = waiter == Waiter::kPageableSync ? kLegacyStream : session.stream;
  const auto launch = [&](Stream stream) {
    return driver().launch(session.kernels.nothing, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr);
  };
  const std::pair<const char*, std::function<Result()>> probes[] = {
      {"a launch in another stream", [&] { return launch(unrelated); }},
      {"a launch in the same stream", [&] { return launch(gated); }},
      {"an event query", [&] { return driver().event_query(event); }},
      {"a register of 1 MiB", [&] { return driver().host_register(fresh, kRange, kPortable); }},
      {"a pageable copy of 64 KiB in another stream",
       [&] { return driver().copy_in_async(device, fresh, 64 * kKiB, unrelated); }}};
  for (const auto& [name, probe] : probes) {
    if (waiter == Waiter::kUnregister)
      must(driver().host_register(range, kRange, kPortable), "cuMemHostRegister");
    gate.close(gated, session.kernels);
    must(driver().event_record(event, gated), "cuEventRecord");
    std::thread waiting([&] {
      driver().context_set(session.context);
      if (waiter == Waiter::kUnregister) driver().host_unregister(range);
      if (waiter == Waiter::kPageableAsync) driver().copy_in_async(device, large, kLarge, gated);
      if (waiter == Waiter::kPageableSync) driver().copy_in(device, large, kLarge);
      if (waiter == Waiter::kEvent) driver().event_synchronize(event);
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(60));
    const Step outcome = step(session.context, gate, probe, 150);
    gate.open();
    waiting.join();
    must(driver().context_synchronize(), "cuCtxSynchronize");
    emit(format("while %s: %s", waiter_name(waiter), name), outcome.text(), "",
         "error 600: not ready, as it should");
  }
}

}  // namespace

void add_waits(Experiments& all) {
  for (const GateKind kind : {GateKind::kValue, GateKind::kCallback, GateKind::kKernel}) {
    for (const Place place : {Place::kOtherStream, Place::kOtherContext, Place::kLegacyStream,
                              Place::kOwnCopyPending, Place::kOwnCopyOtherContext, Place::kOwnCopyDone}) {
      if (place == Place::kLegacyStream && kind == GateKind::kCallback) continue;
      all.push_back({format("waits.%s", gate_name(kind)), 9, [=] { waits_of(kind, place); }});
    }
  }
  for (const Waiter waiter : {Waiter::kUnregister, Waiter::kPageableAsync, Waiter::kPageableSync,
                              Waiter::kEvent, Waiter::kCallback}) {
    all.push_back({"waits.meanwhile", 9, [=] { while_waiting(waiter); }});
  }
  all.push_back({"waits.copy-out", 6, [] { unregister_beside_copy_out(GateKind::kValue); }});
  all.push_back({"waits.inside-callback", 6, inside_callback});
}

}  // namespace pinion::gpu
