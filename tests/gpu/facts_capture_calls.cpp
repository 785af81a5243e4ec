// Finds which calls a thread may make while a stream captures, in the capturing thread and in another, and
// which of them invalidate the program's capture.
#include <thread>

#include "facts.h"

namespace pinion::gpu {
namespace {

/// Everything that the calls need, made before the capture.
struct Scene {
  Scene() {
    must(driver().context_create(&second, 0, session.device), "cuCtxCreate");
    driver().context_set(session.context);
    must(driver().stream_create(&unrelated, kNonBlocking), "cuStreamCreate");
    must(driver().event_create(&event, kEventBlocking | kEventNoTiming), "cuEventCreate");
    host = map_memory(4 * kMiB);
    fill(host, 4 * kMiB, 1);
    must(driver().host_register(host, kMiB, kPortable), "cuMemHostRegister");
    must(driver().allocate(&device, kMiB), "cuMemAlloc");
    must(driver().event_record(event, unrelated), "cuEventRecord");
    must(driver().context_synchronize(), "cuCtxSynchronize");
  }
  Session session;
  Context second = nullptr;
  Stream unrelated = nullptr;
  Event event = nullptr;
  char* host = nullptr;
  DevicePointer device = 0;
};

struct Call {
  const char* name;
  std::function<Result(Scene&)> make;
};

Result in_second(Scene& scene, const std::function<Result()>& call) {
  driver().context_set(scene.second);
  const Result result = call();
  driver().context_set(scene.session.context);
  return result;
}

std::vector<Call> calls() {
  return {
      {"register", [](Scene& s) { return driver().host_register(s.host + kMiB, kMiB, kPortable); }},
      {"unregister", [](Scene& s) { return driver().host_unregister(s.host); }},
      {"register in a second context",
       [](Scene& s) {
         return in_second(s, [&] { return driver().host_register(s.host + 2 * kMiB, kMiB, kPortable); });
       }},
      {"cuMemHostAlloc",
       [](Scene&) {
         void* memory = nullptr;
         return driver().allocate_host(&memory, kMiB, kPortable);
       }},
      {"cuMemAlloc",
       [](Scene&) {
         DevicePointer memory = 0;
         return driver().allocate(&memory, kMiB);
       }},
      {"cuEventCreate",
       [](Scene&) {
         Event event = nullptr;
         return driver().event_create(&event, kEventNoTiming);
       }},
      {"cuEventRecord in another stream",
       [](Scene& s) { return driver().event_record(s.event, s.unrelated); }},
      {"cuEventQuery of another stream's event", [](Scene& s) { return driver().event_query(s.event); }},
      {"cuEventSynchronize of another stream's event",
       [](Scene& s) { return driver().event_synchronize(s.event); }},
      {"cuStreamQuery of another stream", [](Scene& s) { return driver().stream_query(s.unrelated); }},
      {"cuStreamSynchronize of another stream",
       [](Scene& s) { return driver().stream_synchronize(s.unrelated); }},
      {"cuCtxSynchronize", [](Scene&) { return driver().context_synchronize(); }},
      {"cuPointerGetAttribute",
       [](Scene& s) {
         unsigned type = 0;
         return driver().pointer_attribute(&type, 2, s.device);
       }},
      {"cuMemGetInfo",
       [](Scene&) {
         std::size_t free = 0, all = 0;
         return driver().memory_info(&free, &all);
       }},
      {"pageable async copy in another stream",
       [](Scene& s) { return driver().copy_in_async(s.device, s.host + 3 * kMiB, kMiB, s.unrelated); }},
      {"pageable sync copy", [](Scene& s) { return driver().copy_in(s.device, s.host + 3 * kMiB, kMiB); }},
  };
}

const char* mode_name(int mode) {
  return mode == kCaptureGlobal ? "global" : mode == kCaptureThreadLocal ? "thread-local" : "relaxed";
}

/// Makes each call during a capture of its own.
void during_capture(int mode, bool other_thread, bool exchanged) {
  Scene scene;
  for (const Call& call : calls()) {
    must(driver().begin_capture(scene.session.stream, mode), "cuStreamBeginCapture");
    Result result = -1;
    const auto make = [&] {
      driver().context_set(scene.session.context);
      int relaxed = kCaptureRelaxed;
      if (exchanged) must(driver().exchange_capture_mode(&relaxed), "cuThreadExchangeStreamCaptureMode");
      result = call.make(scene);
      if (exchanged) must(driver().exchange_capture_mode(&relaxed), "cuThreadExchangeStreamCaptureMode");
    };
    if (other_thread) {
      std::thread(make).join();
    } else {
      make();
    }
    int status = -1;
    driver().is_capturing(scene.session.stream, &status);
    Graph graph = nullptr;
    driver().end_capture(scene.session.stream, &graph);
    emit(format("%s, mode %s, %s thread%s", call.name, mode_name(mode),
                other_thread ? "another" : "the capturing", exchanged ? ", mode exchanged to relaxed" : ""),
         result_name(result) + (status == 1 ? ", capture intact" : ", capture INVALIDATED"));
  }
}

}  // namespace

void add_capture_calls(Experiments& all) {
  for (const bool other : {false, true}) {
    for (const int mode : {kCaptureGlobal, kCaptureThreadLocal, kCaptureRelaxed}) {
      all.push_back({"capture-calls", 6, [=] { during_capture(mode, other, false); }});
    }
    all.push_back({"capture-calls", 6, [=] { during_capture(kCaptureGlobal, other, true); }});
  }
}

}  // namespace pinion::gpu
