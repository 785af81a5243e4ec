// Finds what a fork costs with memory registered, what the child and the parent see, and how the driver marks
// the memory.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <fstream>

#include "facts.h"

namespace pinion::gpu {
namespace {

/// The kernel's flags of the mapping that holds the address.
std::string mapping_flags(const void* address) {
  std::ifstream file("/proc/self/smaps");
  bool inside = false;
  for (std::string line; std::getline(file, line);) {
    std::uintptr_t start = 0, end = 0;
    if (std::sscanf(line.c_str(), "%" SCNxPTR "-%" SCNxPTR, &start, &end) == 2) {
      const auto at = reinterpret_cast<std::uintptr_t>(address);
      inside = at >= start && at < end;
    }
    if (inside && line.rfind("VmFlags:", 0) == 0) return line.substr(9);
  }
  return "unknown";
}

/// Forks; the child exits with what body returns. Returns the status and how long fork itself took.
int in_forked(const std::function<int()>& body, double* took) {
  const double began = now();
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body());
  *took = now() - began;
  int status = 0;
  ::waitpid(child, &status, 0);
  return status;
}

std::string status_text(int status) {
  return WIFEXITED(status) ? format("exit %d", WEXITSTATUS(status)) : format("signal %d", WTERMSIG(status));
}

void fork_times(Pages pages) {
  Session session;
  char* const host = map_memory(kGiB, pages);
  fill(host, kGiB, 1, 8);
  for (const bool registered : {false, true}) {
    if (registered) must(driver().host_register(host, kGiB, kPortable), "cuMemHostRegister");
    Times times;
    for (int i = 0; i < 5; ++i) {
      double took = 0;
      in_forked([] { return 0; }, &took);
      times.add(took / 1e3);
    }
    emit(format("fork with 1 GiB %s, %s", registered ? "registered" : "touched",
                pages == Pages::kBase ? "base pages" : "hugepages"),
         times.summary(), "ms", "5 runs");
  }
}

void fork_contents() {
  Session session;
  char* const host = map_memory(4 * kMiB);
  fill(host, 4 * kMiB, 1);
  const std::string before = mapping_flags(host);
  must(driver().host_register(host, 4 * kMiB, kPortable), "cuMemHostRegister");
  emit("VmFlags of registered memory", mapping_flags(host), "",
       "before: " + before + "; dc: not copied by fork");
  void* allocated = nullptr;
  must(driver().allocate_host(&allocated, 4 * kMiB, kPortable), "cuMemHostAlloc");
  fill(allocated, 4 * kMiB, 1);
  emit("VmFlags of cuMemHostAlloc's memory", mapping_flags(allocated));
  double took = 0;
  emit("a child reads registered memory",
       status_text(in_forked([&] { return contents(host, 4 * kMiB) == "1" ? 0 : 1; }, &took)), "",
       "exit 0 is right");
  emit("a child reads cuMemHostAlloc's memory",
       status_text(in_forked([&] { return contents(allocated, 4 * kMiB) == "1" ? 0 : 1; }, &took)), "",
       "exit 0 is right");
  DevicePointer device = 0;
  must(driver().allocate(&device, 4 * kMiB), "cuMemAlloc");
  // The child lives while the parent writes and copies.
  int gate[2];
  if (::pipe(gate) != 0) return;
  const pid_t child = ::fork();
  if (child == 0) {
    char byte = 0;
    fill(host, 2 * kMiB, 7);
    ::_exit(::read(gate[0], &byte, 1) == 1 && contents(host + 2 * kMiB, 2 * kMiB) == "1" ? 0 : 1);
  }
  ::usleep(50000);
  fill(host, 4 * kMiB, 2);
  must(driver().copy_in(device, host, 4 * kMiB), "cuMemcpyHtoD");
  emit("the parent writes and copies while a child lives",
       "the GPU holds " + device_contents(device, 4 * kMiB), "", "2 is right");
  must(driver().set_bytes(device, 3, 4 * kMiB), "cuMemsetD8");
  must(driver().copy_out(host, device, 4 * kMiB), "cuMemcpyDtoH");
  emit("the parent copies back while a child lives", "the host holds " + contents(host, 4 * kMiB), "",
       "50529027 is right");
  if (::write(gate[1], "x", 1) != 1) return;
  int status = 0;
  ::waitpid(child, &status, 0);
  emit("the child meanwhile reads the bytes of the fork", status_text(status), "", "exit 0 is right");
}

/// Measures the time with MADV_DONTFORK by the program itself.
void fork_with_dontfork() {
  Session session;
  char* const host = map_memory(kGiB);
  fill(host, kGiB, 1, 8);
  must(driver().host_register(host, kGiB, kPortable), "cuMemHostRegister");
  ::madvise(host, kGiB, MADV_DONTFORK);
  Times times;
  for (int i = 0; i < 5; ++i) {
    double took = 0;
    in_forked([] { return 0; }, &took);
    times.add(took / 1e3);
  }
  emit("fork with 1 GiB registered and MADV_DONTFORK", times.summary(), "ms", "5 runs, base pages");
  const double began = now();
  must(driver().host_unregister(host), "cuMemHostUnregister");
  emit("unregister of 1 GiB before a fork", format("%.4g", (now() - began) / 1e3), "ms", "once");
}

/// Finds the calls of the driver that a child may make.
void calls_in_child() {
  Session session;
  char* const host = map_memory(kMiB);
  fill(host, kMiB, 1);
  must(driver().host_register(host, kMiB, kPortable), "cuMemHostRegister");
  double took = 0;
  const int status = in_forked(
      [&] {
        unsigned long long id = 0;
        emit("in a child: cuMemHostUnregister", result_name(driver().host_unregister(host)));
        emit("in a child: cuCtxGetId", result_name(driver().context_id(nullptr, &id)));
        return 0;
      },
      &took);
  emit("in a child: end", status_text(status));
}

}  // namespace

void add_fork(Experiments& all) {
  all.push_back({"fork", 10, [] { fork_times(Pages::kBase); }});
  all.push_back({"fork", 10, [] { fork_times(Pages::kHuge); }});
  all.push_back({"fork", 6, fork_contents});
  all.push_back({"fork", 8, fork_with_dontfork});
  all.push_back({"fork", 6, calls_in_child});
}

}  // namespace pinion::gpu
