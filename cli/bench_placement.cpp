// `pinion bench placement`: blocks of the hugepage heap beside base pages, as a device registers them; and
// the heap's speed and memory beside other allocators, each in processes of its own (bench/allocations.cpp);
// and programs with and without it.
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <memory>
#include <sstream>

#include "base/clock.h"
#include "bench.h"
#include "bench_placement_programs.h"
#include "device/make.h"
#include "launch.h"
#include "monitors.h"
#include "placement/hugepage_heap.h"
#include "placement/kernel_pages.h"

namespace pinion::cli {

namespace {

// ---- registration ----

double registration_us(Device& device, Range range) {
  const Ticks begin = ticks_now();
  const Registration made = device.register_range(range, Access::all, Actor::application);
  const Ticks end = ticks_now();
  if (made.error) throw Failure(made.error.message);
  device.deregister(made.key, Actor::application);
  return static_cast<double>(end - begin) * calibration().ns_per_tick / 1000;
}

void measure_registration(Bench& bench) {
  const DeviceResult made = make_device("pin", "none");
  if (made.error) return bench.note(made.error.message);
  KernelPages pages;
  const auto heap = std::make_unique<HugepageHeap>(pages);
  for (const std::size_t bytes :
       {std::size_t{1} << 20, std::size_t{4} << 20, std::size_t{16} << 20, std::size_t{64} << 20}) {
    void* const block = heap->allocate(bytes, 1, false);
    void* const base = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (block == nullptr || base == MAP_FAILED) return bench.note("memory is short");
    ::madvise(base, bytes, MADV_NOHUGEPAGE);
    std::memset(block, 1, bytes);
    std::memset(base, 1, bytes);
    bench.compare("registration-" + size_name(bytes), "us", "us",
                  {{"base-pages", [&] { return registration_us(*made.device, Range::of(base, bytes)); }},
                   {"pinion", [&] { return registration_us(*made.device, Range::of(block, bytes)); }}});
    ::munmap(base, bytes);
  }
  const ChunkHeap::Figures figures = heap->figures();
  bench.note(fmt::format(
      "registration: touched memory, device pin; the heap's blocks: {} MiB of the reserved pool, {} MiB in "
      "transparent hugepages, of {} MiB in use",
      figures.mapped_bytes[static_cast<std::size_t>(Backing::pool)] >> 20, heap->transparent_bytes() >> 20,
      heap->used_bytes() >> 20));
}

// ---- allocators ----

struct Allocator {
  const char* name;
  std::string preload;
  Environment environment;
  const char* library;  ///< part of the file name that malloc must come from
};

struct Sample {
  double ns = 0, cpu_ns = 0, bytes = 0;
};

std::string program() {
  const auto prefix = std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path();
  return (prefix / "libexec" / "pinion" / "allocations").string();
}

/// Empty where the process has another allocator: the library is missing.
std::optional<Sample> run_pattern(const Allocator& allocator, const std::string& pattern,
                                  const char* seconds) {
  Environment environment = allocator.environment;
  environment["LD_PRELOAD"] = allocator.preload;
  environment.emplace("PINION", "");
  Sample sample;
  std::string library;
  std::istringstream answer(output_of({program(), pattern, seconds}, environment));
  if (!(answer >> sample.ns >> sample.cpu_ns >> sample.bytes >> library) ||
      library.find(allocator.library) == std::string::npos)
    return {};
  return sample;
}

void measure_allocators(Bench& bench) {
  if (::access(program().c_str(), X_OK) != 0) return bench.note(program() + " is missing");
  std::vector<Allocator> allocators{
      {"glibc", "", {}, "libc.so"},
      {"glibc-thp", "", {{"GLIBC_TUNABLES", "glibc.malloc.hugetlb=1"}}, "libc.so"},
      {"jemalloc", "libjemalloc.so.2", {}, "jemalloc"},
      {"mimalloc", "libmimalloc.so.2", {}, "mimalloc"},
      {"pinion", heap_library(), {{"PINION", "hugepages=yes"}}, "pinion-heap"},
  };
  std::erase_if(allocators, [&](const Allocator& allocator) {
    // The dynamic linker only reports a preload that is missing, and goes on.
    if (run_pattern(allocator, "general", "0")) return false;
    bench.note(fmt::format("{} is not installed", allocator.name));
    return true;
  });
  for (const char* pattern : {"general", "general-2-threads", "churn", "churn-2-threads"}) {
    std::vector<std::vector<double>> ns(allocators.size()), cpu_ns(ns), bytes(ns);
    for (unsigned round = 0; round < bench.rounds(); ++round)
      for (std::size_t i = 0; i < allocators.size(); ++i) {
        bench.step(
            fmt::format("{}, round {} of {}: {}", pattern, round + 1, bench.rounds(), allocators[i].name));
        if (const auto sample = run_pattern(allocators[i], pattern, "0.2")) {
          ns[i].push_back(sample->ns);
          cpu_ns[i].push_back(sample->cpu_ns);
          bytes[i].push_back(sample->bytes / (1 << 20));
        }
      }
    for (std::size_t i = 0; i < allocators.size(); ++i) {
      bench.add(pattern, allocators[i].name, "ns", "ns", ns[i]);
      bench.add(pattern, allocators[i].name, "cpu_ns", "ns", cpu_ns[i]);
      bench.add(pattern, allocators[i].name, "resident_peak", "MiB", bytes[i]);
    }
  }
  bench.note(
      "A step frees a random block, allocates another and writes to each of its pages. general: 16 B to 512 "
      "KiB, one in a "
      "hundred from the heap's threshold on; churn: 256 KiB to 16 MiB. cpu_ns leaves out the time that "
      "others "
      "had the core.");
}

void run(Bench& bench) {
  measure_registration(bench);
  measure_allocators(bench);
  measure_programs(bench);
}

const BenchRegistration registration{
    "placement", "The hugepage heap: registration, speed and memory beside others", run, {}};

}  // namespace

}  // namespace pinion::cli
