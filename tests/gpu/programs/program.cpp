#include "program.h"

#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

namespace pinion::gpu {
namespace {

// Written for any GPU since 2018: the driver compiles it.
constexpr char kKernelText[] = R"(
.version 7.0
.target sm_75
.address_size 64
.visible .entry nothing() {
  ret;
}
)";

[[noreturn]] void absent(const char* why) {
  std::fprintf(stderr, "%s: %s\n", program_invocation_short_name, why);
  ::_exit(77);
}

/// Looks names up as libcudart does, if PINION_GPU_ROAD says so; else by dlsym.
struct Road {
  void* library = nullptr;
  Result (*get_proc_address)(const char*, void**, int, std::uint64_t, int*) = nullptr;

  void* find(const char* symbol) const { return called_for(symbol, look_up(symbol)); }
  void* look_up(const char* symbol) const {
    // The newest cuCtxCreate has other parameters.
    if (!get_proc_address || std::strcmp(symbol, "cuCtxCreate_v2") == 0) return ::dlsym(library, symbol);
    // The names that this call knows are without a version's suffix; the version chooses the newest variant.
    char name[64];
    std::snprintf(name, sizeof name, "%s", symbol);
    const std::size_t length = std::strlen(name);
    if (length > 3 && std::strcmp(name + length - 3, "_v2") == 0) name[length - 3] = '\0';
    void* found = nullptr;
    constexpr int kVersion = 12000;
    if (get_proc_address(name, &found, kVersion, 0, nullptr) != kSuccess) found = nullptr;
    return found ? found : ::dlsym(library, symbol);
  }
};

Road road() {
  Road found;
  found.library = ::dlopen("libcuda.so.1", RTLD_NOW);
  if (!found.library) absent("no libcuda.so.1");
  const char* const wish = std::getenv("PINION_GPU_ROAD");
  if (wish && std::strcmp(wish, "proc") == 0) {
    void* const symbol = ::dlsym(found.library, "cuGetProcAddress_v2");
    found.get_proc_address = reinterpret_cast<decltype(found.get_proc_address)>(symbol);
  }
  return found;
}

Driver load_driver() {
  const Road way = road();
  Driver loaded;
  loaded.library = way.library;
#define PINION_GPU_LOOK_UP(member, symbol, parameters) \
  loaded.member = reinterpret_cast<Result(*) parameters>(way.find(symbol));
  PINION_GPU_DRIVER_CALLS(PINION_GPU_LOOK_UP)
  PINION_GPU_OPTIONAL_CALLS(PINION_GPU_LOOK_UP)
#undef PINION_GPU_LOOK_UP
  return loaded;
}

template <class Visit>
void each_stamp(std::size_t bytes, Visit&& visit) {
  for (std::size_t at = 0; at + 8 <= bytes; at += 4096) visit(at);
  if (bytes >= 8) visit((bytes - 8) & ~std::size_t{7});
}

}  // namespace

[[gnu::weak]] void* called_for(const char*, void* function) { return function; }

const Driver& driver() {
  static const Driver loaded = load_driver();
  return loaded;
}

const MoreCalls& more_calls() {
  static const MoreCalls loaded = [] {
    const Road way = road();
    MoreCalls calls;
    const auto find = [&](auto& call, const char* symbol) {
      call = reinterpret_cast<std::remove_reference_t<decltype(call)>>(way.find(symbol));
    };
    find(calls.unified, "cuMemcpy");
    find(calls.unified_async, "cuMemcpyAsync");
    find(calls.peer, "cuMemcpyPeer");
    find(calls.peer_async, "cuMemcpyPeerAsync");
    find(calls.stream_destroy, "cuStreamDestroy_v2");
    find(calls.graph_destroy, "cuGraphDestroy");
    find(calls.exec_destroy, "cuGraphExecDestroy");
    find(calls.wait_event, "cuStreamWaitEvent");
    find(calls.event_destroy, "cuEventDestroy_v2");
    find(calls.copy_3d, "cuMemcpy3D_v2");
    find(calls.copy_3d_async, "cuMemcpy3DAsync_v2");
    find(calls.array_create, "cuArray3DCreate_v2");
    find(calls.array_destroy, "cuArrayDestroy");
    find(calls.batch_3d, "cuMemcpy3DBatchAsync_v2");
    find(calls.push, "cuCtxPushCurrent_v2");
    find(calls.pop, "cuCtxPopCurrent_v2");
    return calls;
  }();
  return loaded;
}

void give_up(const char* what) {
  std::fprintf(stderr, "%s: %s\n", program_invocation_short_name, what);
  std::fflush(nullptr);
  ::_exit(2);
}

void must(Result result, const char* what) {
  if (result == kSuccess) return;
  char text[128];
  std::snprintf(text, sizeof text, "%s: error %d", what, result);
  give_up(text);
}

Context use_context() {
  static const Context context = [] {
    Device device = 0;
    Context primary = nullptr;
    if (!driver().init || driver().init(0) != kSuccess) absent("cuInit found no device");
    must(driver().device_get(&device, 0), "cuDeviceGet");
    must(driver().primary_retain(&primary, device), "cuDevicePrimaryCtxRetain");
    return primary;
  }();
  must(driver().context_set(context), "cuCtxSetCurrent");
  return context;
}

Stream new_stream() {
  Stream stream = nullptr;
  must(driver().stream_create(&stream, kNonBlocking), "cuStreamCreate");
  return stream;
}

Function empty_kernel() {
  Module module = nullptr;
  Function function = nullptr;
  if (!driver().module_load || !driver().launch) absent("this driver launches nothing");
  must(driver().module_load(&module, kKernelText), "cuModuleLoadData");
  must(driver().module_function(&function, module, "nothing"), "cuModuleGetFunction");
  return function;
}

char* map_memory(std::size_t bytes, bool huge) {
  constexpr std::size_t kAlignment = 2 * kMiB;
  const std::size_t more = huge ? kAlignment : 0;
  bytes = (bytes + 4095) & ~std::size_t{4095};  // ThreadSanitizer knows no bytes of a page but those named
  void* const all = ::mmap(nullptr, bytes + more, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (all == MAP_FAILED) give_up("mmap failed");
  auto start = reinterpret_cast<std::uintptr_t>(all);
  if (huge) {
    const std::uintptr_t aligned = (start + kAlignment - 1) / kAlignment * kAlignment;
    if (aligned > start) ::munmap(all, aligned - start);
    const std::size_t behind = start + kAlignment - aligned;
    if (behind > 0) ::munmap(reinterpret_cast<void*>(aligned + bytes), behind);
    start = aligned;
  }
  char* const memory = reinterpret_cast<char*>(start);
  ::madvise(memory, bytes, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
  return memory;
}

void unmap_memory(void* memory, std::size_t bytes) { ::munmap(memory, bytes); }

void touch(char* memory, std::size_t bytes, int threads) {
  std::vector<std::thread> all;
  const auto parts = static_cast<std::size_t>(threads);
  for (std::size_t i = 0; i < parts; ++i) {
    all.emplace_back([=] {
      const std::size_t end = bytes / parts * (i + 1);
      for (std::size_t at = bytes / parts * i; at < end; at += 4096) memory[at] = 1;
    });
  }
  for (std::thread& thread : all) thread.join();
}

void write_pattern(void* memory, std::size_t bytes, std::uint64_t seed) {
  char* const to = static_cast<char*>(memory);
  std::uint64_t word = seed * 0x9e3779b97f4a7c15U + 1;
  std::size_t at = 0;
  for (; at + 8 <= bytes; at += 8, word += 0x100000001b3U) std::memcpy(to + at, &word, 8);
  std::memcpy(to + at, &word, bytes - at);
}

bool has_pattern(const void* memory, std::size_t bytes, std::uint64_t seed) {
  const char* const from = static_cast<const char*>(memory);
  std::uint64_t word = seed * 0x9e3779b97f4a7c15U + 1;
  std::uint64_t wrong = 0;
  std::size_t at = 0;
  for (; at + 8 <= bytes; at += 8, word += 0x100000001b3U) {
    std::uint64_t found = 0;
    std::memcpy(&found, from + at, 8);
    wrong |= found ^ word;
  }
  return wrong == 0 && std::memcmp(from + at, &word, bytes - at) == 0;
}

void stamp(void* memory, std::size_t bytes, std::uint64_t seed) {
  char* const to = static_cast<char*>(memory);
  each_stamp(bytes, [&](std::size_t at) {
    const std::uint64_t word = seed + at;
    std::memcpy(to + at, &word, 8);
  });
}

bool has_stamps(const void* memory, std::size_t bytes, std::uint64_t seed) {
  const char* const from = static_cast<const char*>(memory);
  bool right = true;
  each_stamp(bytes, [&](std::size_t at) {
    std::uint64_t word = 0;
    std::memcpy(&word, from + at, 8);
    right = right && word == seed + at;
  });
  return right;
}

bool device_has_stamps(DevicePointer device, std::size_t bytes, std::uint64_t seed) {
  static std::mutex mutex;
  static void* pinned = nullptr;
  static std::size_t room = 0;
  const std::lock_guard lock(mutex);
  if (room < bytes) {
    if (pinned) driver().free_host(pinned);
    must(driver().allocate_host(&pinned, bytes, 0), "cuMemHostAlloc");
    room = bytes;
  }
  std::memset(pinned, 0xee, bytes);
  must(driver().copy_out(pinned, device, bytes), "cuMemcpyDtoH");
  return has_stamps(pinned, bytes, seed);
}

std::size_t bytes_of(const char* text) {
  char* end = nullptr;
  std::size_t bytes = std::strtoull(text, &end, 10);
  if (*end == 'K') bytes *= kKiB;
  if (*end == 'M') bytes *= kMiB;
  if (*end == 'G') bytes *= kGiB;
  return bytes;
}

Talk::Talk() {
  std::puts("ready");
  std::fflush(stdout);
}

int Talk::next() {
  char line[64];
  int count = 0;
  if (!std::fgets(line, sizeof line, stdin)) return 0;
  if (std::sscanf(line, "go %d", &count) != 1) return 0;
  return count;
}

void Talk::number(double value) {
  std::printf("%.6g\n", value);
  std::fflush(stdout);
}

void Talk::numbers(double first, double second) {
  std::printf("%.6g %.6g\n", first, second);
  std::fflush(stdout);
}

void Talk::wrong(const char* what) {
  std::fprintf(stderr, "wrong bytes: %s\n", what);
  right_ = false;
}

int Talk::end() {
  std::puts(right_ ? "verified" : "WRONG");
  std::fflush(stdout);
  return right_ ? 0 : 1;
}

}  // namespace pinion::gpu
