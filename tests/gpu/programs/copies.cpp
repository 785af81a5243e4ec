// Makes copies between host memory and the GPU as an ordinary program does, times them, checks contents.
//
//   copies turn BYTES COUNT         to the GPU from COUNT buffers in turn; us a copy
//   copies fresh BYTES in|out sync|async   memory that is used once; us a copy and its munmap, us of the copy
//   copies small BYTES              synchronous small copies from one buffer; ns a copy
//   copies pinned BYTES in|out      memory that the program pinned; ns of an asynchronous call
//   copies register BYTES           the program's own register of untouched memory; ms
//
// Driven by the script: see Talk.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "program.h"

namespace {

using namespace pinion::gpu;

DevicePointer device_memory(std::size_t bytes) {
  DevicePointer device = 0;
  must(driver().allocate(&device, bytes), "cuMemAlloc");
  return device;
}

int turn(std::size_t bytes, int count) {
  std::vector<char*> buffers;
  for (int i = 0; i < count; ++i) {
    buffers.push_back(static_cast<char*>(std::malloc(bytes)));
    std::memset(buffers.back(), 1, bytes);
  }
  const DevicePointer device = device_memory(bytes);
  std::uint64_t seed = 1;
  Talk talk;
  for (int repetitions; (repetitions = talk.next()) > 0;) {
    for (int n = 0; n < repetitions; ++n) {
      for (char* buffer : buffers) stamp(buffer, bytes, ++seed);
      const double began = now();
      for (char* buffer : buffers) must(driver().copy_in(device, buffer, bytes), "cuMemcpyHtoD");
      talk.number((now() - began) / count);
      if (!device_has_stamps(device, bytes, seed)) talk.wrong("a buffer in turn");
    }
  }
  return talk.end();
}

/// One copy between fresh memory and the GPU.
class FreshCopy {
 public:
  FreshCopy(std::size_t bytes, bool in, bool async)
      : bytes_(bytes), in_(in), async_(async), device_(device_memory(bytes)), stream_(new_stream()) {}

  /// Returns whether the bytes are right. Adds the time with the munmap, and of the copy alone.
  bool make(double& whole, double& alone) {
    ++seed_;
    char* const host = map_memory(bytes_);
    if (in_) {
      stamp(host, bytes_, seed_);
    } else {
      std::memset(host, 0xee, bytes_);
      send_stamps();
    }
    const double began = now();
    copy(host);
    const double copied = now();
    const bool right = in_ || has_stamps(host, bytes_, seed_);
    const double checked = now();
    unmap_memory(host, bytes_);
    alone += copied - began;
    whole += now() - checked + copied - began;
    return right && (!in_ || device_has_stamps(device_, bytes_, seed_));
  }

 private:
  void send_stamps() {
    if (!pinned_) {
      void* memory = nullptr;
      must(driver().allocate_host(&memory, bytes_, 0), "cuMemHostAlloc");
      pinned_ = static_cast<char*>(memory);
      std::memset(pinned_, 1, bytes_);
    }
    stamp(pinned_, bytes_, seed_);
    must(driver().copy_in(device_, pinned_, bytes_), "cuMemcpyHtoD");
  }
  void copy(char* host) const {
    const Driver& cuda = driver();
    if (!async_) {
      must(in_ ? cuda.copy_in(device_, host, bytes_) : cuda.copy_out(host, device_, bytes_), "copy");
      return;
    }
    must(in_ ? cuda.copy_in_async(device_, host, bytes_, stream_)
             : cuda.copy_out_async(host, device_, bytes_, stream_),
         "async copy");
    must(cuda.stream_synchronize(stream_), "cuStreamSynchronize");
  }

  const std::size_t bytes_;
  const bool in_, async_;
  const DevicePointer device_;
  const Stream stream_;
  char* pinned_ = nullptr;
  std::uint64_t seed_ = 1;
};

int fresh(std::size_t bytes, bool in, bool async) {
  FreshCopy copy(bytes, in, async);
  // A repetition moves 16 MiB and more, so that a clock's grain and single interrupts stay small.
  const int copies = static_cast<int>(bytes < 16 * kMiB ? std::min<std::size_t>(16 * kMiB / bytes, 32) : 1);
  Talk talk;
  for (int repetitions; (repetitions = talk.next()) > 0;) {
    for (int n = 0; n < repetitions; ++n) {
      double whole = 0, alone = 0;
      for (int i = 0; i < copies; ++i) {
        if (!copy.make(whole, alone)) talk.wrong("fresh memory");
      }
      talk.numbers(whole / copies, alone / copies);
    }
  }
  return talk.end();
}

int small(std::size_t bytes) {
  constexpr int kCopies = 1000;
  char* const buffer = static_cast<char*>(std::malloc(bytes));
  const DevicePointer device = device_memory(bytes);
  std::uint64_t seed = 1;
  Talk talk;
  for (int repetitions; (repetitions = talk.next()) > 0;) {
    for (int n = 0; n < repetitions; ++n) {
      stamp(buffer, bytes, ++seed);
      const double began = now();
      for (int i = 0; i < kCopies; ++i) must(driver().copy_in(device, buffer, bytes), "cuMemcpyHtoD");
      talk.number((now() - began) * 1000 / kCopies);
      if (!device_has_stamps(device, bytes, seed)) talk.wrong("a small buffer");
    }
  }
  return talk.end();
}

int pinned(std::size_t bytes, bool in) {
  constexpr int kCalls = 200;
  void* memory = nullptr;
  must(driver().allocate_host(&memory, bytes, 0), "cuMemHostAlloc");
  const DevicePointer device = device_memory(bytes);
  const Stream stream = new_stream();
  std::uint64_t seed = 1;
  Talk talk;
  for (int repetitions; (repetitions = talk.next()) > 0;) {
    for (int n = 0; n < repetitions; ++n) {
      stamp(memory, bytes, ++seed);
      must(driver().copy_in(device, memory, bytes), "cuMemcpyHtoD");
      double calls = 0;
      for (int i = 0; i < kCalls; ++i) {
        const double began = now();
        must(in ? driver().copy_in_async(device, memory, bytes, stream)
                : driver().copy_out_async(memory, device, bytes, stream),
             "async copy");
        calls += now() - began;
        must(driver().stream_synchronize(stream), "cuStreamSynchronize");
      }
      talk.number(calls * 1000 / kCalls);
      if (!device_has_stamps(device, bytes, seed) || !has_stamps(memory, bytes, seed)) talk.wrong("pinned");
    }
  }
  return talk.end();
}

int own_register(std::size_t bytes) {
  constexpr std::size_t kPart = 4 * kMiB;
  const DevicePointer device = device_memory(kPart);
  std::uint64_t seed = 1;
  Talk talk;
  for (int repetitions; (repetitions = talk.next()) > 0;) {
    for (int n = 0; n < repetitions; ++n) {
      char* const memory = map_memory(bytes);
      const double began = now();
      must(driver().host_register(memory, bytes, kPortable), "cuMemHostRegister");
      talk.number((now() - began) / 1000);
      char* const last = memory + bytes - std::min(kPart, bytes);
      stamp(last, std::min(kPart, bytes), ++seed);
      must(driver().copy_in(device, last, std::min(kPart, bytes)), "cuMemcpyHtoD");
      if (!device_has_stamps(device, std::min(kPart, bytes), seed)) talk.wrong("own registration");
      must(driver().host_unregister(memory), "cuMemHostUnregister");
      unmap_memory(memory, bytes);
    }
  }
  return talk.end();
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 2 ? argv[1] : "";
  const auto word = [&](int i) { return std::string(argc > i ? argv[i] : ""); };
  if (mode.empty()) {
    std::fprintf(stderr, "usage: copies turn|fresh|small|pinned|register BYTES ...\n");
    return 2;
  }
  const std::size_t bytes = bytes_of(argv[2]);
  use_context();
  if (mode == "turn") return turn(bytes, std::max(1, std::atoi(word(3).c_str())));
  if (mode == "fresh") return fresh(bytes, word(3) != "out", word(4) == "async");
  if (mode == "small") return small(bytes);
  if (mode == "pinned") return pinned(bytes, word(3) != "out");
  if (mode == "register") return own_register(bytes);
  give_up("no such mode");
}
