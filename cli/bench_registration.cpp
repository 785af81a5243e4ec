// `pinion bench registration`: the time of registering on this machine's devices, by size and page size,
// for touched and untouched memory.
#include <fmt/format.h>
#include <sys/mman.h>

#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "bench.h"
#include "bench_ranges.h"
#include "command.h"
#include "device/make.h"
#include "system_files.h"

namespace pinion::cli {

namespace {

/// Memory on system pages or, where the system gives them, on transparent hugepages.
class BenchMemory {
 public:
  BenchMemory(std::size_t bytes, bool huge, bool touched) : mapped_(bytes + kHuge) {
    memory_ = ::mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    const Address begin = (reinterpret_cast<Address>(memory_) + kHuge - 1) / kHuge * kHuge;
    range = {begin, begin + bytes};
    ::madvise(reinterpret_cast<void*>(begin), bytes, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    if (touched) std::memset(reinterpret_cast<void*>(begin), 1, bytes);
  }
  ~BenchMemory() { ::munmap(memory_, mapped_); }
  BenchMemory(const BenchMemory&) = delete;
  BenchMemory& operator=(const BenchMemory&) = delete;

  Range range;

 private:
  static constexpr std::size_t kHuge = 2 << 20;
  std::size_t mapped_;
  void* memory_;
};

struct Case {
  std::size_t kilobytes;
  bool huge;
  bool touched;

  std::string name() const {
    return fmt::format("{}-{}{}", huge ? "2M" : "4K", size_name(kilobytes << 10),
                       touched ? "" : "-unfaulted");
  }
};

void measure(Bench& bench, Device& device, const std::string& subject, const Case& what) {
  std::vector<double> in, out;
  const double us = calibration().ns_per_tick / 1000;
  std::optional<BenchMemory> memory;
  for (unsigned round = 0; round <= bench.rounds(); ++round) {
    if (!memory || !what.touched) memory.emplace(what.kilobytes << 10, what.huge, what.touched);
    const Ticks begin = ticks_now();
    const Registration made = device.register_range(memory->range, Access::all, Actor::application);
    const Ticks middle = ticks_now();
    if (made.error) {
      bench.note(fmt::format("{} {}: {}", subject, what.name(), made.error.message));
      return;
    }
    device.deregister(made.key, Actor::application);
    if (round == 0) continue;  // the first one opens the kernel's ring
    in.push_back(static_cast<double>(middle - begin) * us);
    out.push_back(static_cast<double>(ticks_now() - middle) * us);
  }
  bench.add(what.name(), subject, "us", "us", in);
  bench.add(what.name(), subject, "deregister_us", "us", out);
}

void run(Bench& bench) {
  struct Subject {
    std::string name, device, nic;
  };
  std::vector<Subject> subjects{{"pinion", "pin", "none"},
                                {"pinion-emulated-connectx", "emulated", "connectx"}};
  if (!bench.device().empty()) subjects = {{bench.device(), bench.device(), "none"}};
  std::vector<std::pair<std::string, std::unique_ptr<Device>>> devices;
  for (const Subject& subject : subjects) {
    DeviceResult made = make_device(subject.device, subject.nic);
    if (made.error && !bench.device().empty()) throw UsageError(made.error.message);
    if (made.error) {
      bench.note(made.error.message);
      continue;
    }
    bench.note(fmt::format("{}: {}", subject.name, made.device->description()));
    devices.emplace_back(subject.name, std::move(made.device));
  }
  bench.note(
      "pinion: pinned by the kernel; emulated: NIC cost modelled; neither is measured on a NIC. "
      "verbs: what the RDMA device's driver takes, on this processor.");
  if (field_of("/proc/cpuinfo", "model name").find("TCG") != std::string::npos)
    bench.note(
        "The processor is emulated: what it takes beside something else means more than what it takes.");
  for (const bool touched : {true, false})
    for (const bool huge : {false, true})
      for (const std::size_t kilobytes : {4, 64, 1024, 4 * 1024, 16 * 1024, 64 * 1024}) {
        if (huge && kilobytes < 1024) continue;
        for (const auto& [name, device] : devices) measure(bench, *device, name, {kilobytes, huge, touched});
      }
}

const BenchRegistration registration{"registration", "Registering memory, by page size and size", run,
                                     kTakesDevice};

}  // namespace

}  // namespace pinion::cli
