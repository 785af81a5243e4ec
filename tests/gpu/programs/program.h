// Owns what the programs of tests/gpu/run share: the driver, a context, memory, contents that can be checked,
// and the talk with the script. The programs are ordinary users of CUDA: they know nothing of Pinion, and run
// with and without it. They need no CUDA headers. Any thread may call these functions, except Talk.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

#include "../driver.h"

namespace pinion::gpu {

inline constexpr std::size_t kKiB = 1024, kMiB = 1024 * kKiB, kGiB = 1024 * kMiB;

/// CUDA_ARRAY3D_DESCRIPTOR.
struct ArrayShape {
  std::size_t width = 0, height = 0, depth = 0;
  int format = 0;
  unsigned channels = 0, flags = 0;
};

/// CUDA_MEMCPY3D_BATCH_OP, from memory into an array.
struct CopyIntoArray {
  int source_type = 1, source_padding = 0;
  DevicePointer source = 0;
  std::size_t row = 0, layer = 0;
  int location[2] = {0, 0};
  int target_type = 2, target_padding = 0;
  void* array = nullptr;
  std::size_t x = 0, y = 0, z = 0;
  std::size_t width = 0, height = 0, depth = 0;
  int access_order = 1;
  unsigned flags = 0;
};
static_assert(sizeof(CopyIntoArray) == 112);

/// Calls that the facts do without; null where the driver lacks them.
struct MoreCalls {
  Result (*unified)(DevicePointer, DevicePointer, std::size_t) = nullptr;
  Result (*unified_async)(DevicePointer, DevicePointer, std::size_t, Stream) = nullptr;
  Result (*peer)(DevicePointer, Context, DevicePointer, Context, std::size_t) = nullptr;
  Result (*peer_async)(DevicePointer, Context, DevicePointer, Context, std::size_t, Stream) = nullptr;
  Result (*stream_destroy)(Stream) = nullptr;
  Result (*graph_destroy)(Graph) = nullptr;
  Result (*exec_destroy)(GraphExec) = nullptr;
  Result (*wait_event)(Stream, Event, unsigned) = nullptr;
  Result (*event_destroy)(Event) = nullptr;
  Result (*copy_3d)(const Copy3D*) = nullptr;
  Result (*copy_3d_async)(const Copy3D*, Stream) = nullptr;
  Result (*array_create)(void**, const ArrayShape*) = nullptr;
  Result (*array_destroy)(void*) = nullptr;
  Result (*batch_3d)(std::size_t, const CopyIntoArray*, unsigned long long, Stream) = nullptr;
  Result (*push)(Context) = nullptr;
  Result (*pop)(Context*) = nullptr;
};
const MoreCalls& more_calls();

/// Returns what the program calls for a symbol of the driver's: the function itself, or the front's wrapper
/// where the front is linked into the program (tests/intercept/cuda/front_inside.cpp).
void* called_for(const char* symbol, void* function);

/// Ends the process with status 2 and one line if the call failed.
void must(Result result, const char* what);
[[noreturn]] void give_up(const char* what);

/// Makes the primary context current in the calling thread. The first call initializes the driver.
Context use_context();
Stream new_stream();
/// A kernel that does nothing.
Function empty_kernel();

/// Microseconds of a steady clock.
inline double now() {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

/// Anonymous memory on base pages or on transparent hugepages; untouched.
char* map_memory(std::size_t bytes, bool huge = false);
void unmap_memory(void* memory, std::size_t bytes);
/// Touches every page, with several threads.
void touch(char* memory, std::size_t bytes, int threads);

/// Writes a pattern that depends on the seed and on the place.
void write_pattern(void* memory, std::size_t bytes, std::uint64_t seed);
bool has_pattern(const void* memory, std::size_t bytes, std::uint64_t seed);
/// Writes the seed into each 4096th byte's word and the last one: quick, and enough to see stale pages.
void stamp(void* memory, std::size_t bytes, std::uint64_t seed);
bool has_stamps(const void* memory, std::size_t bytes, std::uint64_t seed);
/// Reads device memory back through pinned memory and compares it with the stamps.
bool device_has_stamps(DevicePointer device, std::size_t bytes, std::uint64_t seed);

/// "64K", "16M", "8G" as bytes.
std::size_t bytes_of(const char* text);

/// The script's side of a measurement: the program says "ready", gets "go N", and prints N lines of numbers.
class Talk {
 public:
  Talk();
  /// Waits for the next "go N". Returns 0 at the end.
  int next();
  void number(double value);
  /// Two figures of one repetition.
  void numbers(double first, double second);
  void wrong(const char* what);
  /// Prints the outcome. Returns the exit status.
  int end();

 private:
  bool right_ = true;
};

}  // namespace pinion::gpu
