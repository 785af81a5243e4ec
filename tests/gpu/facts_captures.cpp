// Finds what a stream capture makes of copies of host memory, and what the captured node reads when its
// memory is registered, unregistered, unmapped or rewritten before the launch.
#include <sys/mman.h>

#include "facts.h"

namespace pinion::gpu {
namespace {

const char* mode_name(int mode) {
  return mode == kCaptureGlobal ? "global" : mode == kCaptureThreadLocal ? "thread-local" : "relaxed";
}

enum class Op { kIn, kOut, kSyncIn, kLegacyIn, kBlockingIn, kBlockingSyncIn };

const char* op_name(Op op) {
  switch (op) {
    case Op::kIn:
      return "async copy to the GPU";
    case Op::kOut:
      return "async copy from the GPU";
    case Op::kSyncIn:
      return "sync copy to the GPU";
    case Op::kLegacyIn:
      return "async copy to the GPU, legacy stream";
    case Op::kBlockingIn:
      return "async copy to the GPU, legacy stream, beside a blocking stream's capture";
    case Op::kBlockingSyncIn:
      return "sync copy to the GPU, beside a blocking stream's capture";
  }
  return "";
}

/// Host memory, device memory, and a capture of copies between them.
struct Scene {
  explicit Scene(std::size_t size) : bytes(size), host(map_memory(size)) {
    fill(host, bytes, 1);
    must(driver().allocate(&device, bytes), "cuMemAlloc");
    must(driver().set_bytes(device, 0xff, bytes), "cuMemsetD8");
    must(driver().context_synchronize(), "cuCtxSynchronize");
  }
  Result make(Op op) {
    if (op == Op::kIn) return driver().copy_in_async(device, host, bytes, session.stream);
    if (op == Op::kOut) return driver().copy_out_async(host, device, bytes, session.stream);
    if (op == Op::kSyncIn || op == Op::kBlockingSyncIn) return driver().copy_in(device, host, bytes);
    return driver().copy_in_async(device, host, bytes, kLegacyStream);
  }
  /// Captures one copy to the GPU.
  void capture() {
    must(driver().begin_capture(session.stream, kCaptureRelaxed), "cuStreamBeginCapture");
    must(make(Op::kIn), "the captured copy");
    must(driver().end_capture(session.stream, &graph), "cuStreamEndCapture");
  }
  void instantiate() { must(driver().graph_instantiate(&exec, graph, 0), "cuGraphInstantiate"); }
  /// Adds a memcpy node by hand.
  void add_node() {
    Copy3D shape;
    shape.source_type = kMemoryTypeHost;
    shape.source_host = host;
    shape.source_pitch = shape.target_pitch = shape.width = bytes;
    shape.source_height = shape.target_height = shape.height = shape.depth = 1;
    shape.target_type = kMemoryTypeDevice;
    shape.target_device = device;
    GraphNode node = nullptr;
    must(driver().graph_create(&graph, 0), "cuGraphCreate");
    must(driver().graph_add_copy(&node, graph, nullptr, 0, &shape, session.context), "cuGraphAddMemcpyNode");
  }
  std::string launch() {
    const Result launched = driver().graph_launch(exec, session.stream);
    const Result done = driver().stream_synchronize(session.stream);
    if (launched != kSuccess) return "launch: " + result_name(launched);
    if (done != kSuccess) return "launch ok, synchronize: " + result_name(done);
    return "ok, the GPU holds " + device_contents(device, bytes);
  }
  Session session;
  std::size_t bytes;
  char* host;
  DevicePointer device = 0;
  Graph graph = nullptr;
  GraphExec exec = nullptr;
};

/// One copy of pageable or registered memory inside a capture.
void captured(int mode, Op op, bool registered, std::size_t bytes) {
  Scene scene(bytes);
  if (registered) must(driver().host_register(scene.host, bytes, kPortable), "cuMemHostRegister");
  if (op == Op::kBlockingIn || op == Op::kBlockingSyncIn) {
    must(driver().stream_create(&scene.session.stream, 0), "cuStreamCreate");
  }
  must(driver().begin_capture(scene.session.stream, mode), "cuStreamBeginCapture");
  const Result result = scene.make(op);
  int status = -1;
  const Result asked = driver().is_capturing(scene.session.stream, &status);
  const Result ended = driver().end_capture(scene.session.stream, &scene.graph);
  std::string text = format("call: %s; capture %s", result_name(result).c_str(),
                            asked != kSuccess ? result_name(asked).c_str()
                            : status == 1     ? "intact"
                            : status == 2     ? "invalidated"
                                              : "ended");
  text += "; end of capture: " + result_name(ended);
  if (ended == kSuccess && result == kSuccess && (op == Op::kIn || op == Op::kOut)) {
    const Result made = driver().graph_instantiate(&scene.exec, scene.graph, 0);
    text += "; instantiate: " + result_name(made);
    if (made == kSuccess) {
      if (op == Op::kIn) fill(scene.host, bytes, 2);
      text += "; launch after the source was rewritten with 2: " + scene.launch();
      if (op == Op::kOut) text += ", the host " + contents(scene.host, bytes) + " (4294967295 is right)";
    }
  }
  emit(format("%s of %s %s, mode %s", op_name(op), registered ? "registered" : "pageable",
              size_name(bytes).c_str(), mode_name(mode)),
       text);
}

enum class Change {
  kUnregister,          // Registered memory is unregistered and rewritten.
  kUnregisterAndRemap,  // Registered memory is unregistered, unmapped and mapped anew.
  kRemapUnderRegistration,
  kUnregisterAndUnmap,
  kRegister,  // Pageable memory is registered and rewritten.
  kRegisterAndUnregister,
  kRemap,  // Pageable memory is unmapped and mapped anew.
  kUnmap,  // Pageable memory is unmapped.
};

const char* change_name(Change change) {
  switch (change) {
    case Change::kUnregister:
      return "registered, then unregistered, rewritten";
    case Change::kUnregisterAndRemap:
      return "registered, then unregistered, mapped anew, written";
    case Change::kRemapUnderRegistration:
      return "registered, then mapped anew under the registration, written";
    case Change::kUnregisterAndUnmap:
      return "registered, then unregistered, unmapped";
    case Change::kRegister:
      return "pageable, then registered, rewritten";
    case Change::kRegisterAndUnregister:
      return "pageable, then registered, unregistered, rewritten";
    case Change::kRemap:
      return "pageable, then mapped anew, written";
    case Change::kUnmap:
      return "pageable, then unmapped";
  }
  return "";
}

void apply(Scene& scene, Change change) {
  const auto unregister = [&] { must(driver().host_unregister(scene.host), "cuMemHostUnregister"); };
  const auto remap = [&] {
    ::mmap(scene.host, scene.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  };
  if (change == Change::kUnregister || change == Change::kUnregisterAndRemap ||
      change == Change::kUnregisterAndUnmap) {
    unregister();
  }
  if (change == Change::kRegister || change == Change::kRegisterAndUnregister) {
    must(driver().host_register(scene.host, scene.bytes, kPortable), "cuMemHostRegister");
  }
  if (change == Change::kRegisterAndUnregister) unregister();
  if (change == Change::kUnregisterAndRemap || change == Change::kRemap ||
      change == Change::kRemapUnderRegistration) {
    remap();
  }
  if (change == Change::kUnmap || change == Change::kUnregisterAndUnmap) {
    ::munmap(scene.host, scene.bytes);
  } else {
    fill(scene.host, scene.bytes, 2);
  }
}

enum class Made { kCaptured, kByHand, kLaunched, kLate };

const char* made_name(Made made) {
  switch (made) {
    case Made::kCaptured:
      return "by capture";
    case Made::kByHand:
      return "by cuGraphAddMemcpyNode";
    case Made::kLaunched:
      return "by capture, launched once";
    case Made::kLate:
      return "by capture, instantiated after the change (and then unregistered)";
  }
  return "";
}

/// A node whose memory changes between its making and its launch.
void changed(Change change, Made made) {
  Scene scene(kMiB);
  const bool registered = change == Change::kUnregister || change == Change::kUnregisterAndRemap ||
                          change == Change::kUnregisterAndUnmap || change == Change::kRemapUnderRegistration;
  if (registered) must(driver().host_register(scene.host, scene.bytes, kPortable), "cuMemHostRegister");
  made == Made::kByHand ? scene.add_node() : scene.capture();
  if (made != Made::kLate) scene.instantiate();
  if (made == Made::kLaunched) scene.launch();
  apply(scene, change);
  if (made == Made::kLate) scene.instantiate();
  if (made == Made::kLate && change == Change::kRegister) {
    must(driver().host_unregister(scene.host), "cuMemHostUnregister");
  }
  emit(format("node %s: %s", made_name(made), change_name(change)), scene.launch(), "", "2 is right");
}

/// Whether the launch of a graph with a copy waits for its stream, and when the source is read.
void launch_behind_gate(std::size_t bytes, bool registered) {
  Scene scene(bytes);
  if (registered) must(driver().host_register(scene.host, bytes, kPortable), "cuMemHostRegister");
  scene.capture();
  scene.instantiate();
  Gate gate(GateKind::kValue);
  gate.close(scene.session.stream, scene.session.kernels);
  const Step outcome = step(scene.session.context, gate,
                            [&] { return driver().graph_launch(scene.exec, scene.session.stream); });
  if (outcome.at_once) fill(scene.host, bytes, 2);
  gate.open();
  must(driver().stream_synchronize(scene.session.stream), "cuStreamSynchronize");
  emit(format("launch of a graph with a copy of %s %s", registered ? "registered" : "pageable",
              size_name(bytes).c_str()),
       outcome.text() + "; the GPU holds " + device_contents(scene.device, bytes), "",
       "behind a gated stream; the source is rewritten with 2 if the launch returned at once");
}

}  // namespace

void add_captures(Experiments& all) {
  for (const int mode : {kCaptureGlobal, kCaptureThreadLocal, kCaptureRelaxed}) {
    for (const Op op :
         {Op::kIn, Op::kOut, Op::kSyncIn, Op::kLegacyIn, Op::kBlockingIn, Op::kBlockingSyncIn}) {
      all.push_back({"captures", 5, [=] { captured(mode, op, false, kMiB); }});
    }
    all.push_back({"captures", 5, [=] { captured(mode, Op::kIn, true, kMiB); }});
  }
  all.push_back({"captures", 5, [] { captured(kCaptureGlobal, Op::kIn, false, 16 * kMiB); }});
  all.push_back({"captures", 5, [] { captured(kCaptureGlobal, Op::kOut, false, 16 * kMiB); }});
  for (const Change change : {Change::kUnregister, Change::kUnregisterAndRemap,
                              Change::kRemapUnderRegistration, Change::kUnregisterAndUnmap, Change::kRegister,
                              Change::kRegisterAndUnregister, Change::kRemap, Change::kUnmap}) {
    for (const Made made : {Made::kCaptured, Made::kByHand, Made::kLaunched, Made::kLate}) {
      const bool more = change == Change::kUnregister || change == Change::kRegister;
      if ((made == Made::kByHand || made == Made::kLate) && !more) continue;
      all.push_back({"captures", 5, [=] { changed(change, made); }});
    }
  }
  for (const std::size_t bytes : {64 * kKiB, 16 * kMiB}) {
    for (const bool registered : {false, true}) {
      all.push_back({"captures", 6, [=] { launch_behind_gate(bytes, registered); }});
    }
  }
}

}  // namespace pinion::gpu
