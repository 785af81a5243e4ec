// Makes random steps of a correct program: copies of all kinds and sizes by several threads and streams,
// memory that is overwritten as soon as a call allows it, freed, mapped anew, protected, registered by the
// program itself, and forks. Every copy is read back and compared.
//
//   random_copies [--steps N] [--threads N] [--seed N] [--most BYTES] [--patience SECONDS]
//
// Prints one line with the counts, and `random_copies: verified` if no byte was stale, no call failed and
// nothing hung. A hang ends the process with status 3.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <thread>
#include <vector>

#include "program.h"

namespace {

using namespace pinion::gpu;

struct Settings {
  long steps = 100000;
  int threads = 4;
  std::uint64_t seed = 1;
  std::size_t most = 8 * kMiB;
  double patience = 20;
};

struct Counts {
  std::atomic<long> steps{0}, copies{0}, stale{0}, errors{0};
  std::atomic<std::uint64_t> bytes{0};
};
Counts counts;

/// Held alone while a stream is gated, and shared by calls that may wait for the whole context.
std::shared_mutex gate_mutex;
/// One fork at a time.
std::mutex fork_mutex;

class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15U + 0x1234567) {}
  std::uint64_t next() {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return state_;
  }
  /// 0 to below - 1.
  std::size_t below(std::size_t limit) { return limit == 0 ? 0 : next() % limit; }
  bool once_in(std::size_t n) { return below(n) == 0; }
  /// Between the two, every order of magnitude alike.
  std::size_t size(std::size_t least, std::size_t most) {
    const double part = static_cast<double>(below(1 << 20)) / (1 << 20);
    const double size = std::exp(std::log(static_cast<double>(least)) +
                                 part * std::log(static_cast<double>(most) / static_cast<double>(least)));
    return std::clamp(static_cast<std::size_t>(size), least, most);
  }

 private:
  std::uint64_t state_;
};

/// A part of a buffer that is used again and again, as programs do.
struct Part {
  std::size_t at = 0, bytes = 0;
};

enum class Kind { mapped, heap, own_registered, pinned };

struct Buffer {
  Kind kind = Kind::mapped;
  char* memory = nullptr;
  std::size_t bytes = 0;
  Part favourite;
  bool pageable() const { return kind == Kind::mapped || kind == Kind::heap; }
};

class Worker {
 public:
  Worker(int number, const Settings& settings)
      : number_(number),
        most_(settings.most),
        random_(settings.seed * 1000 + static_cast<std::uint64_t>(number)),
        mirror_(settings.most, 0) {}

  void run(std::atomic<long>& left) {
    use_context();
    for (Stream& stream : streams_) stream = new_stream();
    check(driver().allocate(&device_, most_), "cuMemAlloc");
    check(driver().set_bytes(device_, 0, most_), "cuMemsetD8");
    check(driver().context_synchronize(), "cuCtxSynchronize");
    buffers_.resize(6);
    for (Buffer& buffer : buffers_) renew(buffer);
    while (left-- > 0) {
      step();
      ++counts.steps;
    }
    for (Buffer& buffer : buffers_) release(buffer);
  }

 private:
  void check(Result result, const char* what) {
    if (result == kSuccess) return;
    if (++counts.errors <= 20) std::fprintf(stderr, "thread %d: %s: error %d\n", number_, what, result);
  }
  void compare(bool right, const char* what, const Buffer& buffer, Part part) {
    ++counts.copies;
    counts.bytes += part.bytes;
    if (right || ++counts.stale > 20) return;
    std::fprintf(stderr, "thread %d: wrong bytes, %s: %zu bytes at %zu of a buffer of %zu, kind %d\n",
                 number_, what, part.bytes, part.at, buffer.bytes, static_cast<int>(buffer.kind));
  }

  // ---- memory ----

  void renew(Buffer& buffer) {
    if (buffer.memory) release(buffer);
    static constexpr Kind kKinds[] = {Kind::mapped, Kind::mapped,         Kind::heap,  Kind::heap,
                                      Kind::heap,   Kind::own_registered, Kind::pinned};
    buffer.kind = kKinds[random_.below(std::size(kKinds))];
    buffer.bytes = random_.size(64, most_);
    obtain(buffer);
    write_pattern(buffer.memory, buffer.bytes, ++seed_);
    buffer.favourite = any_part(buffer);
  }
  void obtain(Buffer& buffer) {
    if (buffer.kind == Kind::pinned) {
      void* memory = nullptr;
      check(driver().allocate_host(&memory, buffer.bytes, 0), "cuMemHostAlloc");
      buffer.memory = static_cast<char*>(memory);
      if (buffer.memory) return;
      buffer.kind = Kind::heap;
    }
    if (buffer.kind == Kind::heap) {
      buffer.memory = static_cast<char*>(std::malloc(buffer.bytes));
      return;
    }
    buffer.memory = map_memory(buffer.bytes);
    if (buffer.kind == Kind::own_registered) {
      check(driver().host_register(buffer.memory, buffer.bytes, random_.once_in(2) ? kPortable : 0),
            "cuMemHostRegister");
    }
  }
  void release(Buffer& buffer) {
    if (buffer.kind == Kind::heap) {
      std::free(buffer.memory);
    } else if (buffer.kind == Kind::mapped) {
      unmap_memory(buffer.memory, buffer.bytes);
    } else {
      const std::shared_lock no_gate(gate_mutex);
      if (buffer.kind == Kind::pinned) {
        check(driver().free_host(buffer.memory), "cuMemFreeHost");
      } else {
        check(driver().host_unregister(buffer.memory), "cuMemHostUnregister");
        unmap_memory(buffer.memory, buffer.bytes);
      }
    }
    buffer.memory = nullptr;
  }
  Part any_part(const Buffer& buffer) {
    Part part;
    part.bytes = random_.once_in(3) ? buffer.bytes : random_.size(4, buffer.bytes);
    part.at = random_.below(buffer.bytes - part.bytes + 1);
    return part;
  }
  Part choose(const Buffer& buffer) { return random_.below(10) < 7 ? buffer.favourite : any_part(buffer); }

  // ---- steps ----

  void step() {
    Buffer& buffer = buffers_[random_.below(buffers_.size())];
    const std::size_t kind = random_.below(1000);
    if (kind < 420) return to_device(buffer);
    if (kind < 700) return from_device(buffer);
    if (kind < 780) return rows(buffer);
    if (kind < 820) return gated(buffer);
    if (kind < 850) return set_device();
    if (kind < 890) return renew(buffer);
    if (kind < 930) return map_anew(buffer);
    if (kind < 960) return protect(buffer);
    if (kind < 995) return own_register(buffer);
    if (kind < 997) return fork_now(buffer);
    if (kind < 999) return captured(buffer);
    new_streams();
  }

  Stream stream() { return streams_[random_.below(std::size(streams_))]; }

  /// A copy to the GPU; pageable memory is overwritten at once, pinned memory after a wait.
  void to_device(Buffer& buffer) {
    const Part part = choose(buffer);
    const std::size_t target = random_.below(most_ - part.bytes + 1);
    char* const host = buffer.memory + part.at;
    const std::uint64_t seed = ++seed_;
    write_pattern(host, part.bytes, seed);
    const Stream used = send(host, device_ + target, part.bytes);
    if (!buffer.pageable()) check(driver().stream_synchronize(used), "cuStreamSynchronize");
    std::memset(host, 0xa5, part.bytes);
    write_pattern(mirror_.data() + target, part.bytes, seed);
    check(driver().stream_synchronize(used), "cuStreamSynchronize");
    if (random_.once_in(2)) compare_device(buffer, part, target, "to the GPU");
  }
  /// Returns the stream that a wait is for.
  Stream send(const char* host, DevicePointer target, std::size_t bytes) {
    const Stream chosen = stream();
    const auto address = reinterpret_cast<DevicePointer>(host);
    switch (random_.below(5)) {
      case 0:
        check(driver().copy_in(target, host, bytes), "cuMemcpyHtoD");
        return kLegacyStream;
      case 1:
        if (!more_calls().unified) break;
        check(more_calls().unified(target, address, bytes), "cuMemcpy");
        return kLegacyStream;
      case 2:
        if (!more_calls().unified_async) break;
        check(more_calls().unified_async(target, address, bytes, chosen), "cuMemcpyAsync");
        return chosen;
      case 3:
        check(driver().copy_in_async(target, host, bytes, nullptr), "cuMemcpyHtoDAsync");
        return kLegacyStream;
      default:
        break;
    }
    check(driver().copy_in_async(target, host, bytes, chosen), "cuMemcpyHtoDAsync");
    return chosen;
  }

  /// A copy from the GPU; pageable memory is right when the call returns.
  void from_device(Buffer& buffer) {
    const Part part = choose(buffer);
    const std::size_t source = random_.below(most_ - part.bytes + 1);
    char* const host = buffer.memory + part.at;
    std::memset(host, 0x77, std::min<std::size_t>(part.bytes, 4 * kKiB));
    const Stream chosen = stream();
    bool waited = true;
    switch (random_.below(3)) {
      case 0:
        check(driver().copy_out(host, device_ + source, part.bytes), "cuMemcpyDtoH");
        break;
      case 1:
        if (more_calls().unified) {
          check(more_calls().unified(reinterpret_cast<DevicePointer>(host), device_ + source, part.bytes),
                "cuMemcpy");
          break;
        }
        [[fallthrough]];
      default:
        check(driver().copy_out_async(host, device_ + source, part.bytes, chosen), "cuMemcpyDtoHAsync");
        waited = buffer.pageable();
    }
    if (!waited) check(driver().stream_synchronize(chosen), "cuStreamSynchronize");
    compare(std::memcmp(host, mirror_.data() + source, part.bytes) == 0, "from the GPU", buffer, part);
  }
  /// Reads the GPU's bytes into memory that nobody registers, and compares them with the mirror.
  void compare_device(const Buffer& buffer, Part part, std::size_t target, const char* what) {
    if (check_.size() < part.bytes) check_.resize(part.bytes);
    check(driver().copy_out(check_.data(), device_ + target, part.bytes), "cuMemcpyDtoH");
    compare(std::memcmp(check_.data(), mirror_.data() + target, part.bytes) == 0, what, buffer, part);
  }

  /// A copy of rows.
  void rows(Buffer& buffer) {
    if (!driver().copy_2d || !driver().copy_2d_async || buffer.bytes < 256) return;
    const std::size_t height = 1 + random_.below(15), pitch = buffer.bytes / (height + 1);
    const std::size_t width = 1 + random_.below(pitch);
    const Part part{0, (height - 1) * pitch + width};
    const std::size_t target = random_.below(most_ - part.bytes + 1);
    write_pattern(buffer.memory, part.bytes, ++seed_);
    for (std::size_t row = 0; row < height; ++row) {
      std::memcpy(mirror_.data() + target + row * pitch, buffer.memory + row * pitch, width);
    }
    Copy2D copy;
    copy.source_type = kMemoryTypeHost;
    copy.source_host = buffer.memory;
    copy.source_pitch = copy.target_pitch = pitch;
    copy.target_type = kMemoryTypeDevice;
    copy.target_device = device_ + target;
    copy.width = width;
    copy.height = height;
    const Stream chosen = stream();
    if (random_.once_in(2)) {
      check(driver().copy_2d(&copy), "cuMemcpy2DUnaligned");
      check(driver().stream_synchronize(kLegacyStream), "cuStreamSynchronize");
    } else {
      check(driver().copy_2d_async(&copy, chosen), "cuMemcpy2DAsync");
      if (buffer.pageable()) std::memset(buffer.memory, 0xa5, part.bytes);
      check(driver().stream_synchronize(chosen), "cuStreamSynchronize");
    }
    compare_device(buffer, part, target, "rows");
  }

  /// A copy of at most 1 MiB behind work that the program holds back: the call returns at once, and has read
  /// its bytes.
  void gated(Buffer& buffer) {
    if (!driver().launch_host || !buffer.pageable()) return;
    Part part = choose(buffer);
    part.bytes = std::min(part.bytes, 1 * kMiB);
    const std::size_t target = random_.below(most_ - part.bytes + 1);
    const Stream chosen = stream();
    write_pattern(buffer.memory + part.at, part.bytes, ++seed_);
    write_pattern(mirror_.data() + target, part.bytes, seed_);
    {
      const std::unique_lock alone(gate_mutex);
      std::atomic<bool> open{false};
      check(driver().launch_host(
                chosen,
                [](void* gate) {
                  while (!static_cast<std::atomic<bool>*>(gate)->load()) std::this_thread::yield();
                },
                &open),
            "cuLaunchHostFunc");
      check(driver().copy_in_async(device_ + target, buffer.memory + part.at, part.bytes, chosen),
            "cuMemcpyHtoDAsync");
      std::memset(buffer.memory + part.at, 0xa5, part.bytes);
      open = true;
      check(driver().stream_synchronize(chosen), "cuStreamSynchronize");
    }
    compare_device(buffer, part, target, "behind a gate");
  }

  /// A copy that a graph makes at each launch, of what the memory has then.
  void captured(Buffer& buffer) {
    const Driver& cuda = driver();
    if (!cuda.begin_capture || !cuda.graph_instantiate || !more_calls().exec_destroy) return;
    Part part = choose(buffer);
    part.bytes = std::min(part.bytes, 1 * kMiB);
    const std::size_t target = random_.below(most_ - part.bytes + 1);
    char* const host = buffer.memory + part.at;
    const Stream chosen = stream();
    Graph graph = nullptr;
    GraphExec ready = nullptr;
    check(cuda.begin_capture(chosen, kCaptureThreadLocal), "cuStreamBeginCapture");
    check(cuda.copy_in_async(device_ + target, host, part.bytes, chosen), "cuMemcpyHtoDAsync in a capture");
    check(cuda.end_capture(chosen, &graph), "cuStreamEndCapture");
    if (!graph) return;
    check(cuda.graph_instantiate(&ready, graph, 0), "cuGraphInstantiate");
    for (int i = 0; i < 3 && ready; ++i) {
      write_pattern(host, part.bytes, ++seed_);
      write_pattern(mirror_.data() + target, part.bytes, seed_);
      check(cuda.graph_launch(ready, chosen), "cuGraphLaunch");
      check(cuda.stream_synchronize(chosen), "cuStreamSynchronize");
      compare_device(buffer, part, target, "by a graph");
      // A plain synchronous copy may return before its bytes are on the GPU.
      check(cuda.copy_in(device_ + target, host, part.bytes), "cuMemcpyHtoD");
      check(cuda.stream_synchronize(kLegacyStream), "cuStreamSynchronize");
    }
    if (ready) check(more_calls().exec_destroy(ready), "cuGraphExecDestroy");
    if (more_calls().graph_destroy) check(more_calls().graph_destroy(graph), "cuGraphDestroy");
  }

  /// Handles of streams recur.
  void new_streams() {
    if (!more_calls().stream_destroy) return;
    for (Stream& stream : streams_) {
      check(more_calls().stream_destroy(stream), "cuStreamDestroy");
      stream = new_stream();
    }
  }

  void set_device() {
    const std::size_t bytes = random_.size(4, most_), target = random_.below(most_ - bytes + 1);
    const auto value = static_cast<unsigned char>(random_.below(256));
    const Stream chosen = stream();
    check(driver().set_bytes_async(device_ + target, value, bytes, chosen), "cuMemsetD8Async");
    check(driver().stream_synchronize(chosen), "cuStreamSynchronize");
    std::memset(mirror_.data() + target, value, bytes);
  }

  /// New memory at the same address: unmapped and mapped, emptied, or moved away and back.
  void map_anew(Buffer& buffer) {
    if (buffer.kind != Kind::mapped) return renew(buffer);
    const std::size_t pages = (buffer.bytes + 4095) & ~std::size_t{4095};
    constexpr int kRights = PROT_READ | PROT_WRITE, kFixed = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
    switch (random_.below(4)) {
      case 0:
        ::mmap(buffer.memory, pages, kRights, kFixed, -1, 0);
        break;
      case 1:
        ::madvise(buffer.memory, pages, MADV_DONTNEED);
        break;
      case 2: {
        char* const other = map_memory(pages);
        void* const moved = ::mremap(buffer.memory, pages, pages, MREMAP_MAYMOVE | MREMAP_FIXED, other);
        if (moved != MAP_FAILED) buffer.memory = static_cast<char*>(moved);
        break;
      }
      default:
        ::munmap(buffer.memory, pages);
        buffer.memory = map_memory(buffer.bytes);
    }
    write_pattern(buffer.memory, buffer.bytes, ++seed_);
  }

  /// Read-only memory is copied to the GPU, then written again.
  void protect(Buffer& buffer) {
    if (buffer.kind != Kind::mapped) return to_device(buffer);
    const Part part = choose(buffer);
    const std::size_t target = random_.below(most_ - part.bytes + 1);
    write_pattern(buffer.memory + part.at, part.bytes, ++seed_);
    write_pattern(mirror_.data() + target, part.bytes, seed_);
    ::mprotect(buffer.memory, buffer.bytes, PROT_READ);
    for (std::size_t i = 0; i < 1 + random_.below(3); ++i) {
      check(driver().copy_in(device_ + target, buffer.memory + part.at, part.bytes), "cuMemcpyHtoD");
    }
    ::mprotect(buffer.memory, buffer.bytes, PROT_READ | PROT_WRITE);
    std::memset(buffer.memory + part.at, 0xa5, part.bytes);
    compare_device(buffer, part, target, "from read-only memory");
    from_device(buffer);
  }

  /// The program registers a part of its memory, copies, and unregisters it: both calls succeed.
  void own_register(Buffer& buffer) {
    if (!buffer.pageable()) return to_device(buffer);
    const Part part = choose(buffer);
    char* const host = buffer.memory + part.at;
    const Result made = driver().host_register(host, part.bytes, kPortable);
    check(made, "cuMemHostRegister of a part");
    if (made != kSuccess) return;
    const std::size_t target = random_.below(most_ - part.bytes + 1);
    write_pattern(host, part.bytes, ++seed_);
    write_pattern(mirror_.data() + target, part.bytes, seed_);
    const Stream used = send(host, device_ + target, part.bytes);
    check(driver().stream_synchronize(used), "cuStreamSynchronize");
    {
      const std::shared_lock no_gate(gate_mutex);
      check(driver().host_unregister(host), "cuMemHostUnregister of a part");
    }
    compare_device(buffer, part, target, "own registration");
  }

  /// A child sees the bytes of its time, while the parent goes on writing.
  void fork_now(Buffer& buffer) {
    // A child lacks memory of cuMemHostAlloc.
    if (buffer.kind == Kind::pinned) return to_device(buffer);
    const std::scoped_lock alone(fork_mutex);
    const Part part = choose(buffer);
    const std::uint64_t seed = ++seed_;
    write_pattern(buffer.memory + part.at, part.bytes, seed);
    int go[2] = {-1, -1};
    if (::pipe2(go, O_CLOEXEC) != 0) return;
    const pid_t child = ::fork();
    if (child == 0) {
      char byte = 0;
      const bool heard = ::read(go[0], &byte, 1) == 1;
      ::_exit(heard && has_pattern(buffer.memory + part.at, part.bytes, seed) ? 0 : 1);
    }
    to_device(buffer);
    write_pattern(buffer.memory + part.at, part.bytes, ++seed_);
    const bool told = ::write(go[1], "x", 1) == 1;
    int status = 0;
    ::waitpid(child, &status, 0);
    ::close(go[0]);
    ::close(go[1]);
    compare(child > 0 && told && WIFEXITED(status) && WEXITSTATUS(status) == 0, "in a child", buffer, part);
  }

  const int number_;
  const std::size_t most_;
  Random random_;
  std::vector<char> mirror_, check_;
  std::vector<Buffer> buffers_;
  Stream streams_[3] = {};
  DevicePointer device_ = 0;
  std::uint64_t seed_ = 0;
};

Settings parse(int argc, char** argv) {
  Settings settings;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    const char* const value = argv[i + 1];
    if (name == "--steps") settings.steps = std::atol(value);
    if (name == "--threads") settings.threads = std::atoi(value);
    if (name == "--seed") settings.seed = std::strtoull(value, nullptr, 10);
    if (name == "--most") settings.most = bytes_of(value);
    if (name == "--patience") settings.patience = std::atof(value);
  }
  return settings;
}

/// Ends the process if no step ends for so long.
void watch(const std::atomic<bool>& done, double patience) {
  long seen = -1;
  double since = now();
  while (!done) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    if (counts.steps != seen) {
      seen = counts.steps;
      since = now();
    } else if (now() - since > patience * 1e6) {
      std::printf("steps %ld hangs 1\n", seen);
      std::fprintf(stderr, "random_copies: no step ended for %.0f s\n", patience);
      std::fflush(nullptr);
      ::_exit(3);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  const Settings settings = parse(argc, argv);
  use_context();
  std::atomic<long> left{settings.steps};
  std::atomic<bool> done{false};
  std::thread watchdog([&] { watch(done, settings.patience); });
  std::vector<std::unique_ptr<Worker>> workers;
  std::vector<std::thread> threads;
  const double began = now();
  for (int i = 0; i < settings.threads; ++i) {
    workers.push_back(std::make_unique<Worker>(i, settings));
    threads.emplace_back([&, i] { workers[static_cast<std::size_t>(i)]->run(left); });
  }
  for (std::thread& thread : threads) thread.join();
  done = true;
  watchdog.join();
  std::printf("steps %ld copies %ld MiB %llu stale %ld errors %ld hangs 0 seconds %.2f\n",
              counts.steps.load(), counts.copies.load(), static_cast<unsigned long long>(counts.bytes / kMiB),
              counts.stale.load(), counts.errors.load(), (now() - began) / 1e6);
  const bool right = counts.stale == 0 && counts.errors == 0;
  std::puts(right ? "random_copies: verified" : "random_copies: FAILED");
  return right ? 0 : 1;
}
