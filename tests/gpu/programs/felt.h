// Times a program's launches and its pinned copies of 16 MiB, so that a case can say what it feels while
// others register. One thread uses an object.
#pragma once

#include <algorithm>
#include <cstring>
#include <functional>
#include <vector>

#include "program.h"

namespace pinion::gpu {

inline constexpr std::size_t kPinnedCopy = 16 * kMiB;

inline double quantile(std::vector<double>& values, double part) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[static_cast<std::size_t>(part * static_cast<double>(values.size() - 1) + .5)];
}

/// The program's side: a stream of its own, a kernel, pinned memory.
class Program {
 public:
  Program() : stream_(new_stream()), kernel_(empty_kernel()) {
    must(driver().allocate_host(&host_, kPinnedCopy, 0), "cuMemHostAlloc");
    std::memset(host_, 1, kPinnedCopy);
    must(driver().allocate(&device_, kPinnedCopy), "cuMemAlloc");
    must(driver().event_create(&event_, kEventBlocking | kEventNoTiming), "cuEventCreate");
    for (int i = 0; i < 20; ++i) copy();
  }
  double copy() {
    const double began = now();
    must(driver().copy_in_async(device_, host_, kPinnedCopy, stream_), "cuMemcpyHtoDAsync");
    must(driver().event_record(event_, stream_), "cuEventRecord");
    must(driver().event_synchronize(event_), "cuEventSynchronize");
    return now() - began;
  }
  double launch() {
    const double began = now();
    must(driver().launch(kernel_, 1, 1, 1, 1, 1, 1, 0, stream_, nullptr, nullptr), "cuLaunchKernel");
    const double took = now() - began;
    if (++launches_ % 64 == 0) must(driver().stream_synchronize(stream_), "cuStreamSynchronize");
    return took;
  }

 private:
  Stream stream_;
  Function kernel_;
  void* host_ = nullptr;
  DevicePointer device_ = 0;
  Event event_ = nullptr;
  int launches_ = 0;
};

/// Times of both acts, a block of each in turn.
struct Felt {
  std::vector<double> launches, copies;

  void sample(Program& program, const std::function<bool()>& go_on) {
    while (go_on()) {
      for (int i = 0; i < 256; ++i) launches.push_back(program.launch());
      for (int i = 0; i < 4; ++i) copies.push_back(program.copy());
    }
  }
};

inline Felt alone(Program& program, double seconds) {
  Felt felt;
  const double end = now() + seconds * 1e6;
  felt.sample(program, [&] { return now() < end; });
  return felt;
}

}  // namespace pinion::gpu
