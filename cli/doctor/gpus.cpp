#include "cli/doctor/gpus.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <thread>

#include "base/clock.h"
#include "base/range.h"
#include "cli/command.h"
#include "cli/doctor/monitors.h"
#include "cli/output_file.h"
#include "cli/system_files.h"
#include "cli/text.h"
#include "device/cuda/driver_api.h"
#include "device/cuda/own_context.h"

namespace pinion::cli {

namespace {

using namespace cuda;

constexpr unsigned kTimeLimit = 20;  ///< seconds
constexpr std::size_t kKiB = 1024, kMiB = 1024 * kKiB;
constexpr std::size_t kCopied = 64 * kMiB, kSmall = kMiB;
constexpr int kRounds = 5;
/// The limit is looked for in steps of this size, up to the most.
constexpr std::size_t kStep = 64 * kKiB, kMostAtOnce = 8 * kMiB;
/// A call that has not returned by then waits for its stream.
constexpr auto kReturnsBy = std::chrono::milliseconds(200);

// The measurement calls these beyond device/cuda/driver_api.h.
#define PINION_DOCTOR_CALLS(X)                                                                \
  X(init, "cuInit", (unsigned))                                                               \
  X(version, "cuDriverGetVersion", (int*))                                                    \
  X(count, "cuDeviceGetCount", (int*))                                                        \
  X(name, "cuDeviceGetName", (char*, int, Ordinal))                                           \
  X(pci, "cuDeviceGetPCIBusId", (char*, int, Ordinal))                                        \
  X(attribute, "cuDeviceGetAttribute", (int*, int, Ordinal))                                  \
  X(retain, "cuDevicePrimaryCtxRetain", (Context*, Ordinal))                                  \
  X(make_current, "cuCtxSetCurrent", (Context))                                               \
  X(memory_info, "cuMemGetInfo_v2", (std::size_t*, std::size_t*))                             \
  X(allocate, "cuMemAlloc_v2", (DevicePointer*, std::size_t))                                 \
  X(free, "cuMemFree_v2", (DevicePointer))                                                    \
  X(stream, "cuStreamCreate", (Stream*, unsigned))                                            \
  X(synchronize, "cuStreamSynchronize", (Stream))                                             \
  X(run_on_host, "cuLaunchHostFunc", (Stream, void (*)(void*), void*))                        \
  X(copy_in, "cuMemcpyHtoD_v2", (DevicePointer, const void*, std::size_t))                    \
  X(copy_out, "cuMemcpyDtoH_v2", (void*, DevicePointer, std::size_t))                         \
  X(copy_in_async, "cuMemcpyHtoDAsync_v2", (DevicePointer, const void*, std::size_t, Stream)) \
  X(host_register, "cuMemHostRegister_v2", (void*, std::size_t, unsigned))                    \
  X(host_unregister, "cuMemHostUnregister", (void*))

struct Calls {
#define PINION_DOCTOR_MEMBER(member, symbol, parameters) Result(*member) parameters = nullptr;
  PINION_DOCTOR_CALLS(PINION_DOCTOR_MEMBER)
#undef PINION_DOCTOR_MEMBER
};

/// Returns the first symbol that is missing; null: none is.
const char* fill(Calls& calls, void* library) {
  const char* missing = nullptr;
#define PINION_DOCTOR_FILL(member, symbol, parameters)                             \
  calls.member = reinterpret_cast<Result(*) parameters>(::dlsym(library, symbol)); \
  if (calls.member == nullptr && missing == nullptr) missing = symbol;
  PINION_DOCTOR_CALLS(PINION_DOCTOR_FILL)
#undef PINION_DOCTOR_FILL
  return missing;
}

/// The driver refused a call of the measurement.
struct Refused {
  const char* what;
  Result result;
};
void need(Result result, const char* what) {
  if (result != kSuccess) throw Refused{what, result};
}

/// Host memory on base pages, touched.
class Memory {
 public:
  explicit Memory(std::size_t bytes)
      : bytes_(bytes),
        data_(::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
    if (data_ == MAP_FAILED) throw Refused{"mmap", kOutOfMemory};
    ::madvise(data_, bytes, MADV_NOHUGEPAGE);
    std::memset(data_, 1, bytes);
  }
  ~Memory() { ::munmap(data_, bytes_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  void* data() const { return data_; }

 private:
  const std::size_t bytes_;
  void* const data_;
};

/// The least of a few rounds, in ns.
double time_of(const std::function<void()>& work) {
  Duration best = kNever;
  for (int round = 0; round < kRounds; ++round) {
    const Time begin = monotonic_now();
    work();
    best = std::min(best, monotonic_now() - begin);
  }
  return static_cast<double>(std::max<Duration>(best, 1));
}

/// Holds a stream back until it is opened.
class Gate {
 public:
  Gate(const Calls& calls, Stream stream) : calls_(calls), stream_(stream) {
    need(calls.run_on_host(stream, wait, &open_), "cuLaunchHostFunc");
  }
  ~Gate() {
    open();
    calls_.synchronize(stream_);
  }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;
  void open() { open_.store(true); }

 private:
  static void wait(void* open) {
    while (!static_cast<std::atomic<bool>*>(open)->load()) ::usleep(100);
  }
  const Calls& calls_;
  const Stream stream_;
  std::atomic<bool> open_{false};
};

/// Whether an asynchronous copy of pageable memory to the GPU returns while its stream is held back.
bool returns_at_once(const Calls& calls, Context context, Stream stream, DevicePointer device,
                     const void* memory, std::size_t bytes) {
  Gate gate(calls, stream);
  std::atomic<bool> returned{false};
  Result result = kSuccess;
  std::thread copier([&] {
    result = calls.make_current(context);
    if (result == kSuccess) result = calls.copy_in_async(device, memory, bytes, stream);
    returned.store(true);
  });
  const auto until = std::chrono::steady_clock::now() + kReturnsBy;
  while (!returned.load() && std::chrono::steady_clock::now() < until) ::usleep(100);
  const bool at_once = returned.load();
  gate.open();
  copier.join();
  need(result, "cuMemcpyHtoDAsync");
  return at_once;
}

/// The largest such copy, in whole steps.
std::size_t most_at_once(const Calls& calls, Context context, DevicePointer device, const void* memory) {
  Stream stream = nullptr;
  need(calls.stream(&stream, kStreamNonBlocking), "cuStreamCreate");
  std::size_t returns = 0, waits = kMostAtOnce / kStep + 1;
  while (waits - returns > 1) {
    const std::size_t steps = (returns + waits) / 2;
    (returns_at_once(calls, context, stream, device, memory, steps * kStep) ? returns : waits) = steps;
  }
  return returns * kStep;
}

/// -1: the driver does not say.
int numa_node_of(const Calls& calls, Ordinal gpu) {
  int node = -1;
  return calls.attribute(&node, kAttributeHostNumaNode, gpu) == kSuccess ? node : -1;
}

struct Pair {
  double registering, unregistering;  ///< ns
};

Pair registration_times(const Calls& calls, void* memory, std::size_t bytes) {
  Duration registering = kNever, unregistering = kNever;
  for (int round = 0; round < kRounds; ++round) {
    const Time begin = monotonic_now();
    need(calls.host_register(memory, bytes, 0), "cuMemHostRegister");
    const Time middle = monotonic_now();
    need(calls.host_unregister(memory), "cuMemHostUnregister");
    registering = std::min(registering, middle - begin);
    unregistering = std::min(unregistering, monotonic_now() - middle);
  }
  return {static_cast<double>(registering), static_cast<double>(unregistering)};
}

/// t = a * pages + b through two sizes.
void add_costs(Json& json, const char* what, double small, double large) {
  const double few = static_cast<double>(kSmall / page_size()),
               many = static_cast<double>(kCopied / page_size());
  const double a = std::max(0., (large - small) / (many - few));
  json[fmt::format("{}_ns_per_page", what)] = a;
  json[fmt::format("{}_ns_base", what)] = std::max(0., small - a * few);
}

void add_copies(Json& json, const char* way, const Calls& calls, DevicePointer device, void* memory) {
  const auto speed = [](double ns) { return static_cast<double>(kCopied) / ns; };
  json[fmt::format("{}_to_gpu", way)] =
      speed(time_of([&] { need(calls.copy_in(device, memory, kCopied), "cuMemcpyHtoD"); }));
  json[fmt::format("{}_from_gpu", way)] =
      speed(time_of([&] { need(calls.copy_out(memory, device, kCopied), "cuMemcpyDtoH"); }));
}

Json measure(const Calls& calls, Ordinal gpu) {
  std::array<char, 128> name{};
  std::array<char, 32> pci{};
  need(calls.name(name.data(), static_cast<int>(name.size() - 1), gpu), "cuDeviceGetName");
  need(calls.pci(pci.data(), static_cast<int>(pci.size() - 1), gpu), "cuDeviceGetPCIBusId");
  Json json{{"name", std::string(name.data())},
            {"pci", std::string(pci.data())},
            {"numa_node", numa_node_of(calls, gpu)}};
  Context context = nullptr;
  need(calls.retain(&context, gpu), "cuDevicePrimaryCtxRetain");
  need(calls.make_current(context), "cuCtxSetCurrent");
  std::size_t free = 0, total = 0;
  need(calls.memory_info(&free, &total), "cuMemGetInfo");
  json["free_bytes"] = free;
  json["total_bytes"] = total;
  DevicePointer device = 0;
  need(calls.allocate(&device, kCopied), "cuMemAlloc");
  const Memory memory(kCopied);
  json["returns_at_once_bytes"] = most_at_once(calls, context, device, memory.data());
  add_copies(json, "plain", calls, device, memory.data());
  const Pair small = registration_times(calls, memory.data(), kSmall);
  const Pair large = registration_times(calls, memory.data(), kCopied);
  add_costs(json, "register", small.registering, large.registering);
  add_costs(json, "deregister", small.unregistering, large.unregistering);
  need(calls.host_register(memory.data(), kCopied, 0), "cuMemHostRegister");
  add_copies(json, "registered", calls, device, memory.data());
  need(calls.host_unregister(memory.data()), "cuMemHostUnregister");
  need(calls.free(device), "cuMemFree");
  return json;
}

}  // namespace

Json measure_gpus() {
  ::alarm(kTimeLimit);
  void* const library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return {{"refused", "no libcuda.so.1 here"}};
  Calls calls;
  if (const char* missing = fill(calls, library))
    return {{"refused", fmt::format("libcuda.so.1 has no {}", missing)}};
  try {
    need(calls.init(0), "cuInit");
    int version = 0, count = 0;
    need(calls.version(&version), "cuDriverGetVersion");
    need(calls.count(&count), "cuDeviceGetCount");
    Json gpus = Json::array();
    for (Ordinal gpu = 0; gpu < count; ++gpu) gpus.push_back(measure(calls, gpu));
    if (gpus.empty()) return {{"refused", "CUDA has no device here"}};
    return {{"schema", "pinion-gpus-1"}, {"driver", version}, {"gpus", std::move(gpus)}};
  } catch (const Refused& refused) {
    return {{"refused", fmt::format("{}: error {}", refused.what, refused.result)}};
  }
}

Json gpus_here() {
  const std::string text = output_of({pinion_command(), "doctor", "--gpus", "--json"}, {{"PINION", "off"}});
  Json answer = Json::parse(text, nullptr, false);
  if (answer.is_object()) return answer;
  return {
      {"refused", fmt::format("the process that tried CUDA crashed, or took longer than {} s", kTimeLimit)}};
}

// ---- findings ----

namespace {

std::string rate(const Json& gpu, const char* way) {
  return fmt::format("{} {:.1f} and {:.1f} GB/s", way, gpu.value(fmt::format("{}_to_gpu", way), 0.),
                     gpu.value(fmt::format("{}_from_gpu", way), 0.));
}

Finding finding_of(const Json& gpu, int driver) {
  const auto number = [&](const char* key) { return gpu.value(key, 0.); };
  const int node = gpu.value("numa_node", -1);
  std::string text = fmt::format(
      "{} at {}{}, CUDA {}.{}: {} of {} are free; copies to and from it: {}, {}; registering takes {:.0f} us "
      "+ "
      "{:.3f} us a page, unregistering {:.0f} us + {:.3f} us; asynchronous copies to it return at once up to "
      "{}",
      gpu.value("name", ""), gpu.value("pci", ""), node < 0 ? "" : fmt::format(" (NUMA node {})", node),
      driver / 1000, driver % 1000 / 10, bytes_text(number("free_bytes")), bytes_text(number("total_bytes")),
      rate(gpu, "plain"), rate(gpu, "registered"), number("register_ns_base") / 1000,
      number("register_ns_per_page") / 1000, number("deregister_ns_base") / 1000,
      number("deregister_ns_per_page") / 1000, bytes_text(number("returns_at_once_bytes")));
  const std::string name = "GPU";
  if (number("returns_at_once_bytes") > kReadAtOnce)
    return {name, text,
            Cure{Gain::data,
                 fmt::format("Pinion's front takes copies of more than {} for ones that wait for their "
                             "stream: a program that holds a stream back may hang",
                             bytes_text(static_cast<double>(kReadAtOnce))),
                 Who::user, "`pinion run --front mpi`, and report this GPU and driver"}};
  if (number("free_bytes") < static_cast<double>(OwnContext::kLeastFree))
    return {
        name, text,
        Cure{Gain::registration,
             fmt::format("copies are staged and never registered: Pinion's own context is made where {} are "
                         "free",
                         bytes_text(static_cast<double>(OwnContext::kLeastFree))),
             Who::user, "end other programs on this GPU, or leave it more memory"}};
  return {name, text, {}};
}

}  // namespace

std::vector<Finding> gpu_findings(const Json& gpus) {
  if (!gpus.contains("gpus")) return {{"GPU", gpus.value("refused", "none"), {}}};
  std::vector<Finding> findings;
  for (const Json& gpu : gpus["gpus"]) findings.push_back(finding_of(gpu, gpus.value("driver", 0)));
  const char* const injected = std::getenv("CUDA_INJECTION64_PATH");
  if (injected != nullptr && std::strstr(injected, "anitizer") != nullptr)
    findings.push_back(
        {"GPU copies", "compute-sanitizer is asked for: Pinion leaves copies alone under it", {}});
  else
    findings.push_back({"GPU copies",
                        "Pinion leaves them alone under compute-sanitizer and in a process that a debugger "
                        "(cuda-gdb) traces at its first copy; confidential computing has not been tried",
                        {}});
  return findings;
}

void write_gpu_costs(const Json& gpus, const std::string& path) {
  if (!gpus.contains("gpus"))
    throw Failure(fmt::format("no costs of a GPU: {}", gpus.value("refused", "none")));
  const Json& gpu = gpus["gpus"].front();
  std::string text;
  for (const char* key :
       {"register_ns_per_page", "register_ns_base", "deregister_ns_per_page", "deregister_ns_base"})
    text += fmt::format("{}={:.3f}\n", key, gpu.value(key, 0.));
  write_text(path, text);
}

}  // namespace pinion::cli
