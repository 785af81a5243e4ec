// Checks what a program may rely on when it copies host memory, a line a check: the lines are the same with
// and without Pinion. Memory is *warmed* first: copied often enough from one place that a cache would keep
// it.
//
//   meaning [CHECK...]
//
// A check that hangs ends the process with status 3.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "program.h"

namespace {

using namespace pinion::gpu;

constexpr std::size_t kMost = 64 * kMiB;
DevicePointer device = 0;
std::atomic<double> began{0};
std::string current;

void say(const std::string& what, const std::string& value) {
  std::printf("%s: %s: %s\n", current.c_str(), what.c_str(), value.c_str());
  std::fflush(stdout);
}
std::string result(Result code) { return code == kSuccess ? "ok" : "error " + std::to_string(code); }
std::string right(bool is) { return is ? "right bytes" : "WRONG BYTES"; }
std::string size(std::size_t bytes) {
  return bytes >= kMiB ? std::to_string(bytes / kMiB) + " MiB" : std::to_string(bytes / kKiB) + " KiB";
}

/// Copies the memory often, with pauses in which a helper has time to register it.
void warm(char* memory, std::size_t bytes) {
  for (int i = 0; i < 12; ++i) {
    must(driver().copy_in(device, memory, bytes), "cuMemcpyHtoD");
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}
char* warmed(std::size_t bytes, std::uint64_t seed) {
  char* const memory = map_memory(bytes);
  write_pattern(memory, bytes, seed);
  warm(memory, bytes);
  return memory;
}
bool device_has(std::size_t bytes, std::uint64_t seed) {
  std::vector<char> copy(bytes);
  must(driver().copy_out(copy.data(), device, bytes), "cuMemcpyDtoH");
  return has_pattern(copy.data(), bytes, seed);
}

/// Holds a stream back until it is opened.
class Gate {
 public:
  explicit Gate(Stream stream) {
    must(driver().launch_host(
             stream,
             [](void* open) {
               while (!*static_cast<std::atomic<bool>*>(open)) std::this_thread::yield();
             },
             &open_),
         "cuLaunchHostFunc");
  }
  void open() { open_ = true; }

 private:
  std::atomic<bool> open_{false};
};

/// So much is copied before the first check that a front finds registration worth its start.
void copy_much() {
  char* const memory = map_memory(kMost);
  write_pattern(memory, kMost, 1);
  for (int i = 0; i < 10; ++i) must(driver().copy_in(device, memory, kMost), "cuMemcpyHtoD");
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  warm(memory, kMost);
  unmap_memory(memory, kMost);
}

void overwritten() {
  const Stream stream = new_stream();
  for (const std::size_t bytes : {64 * kKiB, 1 * kMiB, 2 * kMiB, 3 * kMiB, 64 * kMiB}) {
    char* const memory = warmed(bytes, 1);
    bool all = true;
    for (std::uint64_t i = 2; i < 22; ++i) {
      write_pattern(memory, bytes, i);
      must(driver().copy_in_async(device, memory, bytes, stream), "cuMemcpyHtoDAsync");
      std::memset(memory, 0xa5, bytes);
      must(driver().stream_synchronize(stream), "cuStreamSynchronize");
      all = all && device_has(bytes, i);
    }
    say("async to the GPU, overwritten after the return, " + size(bytes), right(all));
    unmap_memory(memory, bytes);
  }
}

void returned() {
  const Stream stream = new_stream();
  for (const std::size_t bytes : {64 * kKiB, 1 * kMiB, 64 * kMiB}) {
    char* const source = warmed(bytes, 7);
    must(driver().context_synchronize(), "cuCtxSynchronize");
    char* const memory = map_memory(bytes);
    bool all = true;
    for (int i = 0; i < 20; ++i) {
      std::memset(memory, 0x77, bytes);
      must(driver().copy_out_async(memory, device, bytes, stream), "cuMemcpyDtoHAsync");
      all = all && has_pattern(memory, bytes, 7);
    }
    say("async from the GPU, read after the return, " + size(bytes), right(all));
    unmap_memory(memory, bytes);
    unmap_memory(source, bytes);
  }
}

void gated() {
  if (!driver().launch_host) return;
  const Stream stream = new_stream();
  for (const std::size_t bytes : {4 * kKiB, 64 * kKiB, 1 * kMiB, 2 * kMiB}) {
    char* const memory = warmed(bytes, 1);
    write_pattern(memory, bytes, 5);
    Gate gate(stream);
    must(driver().copy_in_async(device, memory, bytes, stream), "cuMemcpyHtoDAsync");
    std::memset(memory, 0xa5, bytes);
    gate.open();
    must(driver().stream_synchronize(stream), "cuStreamSynchronize");
    say("behind a gate that the same thread opens, " + size(bytes), right(device_has(bytes, 5)));
    unmap_memory(memory, bytes);
  }
}

void gated_elsewhere() {
  if (!driver().launch_host) return;
  const Stream stream = new_stream(), held = new_stream();
  char* const memory = warmed(16 * kMiB, 1);
  Gate gate(held);
  write_pattern(memory, 16 * kMiB, 6);
  must(driver().copy_in_async(device, memory, 16 * kMiB, stream), "cuMemcpyHtoDAsync");
  must(driver().stream_synchronize(stream), "cuStreamSynchronize");
  unmap_memory(memory, 16 * kMiB);
  char* const other = warmed(16 * kMiB, 8);
  say("beside a stream that is held back", right(device_has(16 * kMiB, 8)));
  gate.open();
  must(driver().stream_synchronize(held), "cuStreamSynchronize");
  unmap_memory(other, 16 * kMiB);
}

void attributes() {
  char* const memory = warmed(16 * kMiB, 1);
  const auto address = reinterpret_cast<DevicePointer>(memory);
  unsigned type = 0, flags = 0;
  DevicePointer pointer = 0, base = 0;
  std::size_t bytes = 0;
  if (driver().pointer_attribute) say("memory type", result(driver().pointer_attribute(&type, 2, address)));
  if (driver().host_flags) say("cuMemHostGetFlags", result(driver().host_flags(&flags, memory)));
  if (driver().host_device_pointer) {
    say("cuMemHostGetDevicePointer", result(driver().host_device_pointer(&pointer, memory, 0)));
  }
  if (driver().address_range) {
    say("cuMemGetAddressRange", result(driver().address_range(&base, &bytes, address)));
  }
  say("cuMemHostUnregister of memory that the program never registered",
      result(driver().host_unregister(memory)));
  say("a copy afterwards", right(device_has(16 * kMiB, 1)));
  unmap_memory(memory, 16 * kMiB);
}

void own_register() {
  constexpr std::size_t kBytes = 16 * kMiB, kPart = 1 * kMiB;
  char* const memory = warmed(kBytes, 1);
  for (const std::size_t at : {std::size_t{0}, kPart + 100, kBytes - kPart}) {
    say("register a part", result(driver().host_register(memory + at, kPart, kPortable)));
    say("register it again", result(driver().host_register(memory + at, kPart, kPortable)));
    write_pattern(memory + at, kPart, 3);
    must(driver().copy_in(device, memory + at, kPart), "cuMemcpyHtoD");
    say("a copy of it", right(device_has(kPart, 3)));
    say("unregister it", result(driver().host_unregister(memory + at)));
    say("unregister it again", result(driver().host_unregister(memory + at)));
    write_pattern(memory, kBytes, 2);
    warm(memory, kBytes);
    say("a copy of all", right(device_has(kBytes, 2)));
  }
  say("register all", result(driver().host_register(memory, kBytes, kPortable)));
  unsigned type = 0;
  if (driver().pointer_attribute) {
    const Result asked = driver().pointer_attribute(&type, 2, reinterpret_cast<DevicePointer>(memory));
    say("memory type of own registration", result(asked) + ", " + std::to_string(type));
  }
  say("unregister all", result(driver().host_unregister(memory)));
  unmap_memory(memory, kBytes);
}

void remapped() {
  constexpr std::size_t kBytes = 16 * kMiB;
  char* memory = warmed(kBytes, 1);
  constexpr int kRights = PROT_READ | PROT_WRITE, kFixed = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
  const auto copied = [&](const char* what, std::uint64_t seed) {
    write_pattern(memory, kBytes, seed);
    must(driver().copy_in(device, memory, kBytes), "cuMemcpyHtoD");
    say(what, right(device_has(kBytes, seed)));
    warm(memory, kBytes);
  };
  ::munmap(memory, kBytes);
  ::mmap(memory, kBytes, kRights, kFixed, -1, 0);
  copied("munmap and mmap", 2);
  ::mmap(memory, kBytes, kRights, kFixed, -1, 0);
  copied("mmap over it", 3);
  ::madvise(memory, kBytes, MADV_DONTNEED);
  copied("MADV_DONTNEED", 4);
  char* const other = map_memory(kBytes);
  write_pattern(other, kBytes, 5);
  ::mremap(other, kBytes, kBytes, MREMAP_MAYMOVE | MREMAP_FIXED, memory);
  must(driver().copy_in(device, memory, kBytes), "cuMemcpyHtoD");
  say("mremap onto it", right(device_has(kBytes, 5)));
  ::mprotect(memory, kBytes, PROT_READ);
  must(driver().copy_in(device, memory, kBytes), "cuMemcpyHtoD");
  say("read-only", right(device_has(kBytes, 5)));
  ::mprotect(memory, kBytes, kRights);
  copied("written again", 6);
  must(driver().copy_out(memory, device, kBytes), "cuMemcpyDtoH");
  say("from the GPU into it", right(has_pattern(memory, kBytes, 6)));
  unmap_memory(memory, kBytes);
}

void borders() {
  constexpr std::size_t kBytes = 8 * kMiB;
  char* const memory = map_memory(2 * kBytes);
  write_pattern(memory, 2 * kBytes, 1);
  warm(memory, kBytes - 100);
  warm(memory + kBytes - 100, kBytes);
  must(driver().copy_in(device, memory, 2 * kBytes), "cuMemcpyHtoD");
  say("over two neighbours and more", right(device_has(2 * kBytes, 1)));
  warm(memory, kBytes);
  write_pattern(memory + kBytes / 2, kBytes, 2);
  must(driver().copy_in(device, memory + kBytes / 2, kBytes), "cuMemcpyHtoD");
  say("from inside one past its end", right(device_has(kBytes, 2)));
  if (driver().copy_2d) {
    write_pattern(memory, 2 * kBytes, 3);
    warm(memory, kBytes);
    Copy2D copy;
    copy.source_type = kMemoryTypeHost;
    copy.source_host = memory;
    copy.source_pitch = copy.target_pitch = copy.width = 64 * kKiB;
    copy.target_type = kMemoryTypeDevice;
    copy.target_device = device;
    copy.height = 2 * kBytes / copy.width;
    say("rows over it", result(driver().copy_2d(&copy)));
    say("rows over it", right(device_has(2 * kBytes, 3)));
  }
  unmap_memory(memory, 2 * kBytes);
}

void capture_of(std::size_t bytes, int mode) {
  const Stream stream = new_stream();
  char* const memory = warmed(bytes, 1);
  Graph graph = nullptr;
  GraphExec ready = nullptr;
  must(driver().begin_capture(stream, mode), "cuStreamBeginCapture");
  const Result copied = driver().copy_in_async(device, memory, bytes, stream);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const Result ended = driver().end_capture(stream, &graph);
  const std::string what = size(bytes) + (mode == kCaptureGlobal ? ", global" : ", relaxed");
  say("captured copy, " + what, result(copied));
  say("end of the capture, " + what, result(ended));
  if (ended != kSuccess) return;
  must(driver().graph_instantiate(&ready, graph, 0), "cuGraphInstantiate");
  bool all = true;
  for (std::uint64_t i = 2; i < 8; ++i) {
    warm(memory, bytes);
    write_pattern(memory, bytes, i);
    must(driver().graph_launch(ready, stream), "cuGraphLaunch");
    must(driver().stream_synchronize(stream), "cuStreamSynchronize");
    all = all && device_has(bytes, i);
  }
  say("launches of rewritten memory, " + what, right(all));
  unmap_memory(memory, bytes);
}
void captured() {
  if (!driver().begin_capture || !driver().graph_launch || !driver().graph_instantiate) return;
  for (const int mode : {kCaptureGlobal, kCaptureRelaxed}) {
    capture_of(64 * kKiB, mode);
    capture_of(1 * kMiB, mode);
    capture_of(16 * kMiB, mode);
  }
}

/// A capture of one thread, while another one copies memory that a helper registers.
void captured_beside() {
  if (!driver().begin_capture || !driver().graph_launch) return;
  const Stream stream = new_stream();
  std::atomic<bool> stop{false};
  DevicePointer other_device = 0;
  must(driver().allocate(&other_device, 8 * kMiB), "cuMemAlloc");
  std::thread copier([&] {
    use_context();
    while (!stop) {
      char* const memory = map_memory(8 * kMiB);
      write_pattern(memory, 8 * kMiB, 1);
      const Stream own = new_stream();
      for (int i = 0; i < 6; ++i) {
        must(driver().copy_in_async(other_device, memory, 8 * kMiB, own), "cuMemcpyHtoDAsync");
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      unmap_memory(memory, 8 * kMiB);
    }
  });
  std::string lost;
  for (int i = 0; i < 40 && lost.empty(); ++i) {
    Graph graph = nullptr;
    const Result begun = driver().begin_capture(stream, kCaptureThreadLocal);
    const Result added = driver().set_bytes_async(device, 1, 4096, stream);
    std::this_thread::sleep_for(std::chrono::milliseconds(3));
    const Result ended = driver().end_capture(stream, &graph);
    if (begun != kSuccess || added != kSuccess || ended != kSuccess)
      lost = "LOST: begin " + result(begun) + ", add " + result(added) + ", end " + result(ended);
  }
  stop = true;
  copier.join();
  say("forty captures beside a thread that copies", lost.empty() ? "intact" : lost);
}

void files() {
  constexpr std::size_t kBytes = 16 * kMiB;
  std::string path = std::string(std::getenv("TMPDIR") ? std::getenv("TMPDIR") : "/tmp") + "/meaning-XXXXXX";
  const int file = ::mkstemp(path.data());
  ::unlink(path.c_str());
  std::vector<char> contents(kBytes);
  write_pattern(contents.data(), kBytes, 4);
  if (file < 0 || ::write(file, contents.data(), kBytes) != static_cast<ssize_t>(kBytes)) {
    give_up("could not write a file");
  }
  for (const int sharing : {MAP_PRIVATE, MAP_SHARED}) {
    void* const all = ::mmap(nullptr, kBytes, PROT_READ, sharing, file, 0);
    warm(static_cast<char*>(all), kBytes);
    say(sharing == MAP_PRIVATE ? "private" : "shared", right(device_has(kBytes, 4)));
    ::munmap(all, kBytes);
  }
  ::close(file);
}

void forked() {
  constexpr std::size_t kBytes = 64 * kMiB;
  char* const memory = warmed(kBytes, 1);
  bool all = true;
  for (int i = 0; i < 4; ++i) {
    int go[2] = {-1, -1};
    if (::pipe2(go, O_CLOEXEC) != 0) return;
    const pid_t child = ::fork();
    if (child == 0) {
      char byte = 0;
      const bool heard = ::read(go[0], &byte, 1) == 1;
      ::_exit(heard && has_pattern(memory, kBytes, 1) ? 0 : 1);
    }
    write_pattern(memory, kBytes, 2);
    warm(memory, kBytes);
    all = all && ::write(go[1], "x", 1) == 1 && device_has(kBytes, 2);
    int status = 0;
    ::waitpid(child, &status, 0);
    all = all && WIFEXITED(status) && WEXITSTATUS(status) == 0;
    ::close(go[0]);
    ::close(go[1]);
    write_pattern(memory, kBytes, 1);
    warm(memory, kBytes);
  }
  say("child and parent", right(all));
  unmap_memory(memory, kBytes);
}

void refused() {
  char* const memory = warmed(1 * kMiB, 1);
  say("no device memory", result(driver().copy_in(0, memory, 1 * kMiB)));
  say("no bytes", result(driver().copy_in(device, memory, 0)));
  std::thread([&] {
    must(driver().context_set(nullptr), "cuCtxSetCurrent");
    say("no context", result(driver().copy_in(device, memory, 1 * kMiB)));
  }).join();
  say("a copy afterwards", result(driver().copy_in(device, memory, 1 * kMiB)));
  unmap_memory(memory, 1 * kMiB);
}

void reset() {
  char* const memory = warmed(16 * kMiB, 1);
  Context again = nullptr;
  say("reset", result(driver().primary_reset(0)));
  say("retain", result(driver().primary_retain(&again, 0)));
  must(driver().context_set(again), "cuCtxSetCurrent");
  must(driver().allocate(&device, kMost), "cuMemAlloc");
  write_pattern(memory, 16 * kMiB, 2);
  warm(memory, 16 * kMiB);
  say("a copy afterwards", right(device_has(16 * kMiB, 2)));
  unmap_memory(memory, 16 * kMiB);
}

struct Check {
  const char* name;
  void (*body)();
};
constexpr Check kChecks[] = {
    {"overwritten", overwritten},
    {"returned", returned},
    {"gated", gated},
    {"gated-elsewhere", gated_elsewhere},
    {"attributes", attributes},
    {"own-register", own_register},
    {"remapped", remapped},
    {"borders", borders},
    {"captured", captured},
    {"captured-beside", captured_beside},
    {"files", files},
    {"forked", forked},
    {"refused", refused},
    {"reset", reset},
};

void watch() {
  for (;;) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    if (now() - began < 60e6) continue;  // the longest check takes 3 s on an idle machine
    std::printf("%s: HANGS\n", current.c_str());
    std::fflush(nullptr);
    ::_exit(3);
  }
}

}  // namespace

int main(int argc, char** argv) {
  began = now();
  use_context();
  must(driver().allocate(&device, kMost), "cuMemAlloc");
  std::thread(watch).detach();
  copy_much();
  for (const Check& check : kChecks) {
    bool wanted = argc == 1;
    for (int i = 1; i < argc; ++i) wanted = wanted || std::strcmp(argv[i], check.name) == 0;
    if (!wanted) continue;
    current = check.name;
    began = now();
    check.body();
  }
  std::puts("meaning: end");
}
