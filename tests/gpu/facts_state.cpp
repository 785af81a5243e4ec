// Finds what the machine is, what events and attribute look-ups cost, what a program can see of registered
// memory, and what limits apply to it.
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "facts.h"

namespace pinion::gpu {
namespace {

std::string first_line(const char* path, const char* prefix = "") {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.rfind(prefix, 0) == 0) return line;
  }
  return "unknown";
}

void machine() {
  Session session;
  char name[256] = "";
  int version = 0, host_register_read_only = 0, pageable_access = 0, wait_nor = 0;
  must(driver().driver_version(&version), "cuDriverGetVersion");
  must(driver().device_name(name, sizeof name, session.device), "cuDeviceGetName");
  driver().device_attribute(&host_register_read_only, 113, session.device);
  driver().device_attribute(&pageable_access, 88, session.device);
  driver().device_attribute(&wait_nor, 123, session.device);
  utsname kernel{};
  ::uname(&kernel);
  emit("gpu", name);
  emit("CUDA version of the driver", format("%d", version));
  emit("driver", first_line("/proc/driver/nvidia/version"));
  emit("kernel", kernel.release);
  emit("processor", first_line("/proc/cpuinfo", "model name"));
  emit("cores", format("%u", std::thread::hardware_concurrency()));
  emit("memory", first_line("/proc/meminfo", "MemTotal"));
  emit("transparent hugepages", first_line("/sys/kernel/mm/transparent_hugepage/enabled"));
  emit("HOST_REGISTER_READ_ONLY_SUPPORTED", format("%d", host_register_read_only));
  emit("PAGEABLE_MEMORY_ACCESS", format("%d", pageable_access));
  emit("cuMemcpyBatchAsync", driver().copy_batch_v2   ? "both versions"
                             : driver().copy_batch_v1 ? "the first version"
                                                      : "absent");
}

template <class Body>
void cost(const char* name, const char* how, int runs, Body body) {
  for (int i = 0; i < 100; ++i) body();
  Times taken;
  for (int i = 0; i < runs; ++i) {
    const double began = now();
    body();
    taken.add(now() - began);
  }
  emit(name, taken.summary() + format("; p99 %.4g", taken.quantile(.99)), "us", how);
}

/// The mean of a call too short for a clock around each.
template <class Body>
void mean_cost(const char* name, Body body) {
  constexpr int kCalls = 20000;
  for (int i = 0; i < 1000; ++i) body();
  Times means;
  for (int run = 0; run < 9; ++run) {
    const double began = now();
    for (int i = 0; i < kCalls; ++i) body();
    means.add((now() - began) / kCalls * 1e3);
  }
  emit(name, means.summary(), "ns", "mean of 20,000 calls, median (p10..p90) of 9");
}

void events() {
  Session session;
  const Stream stream = session.stream;
  Event blocking = nullptr, spinning = nullptr;
  must(driver().event_create(&blocking, kEventBlocking | kEventNoTiming), "cuEventCreate");
  must(driver().event_create(&spinning, kEventNoTiming), "cuEventCreate");
  const auto launch = [&] {
    driver().launch(session.kernels.nothing, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr);
  };
  for (const bool blocks : {true, false}) {
    const Event event = blocks ? blocking : spinning;
    const char* const kind = blocks ? "blocking event" : "spinning event";
    cost("record and synchronize, idle stream", kind, 2000, [&] {
      driver().event_record(event, stream);
      driver().event_synchronize(event);
    });
    cost("launch, record and synchronize", kind, 2000, [&] {
      launch();
      driver().event_record(event, stream);
      driver().event_synchronize(event);
    });
  }
  cost("launch and stream synchronize", "no event", 2000, [&] {
    launch();
    driver().stream_synchronize(stream);
  });
  must(driver().stream_synchronize(stream), "cuStreamSynchronize");
  mean_cost("cuEventRecord, idle stream", [&] { driver().event_record(spinning, stream); });
  must(driver().stream_synchronize(stream), "cuStreamSynchronize");
  mean_cost("cuEventQuery, complete", [&] { driver().event_query(spinning); });
  mean_cost("cuEventSynchronize, complete, blocking event", [&] { driver().event_synchronize(blocking); });
  Gate gate(GateKind::kValue);
  gate.close(stream, session.kernels);
  driver().event_record(spinning, stream);
  mean_cost("cuEventQuery, pending", [&] { driver().event_query(spinning); });
  mean_cost("cuStreamQuery, pending", [&] { driver().stream_query(stream); });
  gate.open();
  must(driver().stream_synchronize(stream), "cuStreamSynchronize");
  int capturing = 0;
  mean_cost("cuStreamIsCapturing", [&] { driver().is_capturing(stream, &capturing); });
  unsigned long long id = 0;
  mean_cost("cuCtxGetId", [&] { driver().context_id(session.context, &id); });
  mean_cost("cuCtxSetCurrent", [&] { driver().context_set(session.context); });
}

std::string attribute(int which, const void* pointer) {
  unsigned long long value = 0;
  const Result result = driver().pointer_attribute(&value, which, reinterpret_cast<DevicePointer>(pointer));
  if (result != kSuccess) return result_name(result);
  // The address attributes are told relative to the pointer, because an address says nothing by itself.
  if (which == 3 || which == 4 || which == 11) {
    return value ? format("pointer%+lld",
                          static_cast<long long>(value - reinterpret_cast<DevicePointer>(pointer)))
                 : "0";
  }
  if (which == 1 || which == 7) return value ? "set" : "0";
  return format("%llu", value);
}

void show(const char* kind, const void* pointer) {
  struct {
    int which;
    const char* name;
  } const kShown[] = {{1, "CONTEXT"},     {2, "MEMORY_TYPE"}, {3, "DEVICE_POINTER"}, {4, "HOST_POINTER"},
                      {7, "BUFFER_ID"},   {8, "IS_MANAGED"},  {9, "DEVICE_ORDINAL"}, {11, "RANGE_START_ADDR"},
                      {12, "RANGE_SIZE"}, {13, "MAPPED"},     {16, "ACCESS_FLAGS"}};
  std::string text;
  for (const auto& shown : kShown) {
    text += format("%s%s %s", text.empty() ? "" : "; ", shown.name, attribute(shown.which, pointer).c_str());
  }
  unsigned flags = 99;
  DevicePointer device = 0, base = 0;
  std::size_t size = 0;
  void* const host = const_cast<void*>(pointer);
  const Result flagged = driver().host_flags(&flags, host);
  const Result pointed = driver().host_device_pointer(&device, host, 0);
  const Result ranged = driver().address_range(&base, &size, reinterpret_cast<DevicePointer>(pointer));
  text += format("; cuMemHostGetFlags %s",
                 flagged == kSuccess ? format("%u", flags).c_str() : result_name(flagged).c_str());
  text += format("; cuMemHostGetDevicePointer %s", pointed != kSuccess ? result_name(pointed).c_str()
                                                   : device == reinterpret_cast<DevicePointer>(pointer)
                                                       ? "the same"
                                                       : "another");
  text += format("; cuMemGetAddressRange %s",
                 ranged == kSuccess ? format("%zu bytes", size).c_str() : result_name(ranged).c_str());
  emit(format("attributes of %s", kind), text);
}

void attributes() {
  Session session;
  char* const host = map_memory(4 * kMiB);
  fill(host, 4 * kMiB, 1);
  void* allocated = nullptr;
  DevicePointer device = 0;
  must(driver().host_register(host + kMiB, kMiB, 0), "cuMemHostRegister");
  must(driver().host_register(host + 2 * kMiB, kMiB, kPortable | kDeviceMap), "cuMemHostRegister");
  must(driver().allocate_host(&allocated, kMiB, 0), "cuMemHostAlloc");
  must(driver().allocate(&device, kMiB), "cuMemAlloc");
  void* const on_device = reinterpret_cast<void*>(device);
  show("pageable memory", host);
  show("registered memory, flags 0, 4 KiB into it", host + kMiB + 4096);
  show("registered memory, PORTABLE and DEVICEMAP, its start", host + 2 * kMiB);
  show("cuMemHostAlloc's memory", allocated);
  show("device memory", on_device);
  must(driver().host_unregister(host + kMiB), "cuMemHostUnregister");
  show("memory that was registered before", host + kMiB + 4096);
  const std::pair<const char*, void*> kinds[] = {{"pageable", host},
                                                 {"registered", host + 2 * kMiB},
                                                 {"allocated host", allocated},
                                                 {"device", on_device}};
  for (const auto& [kind, pointer] : kinds) {
    unsigned long long value = 0;
    mean_cost(format("cuPointerGetAttribute MEMORY_TYPE, %s", kind).c_str(), [&, at = pointer] {
      driver().pointer_attribute(&value, 2, reinterpret_cast<DevicePointer>(at));
    });
  }
}

/// Registers as an ordinary user with a small RLIMIT_MEMLOCK.
void limits() {
  Session session;
  const rlimit small{64 * kKiB, 64 * kKiB};
  if (::setrlimit(RLIMIT_MEMLOCK, &small) != 0) return emit("RLIMIT_MEMLOCK", "could not be lowered");
  char* const host = map_memory(256 * kMiB);
  fill(host, 256 * kMiB, 1);
  for (const bool root : {true, false}) {
    if (!root && ::setuid(65534) != 0) return emit("an ordinary user", "could not become one");
    const long pinned = status_kib("VmPin"), locked = status_kib("VmLck");
    const Result result = driver().host_register(host, 256 * kMiB, kPortable);
    emit(
        format("register of 256 MiB under RLIMIT_MEMLOCK of 64 KiB, user id %u", ::geteuid()),
        result_name(result), "",
        format("VmPin %+ld KiB, VmLck %+ld KiB", status_kib("VmPin") - pinned, status_kib("VmLck") - locked));
    if (result == kSuccess) must(driver().host_unregister(host), "cuMemHostUnregister");
  }
}

/// Maps memory anew under a registration.
void stale() {
  Session session;
  char* const host = map_memory(4 * kMiB);
  DevicePointer device = 0;
  must(driver().allocate(&device, kMiB), "cuMemAlloc");
  fill(host, kMiB, 1);
  must(driver().host_register(host, kMiB, kPortable), "cuMemHostRegister");
  ::munmap(host, kMiB);
  ::mmap(host, kMiB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  fill(host, kMiB, 2);
  const Result copied = driver().copy_in(device, host, kMiB);
  emit("copy of memory mapped anew under its registration",
       result_name(copied) + ", the GPU holds " + device_contents(device, kMiB), "", "2 is right");
  emit("register of memory mapped anew under its registration",
       result_name(driver().host_register(host, kMiB, kPortable)));
  emit("unregister after that", result_name(driver().host_unregister(host)));
  emit("register after that", result_name(driver().host_register(host, kMiB, kPortable)));
  driver().copy_in(device, host, kMiB);
  emit("copy after that", "the GPU holds " + device_contents(device, kMiB), "", "2 is right");
}

}  // namespace

void add_state(Experiments& all) {
  all.push_back({"machine", 20, machine});
  all.push_back({"events", 10, events});
  all.push_back({"attributes", 8, attributes});
  all.push_back({"limits", 8, limits});
  all.push_back({"stale", 6, stale});
}

}  // namespace pinion::gpu
