// Finds whether a context of our own can carry the registrations: what it costs, whether copies of the
// program's context find the memory pinned at full speed, and what waits for what.
#include <thread>

#include "facts.h"

namespace pinion::gpu {
namespace {

/// The program's primary context, with a second one beside it. The primary one is current.
struct Pair {
  Pair() {
    must(driver().context_create(&second, 0, session.device), "cuCtxCreate");
    driver().context_set(session.context);
  }
  /// Makes a call with the second context current.
  Result in_second(const std::function<Result()>& call) {
    driver().context_set(second);
    const Result result = call();
    driver().context_set(session.context);
    return result;
  }
  Session session;
  Context second = nullptr;
};

std::size_t free_memory() {
  std::size_t free = 0, all = 0;
  must(driver().memory_info(&free, &all), "cuMemGetInfo");
  return free;
}

void making() {
  Session session;
  for (int i = 0; i < 3; ++i) {
    const std::size_t before = free_memory();
    const long resident = status_kib("VmRSS"), threads = status_kib("Threads");
    const double began = now();
    Context second = nullptr;
    must(driver().context_create(&second, 0, session.device), "cuCtxCreate");
    const double made = now();
    driver().context_set(session.context);
    emit(format("context %d beside the primary one", i + 2),
         format("%.0f ms, %zu MiB of GPU memory, %ld MiB of RSS, %ld threads", (made - began) / 1e3,
                (before - free_memory()) / kMiB, (status_kib("VmRSS") - resident) / 1024,
                status_kib("Threads") - threads));
  }
}

Times copies(bool in, char* host, DevicePointer device, std::size_t bytes) {
  Times times;
  for (int i = 0; i < 12; ++i) {
    const double began = now();
    must(in ? driver().copy_in(device, host, bytes) : driver().copy_out(host, device, bytes), "the copy");
    if (i > 1) times.add(now() - began);
  }
  return times;
}

void copy_speed() {
  constexpr std::size_t kMost = 256 * kMiB;
  Pair pair;
  char* const host = map_memory(kMost);
  fill(host, kMost, 1, 8);
  DevicePointer device = 0;
  must(driver().allocate(&device, kMost), "cuMemAlloc");
  for (const bool in : {true, false}) {
    for (const std::size_t bytes : {64 * kKiB, kMiB, 16 * kMiB, kMost}) {
      must(driver().host_register(host, bytes, kPortable), "cuMemHostRegister");
      const Times own = copies(in, host, device, bytes);
      must(driver().host_unregister(host), "cuMemHostUnregister");
      must(pair.in_second([&] { return driver().host_register(host, bytes, kPortable); }),
           "cuMemHostRegister");
      const Times second = copies(in, host, device, bytes);
      must(pair.in_second([&] { return driver().host_unregister(host); }), "cuMemHostUnregister");
      emit(format("copy %s the GPU, %s", in ? "to" : "from", size_name(bytes).c_str()),
           format("registered in its own context %s, in the second %s", own.summary().c_str(),
                  second.summary().c_str()),
           "us");
    }
  }
}

/// Calls beside an unrelated gated stream of the program's context.
void beside_gate(GateKind kind) {
  Pair pair;
  Gate gate(kind);
  char* const host = map_memory(4 * kMiB);
  fill(host, 4 * kMiB, 1);
  void* ring = nullptr;
  must(pair.in_second([&] { return driver().allocate_host(&ring, kMiB, kPortable); }), "cuMemHostAlloc");
  for (int i = 0; i < 4; ++i) {
    must(pair.in_second([&] { return driver().host_register(host + i * kMiB, kMiB, kPortable); }),
         "register");
  }
  const std::pair<const char*, std::pair<Context, std::function<Result()>>> calls[] = {
      {"unregister, the second context current",
       {pair.second, [&] { return driver().host_unregister(host); }}},
      {"unregister, the program's context current",
       {pair.session.context, [&] { return driver().host_unregister(host + kMiB); }}},
      {"unregister, no context current",
       {nullptr, [&] { return driver().host_unregister(host + 2 * kMiB); }}},
      {"register", {pair.second, [&] { return driver().host_register(host, kMiB, kPortable); }}},
      {"cuMemFreeHost", {pair.second, [&] { return driver().free_host(ring); }}}};
  for (const auto& [name, call] : calls) {
    gate.close(pair.session.stream, pair.session.kernels);
    const Step outcome = step(call.first, gate, call.second);
    gate.open();
    must(driver().context_synchronize(), "cuCtxSynchronize");
    emit(format("beside a gated stream of the program's context: %s", name), outcome.text(), "",
         format("gate: %s; registered in the second context", gate_name(kind)));
  }
}

/// Repeats it with a green context, which shares the primary context's memory.
void green() {
  if (!driver().green_create) return emit("green context", "this driver has none");
  Session session;
  // CUdevResource takes 144 bytes; its type 1 stands for the multiprocessors.
  alignas(16) char resource[1024] = {};
  void *description = nullptr, *made = nullptr;
  Context context = nullptr;
  const std::size_t before = free_memory();
  const double began = now();
  must(driver().device_resource(session.device, resource, 1), "cuDeviceGetDevResource");
  must(driver().describe_resource(&description, resource, 1), "cuDevResourceGenerateDesc");
  must(driver().green_create(&made, description, session.device, 1), "cuGreenCtxCreate");
  must(driver().context_from_green(&context, made), "cuCtxFromGreenCtx");
  emit("green context beside the primary one",
       format("%.0f ms, %zu MiB of GPU memory", (now() - began) / 1e3, (before - free_memory()) / kMiB));
  char* const host = map_memory(kMiB);
  fill(host, kMiB, 1);
  Gate gate(GateKind::kValue);
  driver().context_set(context);
  must(driver().host_register(host, kMiB, kPortable), "cuMemHostRegister");
  driver().context_set(session.context);
  gate.close(session.stream, session.kernels);
  const Step outcome = step(context, gate, [&] { return driver().host_unregister(host); });
  gate.open();
  must(driver().context_synchronize(), "cuCtxSynchronize");
  emit("beside a gated stream of the primary context: unregister in a green context", outcome.text());
}

/// Finds the rest of the second context's registrations once the program's context is gone or broken.
void program_context_ends(bool by_error) {
  Pair pair;
  char* const host = map_memory(2 * kMiB);
  fill(host, 2 * kMiB, 1);
  must(pair.in_second([&] { return driver().host_register(host, kMiB, kPortable); }), "cuMemHostRegister");
  const char* const how = by_error ? "a fault in the program's context" : "a reset of the primary context";
  if (by_error) {
    DevicePointer nowhere = 16, log = 16;
    std::uint64_t quarter = 16;
    void* arguments[] = {&nowhere, &quarter, &log};
    driver().launch(pair.session.kernels.look, 1, 1, 1, 1, 1, 1, 0, pair.session.stream, arguments, nullptr);
    emit("a kernel that faults", result_name(driver().stream_synchronize(pair.session.stream)));
  } else {
    emit("reset of the primary context", result_name(driver().primary_reset(pair.session.device)));
  }
  unsigned type = 0;
  driver().context_set(pair.second);
  emit(format("after %s: memory type", how),
       result_name(driver().pointer_attribute(&type, 2, reinterpret_cast<DevicePointer>(host))));
  emit(format("after %s: unregister", how), result_name(driver().host_unregister(host)));
  emit(format("after %s: register", how), result_name(driver().host_register(host, kMiB, kPortable)));
}

/// Register and unregister beside copies that follow each other without a pause.
void beside_copies(bool second) {
  Pair pair;
  constexpr std::size_t kCopy = 64 * kMiB, kPiece = 16 * kMiB;
  void* pinned = nullptr;
  must(driver().allocate_host(&pinned, kCopy, kPortable), "cuMemHostAlloc");
  DevicePointer device = 0;
  must(driver().allocate(&device, kCopy), "cuMemAlloc");
  char* const host = map_memory(kPiece);
  fill(host, kPiece, 1);
  std::atomic<bool> stop{false};
  std::thread copying([&] {
    driver().context_set(pair.session.context);
    while (!stop) {
      for (int i = 0; i < 4; ++i) driver().copy_in_async(device, pinned, kCopy, pair.session.stream);
      driver().stream_synchronize(pair.session.stream);
    }
  });
  driver().context_set(second ? pair.second : pair.session.context);
  Times in, out;
  for (const double end = now() + 5e5; now() < end;) {
    const double began = now();
    must(driver().host_register(host, kPiece, kPortable), "cuMemHostRegister");
    const double registered = now();
    must(driver().host_unregister(host), "cuMemHostUnregister");
    out.add(now() - registered);
    in.add(registered - began);
  }
  stop = true;
  copying.join();
  emit(format("16 MiB beside copies of 64 MiB, in %s context", second ? "the second" : "the copies' own"),
       format("register %s; unregister %s", in.summary().c_str(), out.summary().c_str()), "us",
       "the queue holds four copies, 5 ms");
}

}  // namespace

void add_second(Experiments& all) {
  all.push_back({"second", 8, making});
  all.push_back({"second", 8, copy_speed});
  for (const GateKind kind : {GateKind::kValue, GateKind::kKernel}) {
    all.push_back({"second", 8, [=] { beside_gate(kind); }});
  }
  all.push_back({"second", 8, green});
  for (const bool by_error : {false, true})
    all.push_back({"second", 6, [=] { program_context_ends(by_error); }});
  for (const bool second : {false, true}) all.push_back({"second", 6, [=] { beside_copies(second); }});
}

}  // namespace pinion::gpu
