// Makes random steps of a correct program: copies of all kinds and sizes by several threads and streams,
// memory that is overwritten as soon as a call allows it, freed, mapped anew, protected, registered by the
// program itself, graphs, forks, and contexts that come and go. Every copy is read back and compared.
//
//   random_copies [--steps N] [--threads N] [--seed N] [--most BYTES] [--patience SECONDS]
//
// Prints one line with the counts, and `random_copies: verified` if no byte was stale, no call failed and
// nothing hung. A hang ends the process with status 3.
#include <dlfcn.h>
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

#include "../../support/sanitizers.h"
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

/// The primary context, which a step may reset. Its mutex is shared by all other steps.
class Primary {
 public:
  void start() { context_ = use_context(); }
  Context context() const { return context_; }
  int resets() const { return resets_; }
  /// Shared until the step ends. Whoever wants to reset comes before steps that have not begun.
  std::shared_lock<std::shared_mutex> step() {
    const std::lock_guard in_turn(turn_);
    return std::shared_lock(mutex_);
  }
  /// Ends all that was made in the context. The caller holds no step.
  Result reset() {
    const std::lock_guard in_turn(turn_);
    const std::unique_lock alone(mutex_);
    Device device = 0;
    if (const Result refused = driver().device_get(&device, 0)) return refused;
    if (const Result refused = driver().primary_reset(device)) return refused;
    ++resets_;
    return driver().primary_retain(&context_, device);
  }

 private:
  std::mutex turn_;
  std::shared_mutex mutex_;  ///< guards what follows
  Context context_ = nullptr;
  int resets_ = 0;
};
Primary primary;

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
        mirror_(settings.most, 0),
        check_(settings.most) {}

  void run(std::atomic<long>& left) {
    {
      const auto step = primary.step();
      begin_in_context();
      buffers_.resize(6);
      for (Buffer& buffer : buffers_) renew(buffer);
    }
    while (left-- > 0) {
      // A reset costs a GPU half a second.
      if (random_.once_in(5000)) check(primary.reset(), "cuDevicePrimaryCtxReset");
      const auto step = primary.step();
      if (resets_ != primary.resets()) begin_anew();
      make_step();
      ++counts.steps;
    }
    const auto step = primary.step();
    if (resets_ != primary.resets()) begin_anew();
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

  // ---- contexts ----

  void begin_in_context() {
    resets_ = primary.resets();
    check(driver().context_set(primary.context()), "cuCtxSetCurrent");
    make_streams();
    check(driver().allocate(&device_, most_), "cuMemAlloc");
    check(driver().set_bytes(device_, 0, most_), "cuMemsetD8");
    // To wait for the whole context would end captures of other threads.
    check(driver().stream_synchronize(kLegacyStream), "cuStreamSynchronize");
    std::fill(mirror_.begin(), mirror_.end(), 0);
  }
  /// After a reset: device memory, streams, pinned memory and registrations are gone.
  void begin_anew() {
    begin_in_context();
    for (Buffer& buffer : buffers_) {
      if (buffer.kind == Kind::own_registered) buffer.kind = Kind::mapped;
      if (buffer.kind != Kind::pinned) continue;
      buffer.memory = nullptr;
      renew(buffer);
    }
  }
  /// One that waits for nothing, one that waits for the legacy stream, and the thread's own.
  void make_streams() {
    streams_[kAlone] = new_stream();
    check(driver().stream_create(&streams_[kBlocking], 0), "cuStreamCreate");
    streams_[kOwn] = kThreadStream;
  }

  // ---- memory ----

  void renew(Buffer& buffer) {
    if (buffer.memory) release(buffer);
    static constexpr Kind kKinds[] = {Kind::mapped, Kind::mapped,         Kind::heap,  Kind::heap,
                                      Kind::heap,   Kind::own_registered, Kind::pinned};
    buffer.kind = kKinds[random_.below(std::size(kKinds))];
    // Always one that is large: such copies alone are staged.
    buffer.bytes = random_.size(&buffer == buffers_.data() ? most_ / 2 : 64, most_);
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
      buffer.memory = new_block(buffer.bytes);
      return;
    }
    buffer.memory = map_memory(buffer.bytes);
    if (buffer.kind == Kind::own_registered) {
      check(driver().host_register(buffer.memory, buffer.bytes, random_.once_in(2) ? kPortable : 0),
            "cuMemHostRegister");
    }
  }
  /// A sanitizer's allocator returns memory by system calls of its own, which no hook sees. Blocks are
  /// mappings there, as libc's large ones are.
  static char* new_block(std::size_t bytes) {
    if (!pinion::kSanitized) return static_cast<char*>(std::malloc(bytes));
    return map_memory(kHeader + bytes) + kHeader;
  }
  static void free_block(char* block, std::size_t bytes) {
    if (!pinion::kSanitized) return std::free(block);
    unmap_memory(block - kHeader, kHeader + bytes);
  }
  static constexpr std::size_t kHeader = 16;

  void release(Buffer& buffer) {
    if (buffer.kind == Kind::heap) {
      free_block(buffer.memory, buffer.bytes);
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

  void make_step() {
    Buffer& buffer = buffers_[random_.below(buffers_.size())];
    const std::size_t kind = random_.below(2000);
    if (kind < 720) return to_device(buffer);
    if (kind < 1230) return from_device(buffer);
    if (kind < 1300) return rows(buffer);
    if (kind < 1350) return layers(buffer);
    if (kind < 1390) return array(buffer);
    if (kind < 1470) return batch(buffer);
    if (kind < 1510) return between_peers(buffer);
    if (kind < 1570) return gated(buffer);
    if (kind < 1590) return beside_a_waiting_copy();
    if (kind < 1640) return set_device();
    if (kind < 1720) return renew(buffer);
    if (kind < 1800) return map_anew(buffer);
    if (kind < 1860) return protect(buffer);
    if (kind < 1930) return own_register(buffer);
    if (kind < 1970) return captured(buffer);
    if (kind < 1990) return captured_by_another(buffer);
    if (kind < 1994) return fork_now(buffer);
    if (kind < 1998) return new_streams();
    other_context(buffer);
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
    check(driver().copy_out(check_.data(), device_ + target, part.bytes), "cuMemcpyDtoH");
    compare(std::memcmp(check_.data(), mirror_.data() + target, part.bytes) == 0, what, buffer, part);
  }

  /// A copy of rows, to the GPU or from it. What lies between the rows stays as it was.
  void rows(Buffer& buffer) {
    if (!driver().copy_2d || !driver().copy_2d_async || buffer.bytes < 256) return;
    const std::size_t height = 1 + random_.below(15), pitch = buffer.bytes / (height + 1);
    const std::size_t width = 1 + random_.below(pitch);
    const Part part{0, (height - 1) * pitch + width};
    const std::size_t at = random_.below(most_ - part.bytes + 1);
    Copy2D copy;
    copy.source_pitch = copy.target_pitch = pitch;
    copy.width = width;
    copy.height = height;
    const bool to_device = random_.once_in(2);
    if (to_device) {
      copy.source_type = kMemoryTypeHost, copy.source_host = buffer.memory;
      copy.target_type = kMemoryTypeDevice, copy.target_device = device_ + at;
      write_pattern(buffer.memory, part.bytes, ++seed_);
    } else {
      copy.source_type = kMemoryTypeDevice, copy.source_device = device_ + at;
      copy.target_type = kMemoryTypeHost, copy.target_host = buffer.memory;
      std::memset(buffer.memory, 0x77, part.bytes);
    }
    expected_.assign(buffer.memory, buffer.memory + part.bytes);
    char* const device = mirror_.data() + at;
    for (std::size_t row = 0; row < height; ++row) {
      char* const host = expected_.data() + row * pitch;
      std::memcpy(to_device ? device + row * pitch : host, to_device ? host : device + row * pitch, width);
    }
    Stream used = kLegacyStream;
    if (random_.once_in(2)) {
      check(driver().copy_2d(&copy), "cuMemcpy2DUnaligned");
    } else {
      used = stream();
      check(driver().copy_2d_async(&copy, used), "cuMemcpy2DAsync");
      if (to_device && buffer.pageable()) std::memset(buffer.memory, 0xa5, part.bytes);
    }
    check(driver().stream_synchronize(used), "cuStreamSynchronize");
    if (to_device) return compare_device(buffer, part, at, "rows");
    compare(std::memcmp(buffer.memory, expected_.data(), part.bytes) == 0, "rows from the GPU", buffer, part);
  }

  /// A copy of layers, to the GPU or from it. What lies between them and their rows stays as it was.
  void layers(Buffer& buffer) {
    if (!more_calls().copy_3d || !more_calls().copy_3d_async || buffer.bytes < 4096) return;
    const std::size_t depth = 1 + random_.below(3), rows = 2 + random_.below(6);
    const std::size_t pitch = buffer.bytes / (depth * rows + 1);
    Copy3D copy;
    copy.width = 1 + random_.below(pitch);
    copy.height = 1 + random_.below(rows);
    copy.depth = depth;
    copy.source_pitch = copy.target_pitch = pitch;
    copy.source_height = copy.target_height = rows;
    const Part part{0, ((depth - 1) * rows + copy.height - 1) * pitch + copy.width};
    const std::size_t at = random_.below(most_ - part.bytes + 1);
    const bool to_device = random_.once_in(2);
    copy.source_type = to_device ? kMemoryTypeHost : kMemoryTypeDevice;
    copy.target_type = to_device ? kMemoryTypeDevice : kMemoryTypeHost;
    copy.source_host = copy.target_host = buffer.memory;
    copy.source_device = copy.target_device = device_ + at;
    if (to_device)
      write_pattern(buffer.memory, part.bytes, ++seed_);
    else
      std::memset(buffer.memory, 0x77, part.bytes);
    expected_.assign(buffer.memory, buffer.memory + part.bytes);
    for (std::size_t layer = 0; layer < depth; ++layer) {
      for (std::size_t row = 0; row < copy.height; ++row) {
        char* const host = expected_.data() + (layer * rows + row) * pitch;
        char* const device = mirror_.data() + at + (layer * rows + row) * pitch;
        std::memcpy(to_device ? device : host, to_device ? host : device, copy.width);
      }
    }
    Stream used = kLegacyStream;
    if (random_.once_in(2)) {
      check(more_calls().copy_3d(&copy), "cuMemcpy3D");
    } else {
      used = stream();
      check(more_calls().copy_3d_async(&copy, used), "cuMemcpy3DAsync");
    }
    check(driver().stream_synchronize(used), "cuStreamSynchronize");
    if (to_device) return compare_device(buffer, part, at, "layers");
    compare(std::memcmp(buffer.memory, expected_.data(), part.bytes) == 0, "layers from the GPU", buffer,
            part);
  }

  /// Copies into an array, by rows or by a batch, and back into other memory.
  void array(Buffer& buffer) {
    if (!more_calls().array_create || !more_calls().array_destroy || buffer.bytes < 4096) return;
    static constexpr int kFormats[] = {0x01, 0x10, 0x20};  // elements of 1, 2 and 4 bytes
    const std::size_t kind = random_.below(std::size(kFormats)), element = std::size_t{1} << kind;
    ArrayShape shape;
    shape.height = 1 + random_.below(16);
    shape.width = 1 + random_.below(std::min(buffer.bytes, 1 * kMiB) / shape.height / element);
    shape.format = kFormats[kind], shape.channels = 1;
    const Part part{0, shape.width * element * shape.height};
    void* made = nullptr;
    check(more_calls().array_create(&made, &shape), "cuArray3DCreate");
    if (!made) return;
    write_pattern(buffer.memory, part.bytes, ++seed_);
    const Stream used = streams_[random_.below(2)];
    if (more_calls().batch_3d && random_.once_in(2)) {
      CopyIntoArray copy;
      copy.source = reinterpret_cast<DevicePointer>(buffer.memory);
      copy.array = made;
      copy.width = shape.width, copy.height = shape.height, copy.depth = 1;
      check(more_calls().batch_3d(1, &copy, 0, used), "cuMemcpy3DBatchAsync");
    } else {
      check(driver().copy_2d_async(&rows_with(made, buffer.memory, part, shape.height, true), used),
            "cuMemcpy2DAsync into an array");
    }
    check(driver().stream_synchronize(used), "cuStreamSynchronize");
    check(driver().copy_2d(&rows_with(made, check_.data(), part, shape.height, false)),
          "cuMemcpy2DUnaligned of an array");
    compare(has_pattern(check_.data(), part.bytes, seed_), "an array", buffer, part);
    check(more_calls().array_destroy(made), "cuArrayDestroy");
  }
  /// A copy between packed rows and an array.
  const Copy2D& rows_with(void* array, void* host, Part part, std::size_t height, bool into) {
    constexpr int kMemoryTypeArray = 3;
    rows_ = {};
    rows_.source_type = into ? kMemoryTypeHost : kMemoryTypeArray;
    rows_.target_type = into ? kMemoryTypeArray : kMemoryTypeHost;
    rows_.source_host = rows_.target_host = host;
    rows_.source_array = rows_.target_array = array;
    rows_.source_pitch = rows_.target_pitch = rows_.width = part.bytes / height;
    rows_.height = height;
    return rows_;
  }

  /// A batch of adjacent copies. The driver may read its sources until the stream has come to its end.
  void batch(Buffer& buffer) {
    const Driver& cuda = driver();
    const Part part = choose(buffer);
    std::size_t count = 1 + random_.below(4);
    if ((!cuda.copy_batch_v1 && !cuda.copy_batch_v2) || part.bytes < count) return;
    const std::size_t at = random_.below(most_ - part.bytes + 1), piece = part.bytes / count;
    char* const host = buffer.memory + part.at;
    const bool to_device = random_.once_in(2);
    if (to_device) {
      write_pattern(host, part.bytes, ++seed_);
      write_pattern(mirror_.data() + at, part.bytes, seed_);
    } else {
      std::memset(host, 0x77, part.bytes);
    }
    DevicePointer to[4], from[4];
    std::size_t bytes[4];
    for (std::size_t i = 0; i < count; ++i) {
      const DevicePointer on_device = device_ + at + i * piece;
      const auto on_host = reinterpret_cast<DevicePointer>(host + i * piece);
      to[i] = to_device ? on_device : on_host;
      from[i] = to_device ? on_host : on_device;
      bytes[i] = i + 1 < count ? piece : part.bytes - i * piece;
    }
    CopyAttributes attributes;
    attributes.source_access_order = 1 + static_cast<int>(random_.below(3));
    std::size_t first = 0, failed = 0;
    const Stream used = streams_[random_.below(2)];
    check(cuda.copy_batch_v2
              ? cuda.copy_batch_v2(to, from, bytes, count, &attributes, &first, 1, used)
              : cuda.copy_batch_v1(to, from, bytes, count, &attributes, &first, 1, &failed, used),
          "cuMemcpyBatchAsync");
    check(cuda.stream_synchronize(used), "cuStreamSynchronize");
    if (to_device) {
      std::memset(host, 0xa5, part.bytes);
      return compare_device(buffer, part, at, "a batch");
    }
    compare(std::memcmp(host, mirror_.data() + at, part.bytes) == 0, "a batch from the GPU", buffer, part);
  }

  /// A copy between peers. The made-up driver takes host memory there too; a real one has not been asked.
  void between_peers(Buffer& buffer) {
    static const bool takes_host = ::dlsym(driver().library, "madeUpCalls") != nullptr;
    if (!more_calls().peer || !more_calls().peer_async) return;
    Part part = choose(buffer);
    if (!takes_host) part.bytes = std::min(part.bytes, most_ / 2);
    const std::size_t target = random_.below(most_ - part.bytes + 1);
    char* const host = buffer.memory + part.at;
    auto source = reinterpret_cast<DevicePointer>(host);
    write_pattern(host, part.bytes, ++seed_);
    if (!takes_host) {
      const std::size_t at = target >= part.bytes ? 0 : target + part.bytes;
      write_pattern(mirror_.data() + at, part.bytes, seed_);
      check(driver().copy_in(device_ + at, host, part.bytes), "cuMemcpyHtoD");
      source = device_ + at;
    }
    write_pattern(mirror_.data() + target, part.bytes, seed_);
    const Context context = primary.context();
    Stream used = kLegacyStream;
    if (random_.once_in(2)) {
      check(more_calls().peer(device_ + target, context, source, context, part.bytes), "cuMemcpyPeer");
    } else {
      used = streams_[kBlocking];
      check(more_calls().peer_async(device_ + target, context, source, context, part.bytes, used),
            "cuMemcpyPeerAsync");
    }
    if (!buffer.pageable()) check(driver().stream_synchronize(used), "cuStreamSynchronize");
    std::memset(host, 0xa5, part.bytes);
    check(driver().stream_synchronize(used), "cuStreamSynchronize");
    compare_device(buffer, part, target, "between peers");
  }

  /// A copy of at most 1 MiB behind work that the program holds back: the call returns at once, and has read
  /// its bytes. Behind a blocking stream's work other threads' copies would wait, with the driver's lock.
  void gated(Buffer& buffer) {
    if (!driver().launch_host || !buffer.pageable()) return;
    Part part = choose(buffer);
    part.bytes = std::min(part.bytes, 1 * kMiB);
    const std::size_t target = random_.below(most_ - part.bytes + 1);
    const Stream chosen = streams_[kAlone];
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

  /// Another thread's synchronous copy waits for a gated stream. A stream of this thread's waits for an event
  /// that is done, which takes no time, and the gate opens after that.
  void beside_a_waiting_copy() {
    if (!driver().launch_host || !more_calls().wait_event || !more_calls().event_destroy) return;
    constexpr std::size_t kBytes = 4 * kKiB;
    const std::size_t target = random_.below(most_ - kBytes + 1);
    write_pattern(mirror_.data() + target, kBytes, ++seed_);
    Event done = nullptr;
    check(driver().event_create(&done, 2), "cuEventCreate");
    {
      const std::unique_lock alone(gate_mutex);
      std::atomic<bool> open{false};
      check(driver().launch_host(
                streams_[kBlocking],
                [](void* gate) {
                  while (!static_cast<std::atomic<bool>*>(gate)->load()) std::this_thread::yield();
                },
                &open),
            "cuLaunchHostFunc");
      std::thread waiting([&] {
        check(driver().context_set(primary.context()), "cuCtxSetCurrent");
        check(driver().copy_in(device_ + target, mirror_.data() + target, kBytes), "cuMemcpyHtoD");
      });
      for (std::size_t i = random_.below(200); i > 0; --i) std::this_thread::yield();
      check(more_calls().wait_event(streams_[kAlone], done, 0), "cuStreamWaitEvent");
      open = true;
      waiting.join();
    }
    check(driver().stream_synchronize(kLegacyStream), "cuStreamSynchronize");
    check(more_calls().event_destroy(done), "cuEventDestroy");
    compare_device(buffers_[0], {0, kBytes}, target, "beside a gate");
  }

  /// A copy into a stream in which another thread begins a capture: it is made, or the graph makes it.
  void captured_by_another(Buffer& buffer) {
    const Driver& cuda = driver();
    if (!cuda.begin_capture || !cuda.graph_instantiate || !more_calls().exec_destroy) return;
    const Part part = choose(buffer);
    const std::size_t at = random_.below(most_ - part.bytes + 1);
    char* const host = buffer.memory + part.at;
    const Stream used = streams_[kAlone];
    const std::uint64_t before = ++seed_, after = ++seed_;
    write_pattern(host, part.bytes, before);
    Graph graph = nullptr;
    std::atomic<bool> copied{false};
    const std::size_t pause = random_.below(300);
    std::thread other([&] {
      check(cuda.context_set(primary.context()), "cuCtxSetCurrent");
      for (std::size_t i = 0; i < pause; ++i) std::this_thread::yield();
      check(cuda.begin_capture(used, kCaptureRelaxed), "cuStreamBeginCapture");
      while (!copied) std::this_thread::yield();
      check(cuda.end_capture(used, &graph), "cuStreamEndCapture");
    });
    for (std::size_t i = random_.below(300); i > 0; --i) std::this_thread::yield();
    check(cuda.copy_in_async(device_ + at, host, part.bytes, used), "a copy beside a capture");
    copied = true;
    other.join();
    check(cuda.stream_synchronize(used), "cuStreamSynchronize");
    write_pattern(host, part.bytes, after);
    GraphExec ready = nullptr;
    if (graph) check(cuda.graph_instantiate(&ready, graph, 0), "cuGraphInstantiate");
    if (ready) check(cuda.graph_launch(ready, used), "cuGraphLaunch");
    check(cuda.stream_synchronize(used), "cuStreamSynchronize");
    check(cuda.copy_out(mirror_.data() + at, device_ + at, part.bytes), "cuMemcpyDtoH");
    compare(has_pattern(mirror_.data() + at, part.bytes, before) ||
                has_pattern(mirror_.data() + at, part.bytes, after),
            "beside a capture", buffer, part);
    if (ready) check(more_calls().exec_destroy(ready), "cuGraphExecDestroy");
    if (graph && more_calls().graph_destroy) check(more_calls().graph_destroy(graph), "cuGraphDestroy");
  }

  /// A copy that a graph makes at each launch, of what the memory has then.
  void captured(Buffer& buffer) {
    const Driver& cuda = driver();
    if (!cuda.begin_capture || !cuda.graph_instantiate || !more_calls().exec_destroy) return;
    Part part = choose(buffer);
    part.bytes = std::min(part.bytes, 1 * kMiB);
    const std::size_t at = random_.below(most_ - part.bytes + 1);
    char* const host = buffer.memory + part.at;
    const bool to_device = random_.once_in(2);
    const Graph graph = random_.once_in(2) ? capture(host, device_ + at, part.bytes, to_device)
                                           : node(host, device_ + at, part.bytes, to_device);
    if (!graph) return;
    GraphExec ready = nullptr;
    check(cuda.graph_instantiate(&ready, graph, 0), "cuGraphInstantiate");
    for (int i = 0; i < 3 && ready; ++i) {
      write_pattern(host, part.bytes, ++seed_);
      if (to_device) write_pattern(mirror_.data() + at, part.bytes, seed_);
      check(cuda.graph_launch(ready, streams_[kAlone]), "cuGraphLaunch");
      check(cuda.stream_synchronize(streams_[kAlone]), "cuStreamSynchronize");
      if (to_device)
        compare_device(buffer, part, at, "by a graph");
      else
        compare(std::memcmp(host, mirror_.data() + at, part.bytes) == 0, "by a graph from the GPU", buffer,
                part);
      // A plain synchronous copy may return before its bytes are on the GPU.
      write_pattern(mirror_.data() + at, part.bytes, ++seed_);
      write_pattern(host, part.bytes, seed_);
      check(cuda.copy_in(device_ + at, host, part.bytes), "cuMemcpyHtoD");
      check(cuda.stream_synchronize(kLegacyStream), "cuStreamSynchronize");
    }
    if (ready) check(more_calls().exec_destroy(ready), "cuGraphExecDestroy");
    if (more_calls().graph_destroy) check(more_calls().graph_destroy(graph), "cuGraphDestroy");
  }
  /// A graph with the copy, made by a capture. A blocking stream's would fail beside copies of other threads.
  Graph capture(char* host, DevicePointer device, std::size_t bytes, bool to_device) {
    const Driver& cuda = driver();
    const Stream used = streams_[kAlone];
    Graph graph = nullptr;
    check(cuda.begin_capture(used, random_.once_in(2) ? kCaptureThreadLocal : kCaptureRelaxed),
          "cuStreamBeginCapture");
    check(to_device ? cuda.copy_in_async(device, host, bytes, used)
                    : cuda.copy_out_async(host, device, bytes, used),
          "a copy in a capture");
    check(cuda.end_capture(used, &graph), "cuStreamEndCapture");
    return graph;
  }
  /// A graph with the copy, added by hand.
  Graph node(char* host, DevicePointer device, std::size_t bytes, bool to_device) {
    Graph graph = nullptr;
    GraphNode made = nullptr;
    Copy3D copy;
    copy.source_type = to_device ? kMemoryTypeHost : kMemoryTypeDevice;
    copy.target_type = to_device ? kMemoryTypeDevice : kMemoryTypeHost;
    copy.source_host = copy.target_host = host;
    copy.source_device = copy.target_device = device;
    copy.source_pitch = copy.target_pitch = copy.width = bytes;
    copy.height = copy.depth = 1;
    check(driver().graph_create(&graph, 0), "cuGraphCreate");
    check(driver().graph_add_copy(&made, graph, nullptr, 0, &copy, primary.context()),
          "cuGraphAddMemcpyNode");
    return graph;
  }

  /// Handles of streams recur.
  void new_streams() {
    if (!more_calls().stream_destroy) return;
    for (const int made : {kAlone, kBlocking})
      check(more_calls().stream_destroy(streams_[made]), "cuStreamDestroy");
    make_streams();
  }

  /// A context of the thread's own, of which copies are made; its handle recurs.
  void other_context(Buffer& buffer) {
    if (!buffer.pageable()) return;
    const std::shared_lock no_gate(gate_mutex);
    Context made = nullptr;
    const Result refused = driver().context_create(&made, 0, 0);
    check(refused, "cuCtxCreate");
    if (refused != kSuccess) return;
    const Part part = choose(buffer);
    char* const host = buffer.memory + part.at;
    DevicePointer device = 0;
    check(driver().allocate(&device, part.bytes), "cuMemAlloc");
    for (int i = 0; i < 4; ++i) {
      write_pattern(host, part.bytes, ++seed_);
      check(driver().copy_in(device, host, part.bytes), "cuMemcpyHtoD");
      std::memset(host, 0xa5, part.bytes);
      check(driver().copy_out(host, device, part.bytes), "cuMemcpyDtoH");
      compare(has_pattern(host, part.bytes, seed_), "in a context of its own", buffer, part);
    }
    check(driver().free_device(device), "cuMemFree");
    check(driver().context_destroy(made), "cuCtxDestroy");
    check(driver().context_set(primary.context()), "cuCtxSetCurrent");
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
        std::memset(buffer.memory, kMark, pages);
        void* const moved = ::mremap(buffer.memory, pages, pages, MREMAP_MAYMOVE | MREMAP_FIXED, other);
        // Where --monitor userfaultfd watches a part of the memory (registry-and-monitor.md).
        if (moved == MAP_FAILED) return give_up_memory(buffer, other, pages);
        buffer.memory = static_cast<char*>(moved);
        break;
      }
      default:
        ::munmap(buffer.memory, pages);
        buffer.memory = map_memory(buffer.bytes);
    }
    write_pattern(buffer.memory, buffer.bytes, ++seed_);
  }

  /// Lets memory go of which a failed mremap has moved the beginning to `other`, marked.
  void give_up_memory(Buffer& buffer, char* other, std::size_t pages) {
    std::size_t moved = 0;
    while (moved < pages && other[moved] == kMark) moved += 4096;
    unmap_memory(other, pages);
    // What was moved is free at its old place, where another thread may have memory by now.
    if (moved < pages) unmap_memory(buffer.memory + moved, pages - moved);
    buffer.memory = nullptr;
    renew(buffer);
  }
  static constexpr char kMark = 0x5a;

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
  std::vector<char> mirror_, check_, expected_;
  std::vector<Buffer> buffers_;
  Copy2D rows_;
  enum : int { kAlone, kBlocking, kOwn };
  Stream streams_[3] = {};
  int resets_ = 0;
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
  primary.start();
  std::atomic<long> left{settings.steps};
  std::atomic<bool> done{false};
  std::thread watchdog([&] { watch(done, settings.patience); });
  std::vector<std::unique_ptr<Worker>> workers;
  std::vector<std::thread> threads;
  const double began = now();
  for (int i = 0; i < settings.threads; ++i) {
    workers.push_back(std::make_unique<Worker>(i, settings));
    threads.emplace_back([&left, worker = workers.back().get()] { worker->run(left); });
  }
  for (std::thread& thread : threads) thread.join();
  done = true;
  watchdog.join();
  std::printf("steps %ld copies %ld MiB %llu resets %d stale %ld errors %ld hangs 0 seconds %.2f\n",
              counts.steps.load(), counts.copies.load(), static_cast<unsigned long long>(counts.bytes / kMiB),
              primary.resets(), counts.stale.load(), counts.errors.load(), (now() - began) / 1e6);
  const bool right = counts.stale == 0 && counts.errors == 0;
  std::puts(right ? "random_copies: verified" : "random_copies: FAILED");
  return right ? 0 : 1;
}
