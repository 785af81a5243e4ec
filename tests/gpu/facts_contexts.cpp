// Finds how registrations depend on contexts, and what a read-only registration of a mapped file does to the
// program's memory.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <thread>

#include "facts.h"

namespace pinion::gpu {
namespace {

constexpr std::size_t kRange = kMiB;

void in_thread(const std::function<void()>& body) {
  std::thread thread(body);
  thread.join();
}

std::string memory_type(const void* pointer) {
  unsigned type = 0;
  const Result result = driver().pointer_attribute(&type, 2, reinterpret_cast<DevicePointer>(pointer));
  return result == kSuccess ? (type == 1 ? "host" : "device") : result_name(result);
}

void no_context() {
  Session session;
  char* const host = map_memory(2 * kRange);
  fill(host, 2 * kRange, 1);
  must(driver().host_register(host, kRange, kPortable), "cuMemHostRegister");
  in_thread([&] {
    unsigned long long id = 0;
    emit("register without a current context",
         result_name(driver().host_register(host + kRange, kRange, kPortable)));
    emit("memory type without a current context", memory_type(host));
    emit("cuCtxGetId(NULL) without a current context", result_name(driver().context_id(nullptr, &id)));
    emit("unregister without a current context", result_name(driver().host_unregister(host)));
  });
}

void recurring_handles() {
  Session session;
  std::string text;
  Context first = nullptr;
  for (int i = 0; i < 4; ++i) {
    Context context = nullptr;
    unsigned long long id = 0;
    must(driver().context_create(&context, 0, session.device), "cuCtxCreate");
    must(driver().context_id(context, &id), "cuCtxGetId");
    if (i == 0) first = context;
    text +=
        format("%s%s id %llu", i ? ", " : "", context == first ? "the first handle" : "another handle", id);
    must(driver().context_destroy(context), "cuCtxDestroy");
  }
  emit("contexts made and destroyed in turn", text);
  unsigned long long id = 0;
  emit("cuCtxGetId of a destroyed context", result_name(driver().context_id(first, &id)));
}

void primary_reset() {
  Session session;
  char* const host = map_memory(kRange);
  fill(host, kRange, 1);
  unsigned long long before = 0, after = 0;
  must(driver().context_id(session.context, &before), "cuCtxGetId");
  must(driver().host_register(host, kRange, kPortable), "cuMemHostRegister");
  emit("cuDevicePrimaryCtxReset with memory registered", result_name(driver().primary_reset(session.device)));
  emit("after a reset: memory type", memory_type(host));
  emit("after a reset: unregister", result_name(driver().host_unregister(host)));
  Context again = nullptr;
  emit("after a reset: retain", result_name(driver().primary_retain(&again, session.device)),
       again == session.context ? "the same handle" : "another handle");
  driver().context_set(again);
  driver().context_id(again, &after);
  emit("after a reset and a retain: context ids", format("%llu, then %llu", before, after));
  emit("after a reset and a retain: memory type", memory_type(host));
  emit("after a reset and a retain: unregister", result_name(driver().host_unregister(host)));
  const Result result = driver().host_register(host, kRange, kPortable);
  DevicePointer device = 0;
  driver().allocate(&device, kRange);
  fill(host, kRange, 2);
  driver().copy_in(device, host, kRange);
  emit("after a reset and a retain: register",
       result_name(result) + ", a copy gives " + device_contents(device, kRange), "", "2 is right");
}

/// A registration of one context, seen from another, and after its context is destroyed.
void two_contexts(unsigned flags) {
  Session session;
  Context second = nullptr;
  must(driver().context_create(&second, 0, session.device), "cuCtxCreate");
  char* const host = map_memory(2 * kRange);
  fill(host, 2 * kRange, 1);
  driver().context_set(second);
  must(driver().host_register(host, kRange, flags), "cuMemHostRegister");
  must(driver().host_register(host + kRange, kRange, flags), "cuMemHostRegister");
  driver().context_set(session.context);
  const char* const kind = flags ? "PORTABLE" : "flags 0";
  emit(format("registered in another context, %s: memory type", kind), memory_type(host));
  emit(format("registered in another context, %s: register again", kind),
       result_name(driver().host_register(host, kRange, flags)));
  DevicePointer device = 0;
  must(driver().allocate(&device, 2 * kRange), "cuMemAlloc");
  Gate gate(GateKind::kValue);
  gate.close(session.stream, session.kernels);
  const Step outcome = step(session.context, gate,
                            [&] { return driver().copy_in_async(device, host, kRange, session.stream); });
  if (outcome.at_once) fill(host, kRange, 2);
  gate.open();
  driver().context_synchronize();
  emit(format("registered in another context, %s: async copy", kind),
       outcome.text() + ", the GPU holds " + device_contents(device, kRange), "",
       "1: read by the call (pageable); 2: read in stream order (pinned)");
  emit(format("registered in another context, %s: unregister", kind),
       result_name(driver().host_unregister(host)));
  emit(format("registered in a context that is destroyed, %s: destroy", kind),
       result_name(driver().context_destroy(second)));
  emit(format("registered in a context that is destroyed, %s: memory type", kind),
       memory_type(host + kRange));
  emit(format("registered in a context that is destroyed, %s: unregister", kind),
       result_name(driver().host_unregister(host + kRange)));
  emit(format("registered in a context that is destroyed, %s: register again", kind),
       result_name(driver().host_register(host + kRange, kRange, flags)));
}

/// A file of 64 MiB that is gone from its folder, full of ones.
int make_file(std::size_t bytes) {
  const char* const folder = std::getenv("TMPDIR");
  std::string path = std::string(folder ? folder : "/tmp") + "/pinion-facts-XXXXXX";
  const int file = ::mkstemp(path.data());
  ::unlink(path.c_str());
  char* const memory = map_memory(bytes);
  fill(memory, bytes, 1);
  if (file < 0 || ::write(file, memory, bytes) != static_cast<ssize_t>(bytes)) {
    emit("failed", "could not write a file");
    ::_exit(2);
  }
  ::fsync(file);
  unmap_memory(memory, bytes);
  return file;
}

std::string resident() {
  return format("RssAnon %ld, RssFile %ld MiB", status_kib("RssAnon") / 1024, status_kib("RssFile") / 1024);
}

void mapped_file(int sharing, int rights, unsigned flags, std::size_t bytes = 64 * kMiB) {
  Session session;
  DevicePointer device = 0;
  must(driver().allocate(&device, bytes), "cuMemAlloc");
  const int file = make_file(bytes);
  void* const host = ::mmap(nullptr, bytes, rights, sharing, file, 0);
  contents(host, bytes);
  const std::string name =
      format("%s file mapping, %s, register flags %u", sharing == MAP_SHARED ? "shared" : "private",
             rights & PROT_WRITE ? "writable" : "read-only", flags);
  const std::string before = resident();
  const double began = now();
  const Result result = driver().host_register(host, bytes, flags);
  const double took = now() - began;
  emit(name, result_name(result), "", format("%s of page cache, %.0f us", size_name(bytes).c_str(), took));
  if (result != kSuccess) return;
  emit(name + ": memory", before + " before; " + resident() + " registered");
  const Result in = driver().copy_in(device, host, bytes);
  emit(name + ": copy to the GPU", result_name(in) + ", the GPU holds " + device_contents(device, bytes), "",
       "1 is right");
  must(driver().set_bytes(device, 3, bytes), "cuMemsetD8");
  emit(name + ": copy from the GPU", result_name(driver().copy_out(host, device, bytes)));
  if (!(rights & PROT_WRITE) && sharing == MAP_PRIVATE) {
    ::mprotect(host, bytes, PROT_READ | PROT_WRITE);
    fill(host, bytes, 2);
    const Result written = driver().copy_in(device, host, bytes);
    emit(name + ": copy to the GPU after mprotect and a write",
         result_name(written) + ", the GPU holds " + device_contents(device, bytes), "", "2 is right");
    emit(name + ": copy from the GPU after mprotect", result_name(driver().copy_out(host, device, bytes)), "",
         "pageable memory: ok");
  }
  must(driver().host_unregister(host), "cuMemHostUnregister");
  emit(name + ": memory after the unregister", resident());
}

/// Prints where the thread stands in the kernel, and what it has used.
std::string thread_state(pid_t thread) {
  const std::string folder = format("/proc/self/task/%d/", thread);
  std::string text;
  for (const char* const name : {"wchan", "stack", "stat"}) {
    std::ifstream file(folder + name);
    std::string line;
    for (int i = 0; i < 8 && std::getline(file, line); ++i)
      text += (text.empty() ? "" : " | ") + line.substr(0, 100);
  }
  return text;
}

/// A read-only registration of a private mapping of a file, with a look at the thread if it takes long.
void private_read_only(const char* folder, std::size_t bytes, bool touched) {
  Session session;
  ::setenv("TMPDIR", folder, 1);
  const int file = make_file(bytes);
  void* const host = ::mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, file, 0);
  if (touched) contents(host, bytes);
  std::atomic<pid_t> thread{0};
  std::atomic<bool> done{false};
  Result result = -1;
  double took = 0;
  const std::string before = resident();
  std::thread registering([&] {
    driver().context_set(session.context);
    thread = ::gettid();
    const double began = now();
    result = driver().host_register(host, bytes, kReadOnly | kPortable);
    took = now() - began;
    done = true;
  });
  for (const double end = now() + 2e6; !done && now() < end;) ::usleep(1000);
  const std::string name = format("READ_ONLY register of %s of a private file mapping in %s, %s",
                                  size_name(bytes).c_str(), folder, touched ? "read before" : "untouched");
  if (!done) {
    emit(name, "does not return within 2 s", "", thread_state(thread));
    ::_exit(0);
  }
  registering.join();
  emit(name, result_name(result), "",
       format("%.0f us; %s before, %s after", took, before.c_str(), resident().c_str()));
}

/// A copy from the GPU into pageable memory that may not be written, for comparison.
void plain_copy_out_into_read_only() {
  Session session;
  DevicePointer device = 0;
  must(driver().allocate(&device, kRange), "cuMemAlloc");
  char* const host = map_memory(kRange);
  fill(host, kRange, 1);
  ::mprotect(host, kRange, PROT_READ);
  emit("pageable read-only memory: copy to the GPU", result_name(driver().copy_in(device, host, kRange)));
  emit("pageable read-only memory: copy from the GPU", result_name(driver().copy_out(host, device, kRange)));
}

}  // namespace

void add_contexts(Experiments& all) {
  all.push_back({"contexts", 6, no_context});
  all.push_back({"contexts", 10, recurring_handles});
  all.push_back({"contexts", 8, primary_reset});
  for (const unsigned flags : {0U, kPortable}) all.push_back({"contexts", 8, [=] { two_contexts(flags); }});
  all.push_back({"files", 8, [] { mapped_file(MAP_PRIVATE, PROT_READ, kPortable); }});
  all.push_back({"files", 8, [] { mapped_file(MAP_PRIVATE, PROT_READ | PROT_WRITE, kPortable); }});
  all.push_back(
      {"files", 8, [] { mapped_file(MAP_PRIVATE, PROT_READ | PROT_WRITE, kReadOnly | kPortable, kMiB); }});
  all.push_back({"files", 8, [] { mapped_file(MAP_PRIVATE, PROT_READ, kReadOnly | kPortable, kMiB); }});
  all.push_back({"files", 8, [] { mapped_file(MAP_SHARED, PROT_READ, kReadOnly | kPortable); }});
  all.push_back({"files", 8, [] { mapped_file(MAP_SHARED, PROT_READ | PROT_WRITE, kPortable); }});
  for (const std::size_t bytes : {4 * kKiB, kMiB, 2 * kMiB, 4 * kMiB, 16 * kMiB, 64 * kMiB}) {
    all.push_back({"files", 5, [=] { private_read_only("/tmp", bytes, true); }});
  }
  for (const char* const folder : {"/tmp", "/dev/shm"}) {
    all.push_back({"files", 5, [=] { private_read_only(folder, 64 * kMiB, false); }});
  }
  all.push_back({"files", 6, plain_copy_out_into_read_only});
}

}  // namespace pinion::gpu
