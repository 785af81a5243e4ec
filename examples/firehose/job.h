// The base of all clients: the processes of a job, each with a heap that all of them put to and get from; the
// counters of their firehoses; the verdict. Everything is called from one thread. Errors are thrown as
// std::runtime_error.
#pragma once

#include <pinion/firehose.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <type_traits>
#include <vector>

namespace gas {

/// This process's part in a job.
struct Place {
  unsigned process = 0;
  unsigned processes = 1;
  std::string directory;  ///< where they meet; empty: the launcher's job has one
};

struct JobOptions {
  std::string provider, strategy, sharing, rides;
  std::uint64_t memory = 0, victims = 0, bucket = 0;
  bool all_memory = false;  ///< exposes the whole address space instead of the heap
  bool hugepages = false;   ///< the heap lies in some, where the kernel has them
  unsigned window = 1;      ///< puts under way at a time; 1: each waits for its delivery
  bool scattered = false;   ///< a window's words to one peer are one scattered put
};

/// Latencies, to one part in sixteen: counts by the upper bits of the nanoseconds.
class Latencies {
 public:
  void add(std::uint64_t ns) { ++counts_[slot(ns)]; }
  void clear() { counts_.fill(0); }
  static constexpr std::size_t kSlots = 64 * 16;
  std::array<std::uint64_t, kSlots>& counts() { return counts_; }
  double mean_us() const;
  double share_us(double share) const;  ///< 0.5: the median

 private:
  static std::size_t slot(std::uint64_t ns);
  static double ns_of(std::size_t slot);
  std::array<std::uint64_t, kSlots> counts_{};
};

class Job {
 public:
  Job(const JobOptions& options, const Place& place) : options_(options), place_(place) {}
  ~Job();
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  unsigned self() const { return place_.process; }
  unsigned processes() const { return place_.processes; }

  // Collective: all processes make these calls in the same order.
  /// Once: makes the heap (zeros, the same size everywhere) and joins.
  void open(std::size_t heap_bytes);
  void close();
  void barrier();
  /// Starts the clocks; end() stops them.
  void begin();
  void end();
  template <class T>
  std::vector<T> gather(const T& own) {
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 256);
    std::vector<T> all(processes());
    exchange(&own, sizeof own, all.data());
    return all;
  }
  /// Whether it is so everywhere.
  bool everywhere(bool here);
  /// Counts of all processes since open(), by the names of `pinion bench firehose`.
  std::map<std::string, double> figures();
  /// Latencies of the puts of all processes since clear_latencies().
  Latencies latencies();
  void clear_latencies() { latencies_.clear(); }

  std::byte* heap() const { return heap_; }
  template <class T>
  T* at(std::size_t offset) const {
    return reinterpret_cast<T*>(heap_ + offset);
  }

  // Remote memory is named by its offset in the peer's heap.
  /// `from` stays unchanged until fence().
  void put(unsigned to, std::size_t offset, const void* from, std::size_t bytes);
  /// The word is copied first.
  void put_word(unsigned to, std::size_t offset, std::uint64_t word);
  /// Ends puts under way: their data is in place.
  void fence();
  void get(unsigned from, std::size_t offset, void* to, std::size_t bytes);
  /// Ended by end_implicit().
  void put_implicit(unsigned to, std::size_t offset, const void* from, std::size_t bytes);
  void get_implicit(unsigned from, std::size_t offset, void* to, std::size_t bytes);
  void end_implicit();
  /// On words of 8 bytes; return the old value.
  std::uint64_t compare_swap(unsigned to, std::size_t offset, std::uint64_t compare, std::uint64_t value);
  std::uint64_t add(unsigned to, std::size_t offset, std::uint64_t value);

 private:
  struct Put {
    pinion_firehose_handle handle{};
    std::uint64_t word = 0;  ///< of put_word()
    unsigned to = 0;
    std::size_t begin = 0, end = 0;
    bool under_way = false;
  };

  void exchange(const void* own, std::size_t bytes, void* all);
  std::uint64_t address(unsigned peer, std::size_t offset) const { return heaps_[peer] + offset; }
  /// A free place in the window, for these bytes.
  Put& claim(unsigned to, std::size_t offset, std::size_t bytes);
  void post(Put& put, const void* from);
  void finish(Put& put);
  void put_together(unsigned to);
  void map_heap(std::size_t bytes);

  const JobOptions options_;
  const Place place_;
  pinion_firehose* firehose_ = nullptr;
  std::byte* heap_ = nullptr;
  std::size_t heap_bytes_ = 0;
  std::vector<std::uint64_t> heaps_;  ///< addresses, by process
  std::vector<Put> window_;
  std::size_t next_ = 0;
  Latencies latencies_;
  std::uint64_t began_ns_ = 0, cpu_began_ns_ = 0;
  double seconds_ = 0, cpu_seconds_ = 0;
};

/// Word `index` of what is called `name`: any two names differ in every word. (splitmix64's finaliser.)
inline std::uint64_t pattern_word(std::uint64_t name, std::uint64_t index) {
  std::uint64_t z = name * 0x9e3779b97f4a7c15u + index;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

}  // namespace gas
