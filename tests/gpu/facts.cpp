#include "facts.h"

#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <mutex>
#include <thread>

namespace pinion::gpu {
namespace {

// Written for any GPU since 2018: the driver compiles it.
constexpr char kKernelText[] = R"(
.version 7.0
.target sm_75
.address_size 64
.visible .entry hold(.param .u64 word, .param .u32 value) {
  .reg .u64 %a;
  .reg .u32 %v, %w;
  .reg .pred %p;
  ld.param.u64 %a, [word];
  ld.param.u32 %v, [value];
again:
  ld.volatile.global.u32 %w, [%a];
  setp.lt.u32 %p, %w, %v;
  @%p bra again;
  ret;
}
.visible .entry nothing() {
  ret;
}
.visible .entry look(.param .u64 data, .param .u64 quarter, .param .u64 log) {
  .reg .u64 %d, %q, %l;
  .reg .u32 %w;
  ld.param.u64 %d, [data];
  ld.param.u64 %q, [quarter];
  ld.param.u64 %l, [log];
  ld.volatile.global.u32 %w, [%d];
  st.volatile.global.u32 [%l], %w;
  add.u64 %d, %d, %q;
  ld.volatile.global.u32 %w, [%d];
  st.volatile.global.u32 [%l+4], %w;
  add.u64 %d, %d, %q;
  ld.volatile.global.u32 %w, [%d];
  st.volatile.global.u32 [%l+8], %w;
  add.u64 %d, %d, %q;
  ld.volatile.global.u32 %w, [%d];
  st.volatile.global.u32 [%l+12], %w;
  add.u64 %d, %d, %q;
  ld.volatile.global.u32 %w, [%d+-4];
  st.volatile.global.u32 [%l+16], %w;
  ret;
}
)";

[[noreturn]] void absent(const char* why) {
  std::fprintf(stderr, "driver_facts: %s; nothing was measured\n", why);
  ::_exit(77);
}

Driver load_driver() {
  Driver loaded;
  loaded.library = ::dlopen("libcuda.so.1", RTLD_NOW);
  if (!loaded.library) absent("no libcuda.so.1");
#define PINION_GPU_LOOK_UP(member, symbol, parameters) \
  loaded.member = reinterpret_cast<Result(*) parameters>(::dlsym(loaded.library, symbol));
#define PINION_GPU_NEED(member, symbol, parameters) \
  PINION_GPU_LOOK_UP(member, symbol, parameters)    \
  if (!loaded.member) absent("libcuda lacks " symbol);
  PINION_GPU_DRIVER_CALLS(PINION_GPU_NEED)
  PINION_GPU_OPTIONAL_CALLS(PINION_GPU_LOOK_UP)
#undef PINION_GPU_NEED
#undef PINION_GPU_LOOK_UP
  return loaded;
}

}  // namespace

const Driver& driver() {
  static const Driver loaded = load_driver();
  return loaded;
}

void emit(const std::string& name, const std::string& value, const std::string& unit,
          const std::string& how) {
  const std::string line = name + '\t' + value + '\t' + unit + '\t' + how + '\n';
  const ssize_t written = ::write(STDOUT_FILENO, line.data(), line.size());
  if (written != static_cast<ssize_t>(line.size())) ::_exit(1);
}

std::string format(const char* pattern, ...) {
  char text[2048];
  va_list arguments;
  va_start(arguments, pattern);
  std::vsnprintf(text, sizeof text, pattern, arguments);
  va_end(arguments);
  return text;
}

std::string size_name(std::size_t bytes) {
  if (bytes >= kGiB && bytes % kGiB == 0) return format("%zu GiB", bytes / kGiB);
  if (bytes >= kMiB && bytes % kMiB == 0) return format("%zu MiB", bytes / kMiB);
  if (bytes >= kKiB && bytes % kKiB == 0) return format("%zu KiB", bytes / kKiB);
  return format("%zu B", bytes);
}

std::string result_name(Result result) { return result == kSuccess ? "ok" : format("error %d", result); }

void must(Result result, const char* what) {
  if (result == kSuccess) return;
  emit("failed", what, "", result_name(result));
  ::_exit(2);
}

double Times::quantile(double part) const {
  if (values_.empty()) return 0;
  std::vector<double> sorted = values_;
  std::sort(sorted.begin(), sorted.end());
  return sorted[static_cast<std::size_t>(part * static_cast<double>(sorted.size() - 1) + .5)];
}

std::string Times::summary() const {
  return format("%.4g (%.4g..%.4g)", median(), quantile(.1), quantile(.9));
}

Kernels Kernels::load() {
  Kernels loaded;
  Module module = nullptr;
  must(driver().module_load(&module, kKernelText), "cuModuleLoadData");
  must(driver().module_function(&loaded.hold, module, "hold"), "cuModuleGetFunction");
  must(driver().module_function(&loaded.nothing, module, "nothing"), "cuModuleGetFunction");
  must(driver().module_function(&loaded.look, module, "look"), "cuModuleGetFunction");
  return loaded;
}

Session::Session() {
  if (driver().init(0) != kSuccess) absent("cuInit found no device");
  must(driver().device_get(&device, 0), "cuDeviceGet");
  must(driver().primary_retain(&context, device), "cuDevicePrimaryCtxRetain");
  must(driver().context_set(context), "cuCtxSetCurrent");
  must(driver().stream_create(&stream, kNonBlocking), "cuStreamCreate");
  kernels = Kernels::load();
}

const char* gate_name(GateKind kind) {
  switch (kind) {
    case GateKind::kValue:
      return "wait-value";
    case GateKind::kCallback:
      return "host-callback";
    case GateKind::kKernel:
      return "kernel";
  }
  return "";
}

Gate::Gate(GateKind kind) : kind_(kind) {
  void* memory = nullptr;
  must(driver().allocate_host(&memory, 4096, kPortable | kDeviceMap), "cuMemHostAlloc");
  std::memset(memory, 0, 4096);
  word_ = static_cast<volatile std::uint32_t*>(memory);
  must(driver().host_device_pointer(&device_word_, memory, 0), "cuMemHostGetDevicePointer");
}

void Gate::close(Stream stream, const Kernels& kernels) {
  ++closed_;
  if (kind_ == GateKind::kValue) {
    must(driver().stream_wait_value(stream, device_word_, closed_, kWaitUntilAtLeast), "cuStreamWaitValue32");
  } else if (kind_ == GateKind::kCallback) {
    must(driver().launch_host(stream, wait_in_callback, this), "cuLaunchHostFunc");
  } else {
    void* arguments[] = {&device_word_, &closed_};
    must(driver().launch(kernels.hold, 1, 1, 1, 1, 1, 1, 0, stream, arguments, nullptr), "cuLaunchKernel");
  }
}

void Gate::open() {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  *word_ = closed_;
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

void Gate::wait_in_callback(void* self) {
  Gate& gate = *static_cast<Gate*>(self);
  const std::uint32_t awaited = gate.closed_;
  while (*gate.word_ < awaited) std::this_thread::sleep_for(std::chrono::microseconds(20));
}

std::string Step::text() const {
  const std::string outcome = result == kSuccess ? "" : ", " + result_name(result);
  return (at_once ? format("at once, %.0f us", microseconds) : std::string("waits until the gate opens")) +
         outcome;
}

Step step(Context context, Gate& gate, std::function<Result()> call, int patience_ms) {
  struct Shared {
    std::mutex mutex;
    std::condition_variable changed;
    Step outcome;
  };
  auto shared = std::make_shared<Shared>();
  std::thread([shared, context, call = std::move(call)] {
    driver().context_set(context);
    const double began = now();
    const Result result = call();
    const double took = now() - began;
    std::lock_guard lock(shared->mutex);
    shared->outcome.finished = true;
    shared->outcome.result = result;
    shared->outcome.microseconds = took;
    shared->changed.notify_all();
  }).detach();
  std::unique_lock lock(shared->mutex);
  const auto finished = [&] { return shared->outcome.finished; };
  const bool at_once = shared->changed.wait_for(lock, std::chrono::milliseconds(patience_ms), finished);
  if (!at_once) {
    gate.open();
    if (!shared->changed.wait_for(lock, std::chrono::seconds(3), finished)) {
      emit("hangs", "the call did not return within 3 s after the gate opened");
      ::_exit(3);
    }
  }
  shared->outcome.at_once = at_once;
  return shared->outcome;
}

char* map_memory(std::size_t bytes, Pages pages) {
  constexpr std::size_t kAlignment = 2 * kMiB;
  void* const all =
      ::mmap(nullptr, bytes + kAlignment, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (all == MAP_FAILED) {
    emit("failed", "mmap of " + size_name(bytes));
    ::_exit(2);
  }
  const auto address = reinterpret_cast<std::uintptr_t>(all);
  const std::uintptr_t start = (address + kAlignment - 1) / kAlignment * kAlignment;
  if (start > address) ::munmap(all, start - address);
  if (address + kAlignment > start) {
    ::munmap(reinterpret_cast<void*>(start + bytes), address + kAlignment - start);
  }
  char* const memory = reinterpret_cast<char*>(start);
  ::madvise(memory, bytes, pages == Pages::kHuge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
  return memory;
}

void unmap_memory(void* memory, std::size_t bytes) { ::munmap(memory, bytes); }

void fill(void* memory, std::size_t bytes, std::uint32_t value, int threads) {
  const std::size_t words = bytes / 4;
  std::uint32_t* const start = static_cast<std::uint32_t*>(memory);
  std::vector<std::thread> others;
  for (int i = 1; i < threads; ++i) {
    others.emplace_back(
        [=] { std::fill(start + words * i / threads, start + words * (i + 1) / threads, value); });
  }
  std::fill(start, start + words / threads, value);
  for (std::thread& other : others) other.join();
}

std::string contents(const void* memory, std::size_t bytes) {
  const std::uint32_t* const words = static_cast<const std::uint32_t*>(memory);
  const std::size_t count = bytes / 4;
  const bool same = std::all_of(words, words + count, [&](std::uint32_t word) { return word == words[0]; });
  if (same) return format("%u", words[0]);
  return format("mixed (first %u, last %u)", words[0], words[count - 1]);
}

std::string device_contents(DevicePointer memory, std::size_t bytes) {
  void* copy = nullptr;
  must(driver().allocate_host(&copy, bytes, 0), "cuMemHostAlloc");
  std::memset(copy, 0xee, bytes);
  const Result result = driver().copy_out(copy, memory, bytes);
  const std::string text = result == kSuccess ? contents(copy, bytes) : "unreadable, " + result_name(result);
  driver().free_host(copy);
  return text;
}

long status_kib(const char* field) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind(std::string(field) + ":", 0) == 0) return std::atol(line.c_str() + std::strlen(field) + 1);
  }
  return -1;
}

}  // namespace pinion::gpu
