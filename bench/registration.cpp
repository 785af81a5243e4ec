// `pinion bench registration`: the time of registering on this machine's devices, by size and kind of page
// (base, transparent, reserved), for touched and untouched memory.
#include <fmt/format.h>
#include <linux/mman.h>
#include <sys/mman.h>

#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "bench/bench.h"
#include "bench/physical_extents.h"
#include "bench/ranges.h"
#include "cli/command.h"
#include "cli/system_files.h"
#include "device/make.h"

namespace pinion::cli {

namespace {

constexpr std::size_t kHugepage = 2 << 20;

enum class PageKind { base, transparent, reserved };

/// Memory on one kind of pages; an empty range: the system gives none of them.
class BenchMemory {
 public:
  BenchMemory(std::size_t bytes, PageKind kind, bool touched) {
    const bool reserved = kind == PageKind::reserved;
    // Whole hugepages, and room to begin at one.
    mapped_ = (bytes + kHugepage - 1) / kHugepage * kHugepage + (reserved ? 0 : kHugepage);
    memory_ = ::mmap(nullptr, mapped_, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | (reserved ? MAP_HUGETLB | MAP_HUGE_2MB : 0), -1, 0);
    if (memory_ == MAP_FAILED) return;
    const Address begin = (reinterpret_cast<Address>(memory_) + kHugepage - 1) / kHugepage * kHugepage;
    range = {begin, begin + bytes};
    if (!reserved)
      ::madvise(memory_, mapped_, kind == PageKind::transparent ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    if (touched) std::memset(reinterpret_cast<void*>(begin), 1, bytes);
  }
  ~BenchMemory() {
    if (memory_ != MAP_FAILED) ::munmap(memory_, mapped_);
  }
  BenchMemory(const BenchMemory&) = delete;
  BenchMemory& operator=(const BenchMemory&) = delete;

  Range range;

 private:
  std::size_t mapped_ = 0;
  void* memory_ = MAP_FAILED;
};

struct Case {
  std::size_t bytes;
  PageKind kind;
  bool touched;

  std::string name() const {
    const std::string pages = kind == PageKind::base          ? size_name(page_size())
                              : kind == PageKind::transparent ? "thp"
                                                              : "hugetlb";
    return fmt::format("{}-{}{}", pages, size_name(bytes), touched ? "" : "-unfaulted");
  }
};

/// Counts extents of touched memory. The system's state decides how far base pages are scattered.
void count_extents(Bench& bench, const Case& what) {
  const BenchMemory memory(what.bytes, what.kind, true);
  if (memory.range.empty()) return;
  if (const auto extents = physical_extents(memory.range))
    bench.add(what.name(), "memory", "extents", "extents", {static_cast<double>(*extents)});
}

void measure(Bench& bench, Device& device, const std::string& subject, const Case& what) {
  std::vector<double> in, out;
  const double us = calibration().ns_per_tick / 1000;
  std::optional<BenchMemory> memory;
  for (unsigned round = 0; round <= bench.rounds(); ++round) {
    if (!memory || !what.touched) memory.emplace(what.bytes, what.kind, what.touched);
    if (memory->range.empty()) return;
    const Ticks begin = ticks_now();
    const Registration made = device.register_range(memory->range, Access::all, Actor::application);
    const Ticks middle = ticks_now();
    if (made.error) {
      bench.note(fmt::format("{} {}: {}", subject, what.name(), made.error.message));
      return;
    }
    if (const Error error = device.deregister(made.key, Actor::application)) {
      bench.note(fmt::format("{} {}: {}", subject, what.name(), error.message));
      return;
    }
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
  if (BenchMemory(kHugepage, PageKind::reserved, false).range.empty())
    bench.note("hugetlb: no hugepages are reserved (/proc/sys/vm/nr_hugepages)");
  for (const bool touched : {true, false})
    for (const PageKind kind : {PageKind::base, PageKind::transparent, PageKind::reserved})
      for (const std::size_t kilobytes : {4, 64, 1024, 4 * 1024, 16 * 1024, 64 * 1024}) {
        if (kind != PageKind::base && kilobytes < 1024) continue;
        const Case what{kilobytes << 10, kind, touched};
        bench.step(what.name());
        for (const auto& [name, device] : devices) measure(bench, *device, name, what);
        if (touched) count_extents(bench, what);
      }
}

const BenchRegistration registration{"registration", "Registering memory, by kind of page and size", run,
                                     kTakesDevice};

}  // namespace

}  // namespace pinion::cli
