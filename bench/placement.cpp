// `pinion bench placement`: blocks of the hugepage heap beside base pages, as a device registers them; the
// heap's speed and memory beside other allocators; and MPI programs with and without it.
#include <fmt/format.h>
#include <sys/mman.h>

#include <cstring>
#include <memory>

#include "base/clock.h"
#include "bench/allocators.h"
#include "bench/bench.h"
#include "bench/placement_programs.h"
#include "cli/command.h"
#include "device/make.h"
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
  if (const Error error = device.deregister(made.key, Actor::application)) throw Failure(error.message);
  return static_cast<double>(end - begin) * calibration().ns_per_tick / 1000;
}

void measure_registration(Bench& bench) {
  const DeviceResult made = make_device("pin", "none");
  if (made.error) return bench.note(made.error.message);
  KernelPages pages;
  const auto no_arena = std::make_unique<Arena>(pages);
  const auto heap = std::make_unique<HugepageHeap>(pages, *no_arena);
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
  bench.note(
      fmt::format("registration: touched memory, device pin; the heap's blocks: {} MiB in transparent "
                  "hugepages, of {} MiB "
                  "in use",
                  heap->transparent_bytes() >> 20, heap->used_bytes() >> 20));
}

void run(Bench& bench) {
  // First: to the kernel, the most that a child had resident includes this process's memory before the exec.
  measure_allocators(bench);
  measure_registration(bench);
  measure_programs(bench);
}

const BenchRegistration registration{
    "placement", "The hugepage heap: registration, speed and memory beside others", run, kTakesNothing, 1};

}  // namespace

}  // namespace pinion::cli
