// Measures what a program feels while Pinion registers.
//
//   beside copies BYTES      launches, and pinned copies of 16 MiB, beside a thread that copies fresh buffers
//                            of the size; prints p99 of the launches, us, and of the copies, us
//   beside memory-info       cuMemGetInfo until the input ends; prints median, p99 and maximum, us
//
// Driven by the script: see Talk.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "felt.h"
#include "program.h"

namespace {

using namespace pinion::gpu;

int beside_copies(std::size_t bytes) {
  constexpr std::size_t kBuffer = 64 * kMiB;
  constexpr int kPasses = 4;
  const Context context = use_context();
  Program program;
  const std::size_t count = std::max<std::size_t>(bytes / kBuffer, 1);
  DevicePointer device = 0;
  must(driver().allocate(&device, kBuffer), "cuMemAlloc");
  Talk talk;
  for (int repetitions; (repetitions = talk.next()) > 0;) {
    for (int n = 0; n < repetitions; ++n) {
      char* const memory = map_memory(count * kBuffer);
      touch(memory, count * kBuffer, 8);
      std::atomic<bool> done{false};
      std::thread copier([&] {
        must(driver().context_set(context), "cuCtxSetCurrent");
        for (std::size_t i = 0; i < count * kPasses; ++i) {
          must(driver().copy_in(device, memory + i % count * kBuffer, kBuffer), "cuMemcpyHtoD");
        }
        done = true;
      });
      Felt felt;
      felt.sample(program, [&] { return !done; });
      copier.join();
      talk.numbers(quantile(felt.launches, .99), quantile(felt.copies, .99));
      unmap_memory(memory, count * kBuffer);
    }
  }
  return talk.end();
}

int memory_info() {
  use_context();
  std::vector<double> times;
  std::atomic<bool> ended{false};
  Talk talk;
  std::thread reader([&] {
    while (talk.next() > 0) {
    }
    ended = true;
  });
  while (!ended) {
    std::size_t free = 0, all = 0;
    const double began = now();
    must(driver().memory_info(&free, &all), "cuMemGetInfo");
    times.push_back(now() - began);
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  reader.join();
  const double median = quantile(times, .5), late = quantile(times, .99), most = quantile(times, 1);
  std::printf("%.6g %.6g %.6g\n", median, late, most);
  return talk.end();
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  if (mode == "memory-info") return memory_info();
  if (mode == "copies" && argc > 2) return beside_copies(bytes_of(argv[2]));
  std::fprintf(stderr, "usage: beside copies BYTES | memory-info\n");
  return 2;
}
