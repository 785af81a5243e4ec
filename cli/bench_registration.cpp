// `pinion bench registration`: what registering costs on this machine's devices, by size and page size.
#include <fmt/format.h>
#include <sys/mman.h>

#include <cstring>

#include "bench.h"
#include "bench_ranges.h"
#include "device/make.h"

namespace pinion::cli {

namespace {

/// Touched memory on system pages or, where the system gives them, on transparent hugepages.
class TouchedMemory {
 public:
  TouchedMemory(std::size_t bytes, bool huge) : mapped_(bytes + kHuge) {
    memory_ = ::mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    const Address begin = (reinterpret_cast<Address>(memory_) + kHuge - 1) / kHuge * kHuge;
    range = {begin, begin + bytes};
    ::madvise(reinterpret_cast<void*>(begin), bytes, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    std::memset(reinterpret_cast<void*>(begin), 1, bytes);
  }
  ~TouchedMemory() { ::munmap(memory_, mapped_); }
  TouchedMemory(const TouchedMemory&) = delete;
  TouchedMemory& operator=(const TouchedMemory&) = delete;

  Range range;

 private:
  static constexpr std::size_t kHuge = 2 << 20;
  std::size_t mapped_;
  void* memory_;
};

void measure(Bench& bench, Device& device, const std::string& subject, const std::string& name, Range range) {
  std::vector<double> in, out;
  const double us = calibration().ns_per_tick / 1000;
  for (unsigned round = 0; round <= bench.rounds(); ++round) {
    const Ticks begin = ticks_now();
    const Registration made = device.register_range(range, Access::all, Actor::application);
    const Ticks middle = ticks_now();
    if (made.error) {
      bench.note(fmt::format("{} {}: {}", subject, name, made.error.message));
      return;
    }
    device.deregister(made.key, Actor::application);
    if (round == 0) continue;  // the first one opens the kernel's ring
    in.push_back(static_cast<double>(middle - begin) * us);
    out.push_back(static_cast<double>(ticks_now() - middle) * us);
  }
  bench.add(name, subject, "us", "us", in);
  bench.add(name, subject, "deregister_us", "us", out);
}

void run(Bench& bench) {
  std::vector<std::unique_ptr<Device>> devices;
  std::vector<std::string> subjects;
  for (const char* nic : {"", "connectx"}) {
    DeviceResult made = make_device(*nic ? "emulated" : "pin", *nic ? nic : "none");
    if (made.error) {
      bench.note(made.error.message);
      continue;
    }
    subjects.push_back(*nic ? fmt::format("pinion-emulated-{}", nic) : "pinion");
    bench.note(fmt::format("{}: {}", subjects.back(), made.device->description()));
    devices.push_back(std::move(made.device));
  }
  bench.note(
      "Touched memory. pinion: pinned by the kernel; emulated: NIC cost modelled; neither is measured on a "
      "NIC.");
  for (const bool huge : {false, true}) {
    for (const std::size_t kilobytes : {4, 64, 1024, 16 * 1024, 64 * 1024}) {
      if (huge && kilobytes < 1024) continue;
      const TouchedMemory memory(kilobytes << 10, huge);
      const std::string size =
          kilobytes < 1024 ? fmt::format("{}K", kilobytes) : fmt::format("{}M", kilobytes / 1024);
      for (std::size_t i = 0; i < devices.size(); ++i)
        measure(bench, *devices[i], subjects[i], fmt::format("{}-{}", huge ? "2M" : "4K", size),
                memory.range);
    }
  }
}

const BenchRegistration registration{"registration", "Registering memory, by page size and size", run};

}  // namespace

}  // namespace pinion::cli
