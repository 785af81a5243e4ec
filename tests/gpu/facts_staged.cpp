// Measures staged copies: threads copy through a pinned ring while the GPU's engine takes what is there,
// beside a plain copy of pageable memory and a copy of registered memory.
#include <cstring>
#include <memory>
#include <thread>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "facts.h"

namespace pinion::gpu {
namespace {

constexpr std::size_t kRing = 32 * kMiB, kLeastChunk = 128 * kKiB, kMost = 256 * kMiB;
constexpr int kMostThreads = 4, kReadAhead = 16;

#if defined(__x86_64__)
/// Copies with stores that pass the caches. The target is aligned to 64, the size is a multiple of 64.
__attribute__((target("avx512f"))) void stream_512(char* to, const char* from, std::size_t bytes) {
  for (std::size_t at = 0; at < bytes; at += 64) {
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to + at), _mm512_loadu_si512(from + at));
  }
  _mm_sfence();
}
__attribute__((target("avx2"))) void stream_256(char* to, const char* from, std::size_t bytes) {
  for (std::size_t at = 0; at < bytes; at += 64) {
    const __m256i first = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + at));
    const __m256i second = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + at + 32));
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to + at), first);
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to + at + 32), second);
  }
  _mm_sfence();
}
#endif

enum class Mover { kMemcpy, kStream };

const char* mover_name(Mover mover) {
  if (mover == Mover::kMemcpy) return "memcpy";
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return "non-temporal stores (AVX-512)";
  if (__builtin_cpu_supports("avx2")) return "non-temporal stores (AVX2)";
#endif
  return "memcpy (no non-temporal stores here)";
}

void move(Mover mover, char* to, const char* from, std::size_t bytes) {
#if defined(__x86_64__)
  static const bool wide = __builtin_cpu_supports("avx512f"), narrow = __builtin_cpu_supports("avx2");
  if (mover == Mover::kStream && wide) return stream_512(to, from, bytes);
  if (mover == Mover::kStream && narrow) return stream_256(to, from, bytes);
#endif
  std::memcpy(to, from, bytes);
}

struct Plan {
  bool in = true;
  int threads = 1;
  Mover mover = Mover::kMemcpy;
  std::size_t chunk = kMiB;
  std::size_t ring = kRing;
  bool asleep = false;  // The helpers sleep between two copies and are woken by each.
};

/// Copies through a ring. The caller is one of the threads; the helpers wait for the next copy.
class Stager {
 public:
  explicit Stager(Session& session) : session_(session) {
    void* ring = nullptr;
    must(driver().allocate_host(&ring, kRing, kPortable), "cuMemHostAlloc");
    ring_ = static_cast<char*>(ring);
    std::memset(ring_, 0, kRing);
    for (Event& event : events_) must(driver().event_create(&event, kEventNoTiming), "cuEventCreate");
    for (int i = 1; i < kMostThreads; ++i) helpers_.emplace_back([this, i] { help(i); });
  }
  ~Stager() {
    stop_ = true;
    start(0);
    for (std::thread& helper : helpers_) helper.join();
  }
  void copy(const Plan& plan, char* host, DevicePointer device, std::size_t bytes) {
    plan_ = plan;
    host_ = host;
    device_ = device;
    bytes_ = bytes;
    chunks_ = (bytes + plan.chunk - 1) / plan.chunk;
    slots_ = plan.ring / plan.chunk;
    if (!plan.in) slots_ = std::min<std::size_t>(slots_, kReadAhead);
    for (std::size_t i = 0; i < slots_; ++i) issued_[i] = 0;
    next_ = 0;
    busy_ = plan.threads - 1;
    if (plan.threads > 1) start(plan.threads);
    if (!plan.in) {
      for (std::size_t i = 0; i < std::min(slots_, chunks_); ++i) issue(i);
    }
    work();
    while (busy_ != 0) pause();
    if (plan.in) must(driver().stream_synchronize(session_.stream), "cuStreamSynchronize");
  }
  /// Says whether the helpers sleep or spin until the next copy.
  void sleep(bool asleep) { asleep_ = asleep; }

 private:
  static void pause() {
#if defined(__x86_64__)
    _mm_pause();
#endif
  }
  /// Starts a job of so many threads. Its word holds them, so that a helper that is late reads no newer plan.
  void start(int threads) {
    job_ = ((job_ >> 8) + 1) << 8 | static_cast<std::uint32_t>(threads);
    job_.notify_all();
  }
  void help(int index) {
    driver().context_set(session_.context);
    std::uint32_t seen = 0;
    while (!stop_) {
      while (job_ == seen) {
        if (asleep_) {
          job_.wait(seen);
        } else {
          pause();
        }
      }
      seen = job_;
      if (index >= static_cast<int>(seen & 255)) continue;
      work();
      --busy_;
    }
  }
  std::size_t size_of(std::size_t i) const { return std::min(plan_.chunk, bytes_ - i * plan_.chunk); }
  void issue(std::size_t i) {
    const std::size_t slot = i % slots_;
    char* const place = ring_ + slot * plan_.chunk;
    const DevicePointer device = device_ + i * plan_.chunk;
    must(plan_.in ? driver().copy_in_async(device, place, size_of(i), session_.stream)
                  : driver().copy_out_async(place, device, size_of(i), session_.stream),
         "the ring's copy");
    must(driver().event_record(events_[slot], session_.stream), "cuEventRecord");
    ++issued_[slot];
  }
  void work() {
    for (std::size_t i; (i = next_++) < chunks_;) {
      const std::size_t slot = i % slots_;
      char* const place = ring_ + slot * plan_.chunk;
      if (plan_.in) {
        while (issued_[slot] < i / slots_) pause();
        if (i >= slots_) must(driver().event_synchronize(events_[slot]), "cuEventSynchronize");
        move(plan_.mover, place, host_ + i * plan_.chunk, size_of(i));
        issue(i);
      } else {
        while (issued_[slot] < i / slots_ + 1) pause();
        must(driver().event_synchronize(events_[slot]), "cuEventSynchronize");
        move(plan_.mover, host_ + i * plan_.chunk, place, size_of(i));
        if (i + slots_ < chunks_) issue(i + slots_);
      }
    }
  }
  Session& session_;
  char* ring_ = nullptr;
  Event events_[kRing / kLeastChunk] = {};
  std::atomic<std::size_t> issued_[kRing / kLeastChunk] = {};
  Plan plan_;
  char* host_ = nullptr;
  DevicePointer device_ = 0;
  std::size_t bytes_ = 0, chunks_ = 0, slots_ = 1;
  std::atomic<std::size_t> next_{0};
  std::atomic<int> busy_{0};
  std::atomic<std::uint32_t> job_{0};
  std::atomic<bool> stop_{false}, asleep_{false};
  std::vector<std::thread> helpers_;
};

/// The memory of one direction, and what a plain and a registered copy take.
class Bench {
 public:
  Bench(bool in, Pages pages) : in_(in), stager_(session_), host_(map_memory(kMost, pages)) {
    pattern_ = map_memory(kMost);
    std::uint32_t* const words = reinterpret_cast<std::uint32_t*>(pattern_);
    for (std::size_t i = 0; i < kMost / 4; ++i) words[i] = static_cast<std::uint32_t>(i * 2654435761U);
    std::memcpy(host_, pattern_, kMost);
    must(driver().allocate(&device_, kMost), "cuMemAlloc");
    must(driver().copy_in(device_, pattern_, kMost), "cuMemcpyHtoD");
  }
  Times plain(std::size_t bytes) {
    return times(bytes, [&] {
      must(in_ ? driver().copy_in(device_, host_, bytes) : driver().copy_out(host_, device_, bytes),
           "the plain copy");
    });
  }
  Times registered(std::size_t bytes) {
    must(driver().host_register(host_, bytes, kPortable), "cuMemHostRegister");
    const Times taken = plain(bytes);
    must(driver().host_unregister(host_), "cuMemHostUnregister");
    return taken;
  }
  Times staged(const Plan& plan, std::size_t bytes) {
    return times(bytes, [&] { stager_.copy(plan, host_, device_, bytes); });
  }
  /// Checks every byte of one staged copy.
  bool right(const Plan& plan, std::size_t bytes) {
    if (in_) {
      must(driver().set_bytes(device_, 0xee, bytes), "cuMemsetD8");
    } else {
      std::memset(host_, 0xee, bytes);
    }
    must(driver().context_synchronize(), "cuCtxSynchronize");
    stager_.copy(plan, host_, device_, bytes);
    if (!in_) return std::memcmp(host_, pattern_, bytes) == 0;
    std::unique_ptr<char[]> seen(new char[bytes]);
    must(driver().copy_out(seen.get(), device_, bytes), "cuMemcpyDtoH");
    return std::memcmp(seen.get(), pattern_, bytes) == 0;
  }
  Stager& stager() { return stager_; }

 private:
  template <class Body>
  static Times times(std::size_t bytes, Body body) {
    Times taken;
    body();
    for (int i = bytes >= 64 * kMiB ? 5 : bytes >= 4 * kMiB ? 11 : 31; i > 0; --i) {
      const double began = now();
      body();
      taken.add(now() - began);
    }
    return taken;
  }
  bool in_;
  Session session_;
  Stager stager_;
  char *host_, *pattern_ = nullptr;
  DevicePointer device_ = 0;
};

/// One row for each number of threads and mover: the median for each chunk size that fits.
void staged_rows(Bench& bench, const Plan& like, std::size_t bytes, double plain, const std::string& name) {
  Plan plan = like;
  std::string all;
  double best = 0;
  std::size_t best_chunk = 0;
  for (const std::size_t chunk : {kLeastChunk, 256 * kKiB, 512 * kKiB, kMiB, 2 * kMiB, 4 * kMiB}) {
    if (chunk > bytes && chunk != kLeastChunk) break;
    if (2 * chunk > plan.ring) break;
    plan.chunk = chunk;
    const double median = bench.staged(plan, bytes).median();
    all += format("%s%s: %.4g", all.empty() ? "" : ", ", size_name(chunk).c_str(), median);
    if (best == 0 || median < best) {
      best = median;
      best_chunk = chunk;
    }
  }
  plan.chunk = best_chunk;
  const std::string ring = plan.ring == kRing ? "" : ", ring of " + size_name(plan.ring);
  emit(format("%s staged, %d threads, %s%s%s", name.c_str(), plan.threads, mover_name(plan.mover),
              plan.asleep ? ", helpers asleep" : "", ring.c_str()),
       format("%.4g us = %.2f of plain, %.1f GB/s, %s", best, best / plain,
              static_cast<double>(bytes) / best / 1e3,
              bench.right(plan, bytes) ? "right bytes" : "WRONG bytes"),
       "", "by chunk, us: " + all);
}

void staged_of(bool in, Pages pages) {
  Bench bench(in, pages);
  for (const std::size_t bytes : {64 * kKiB, 256 * kKiB, kMiB, 4 * kMiB, 16 * kMiB, 64 * kMiB, 256 * kMiB}) {
    const std::string name = format("%s GPU, %s, %s:", in ? "to" : "from", size_name(bytes).c_str(),
                                    pages == Pages::kBase ? "base pages" : "hugepages");
    const Times plain = bench.plain(bytes), registered = bench.registered(bytes);
    emit(name + " plain", plain.summary(), "us",
         format("%.1f GB/s", static_cast<double>(bytes) / plain.median() / 1e3));
    emit(name + " registered", registered.summary(), "us",
         format("%.2f of plain, %.1f GB/s", registered.median() / plain.median(),
                static_cast<double>(bytes) / registered.median() / 1e3));
    for (const Mover mover : {Mover::kMemcpy, Mover::kStream}) {
      for (int threads = 1; threads <= kMostThreads; ++threads) {
        if (static_cast<std::size_t>(threads - 1) * kLeastChunk >= bytes) continue;
        Plan plan;
        plan.in = in;
        plan.threads = threads;
        plan.mover = mover;
        staged_rows(bench, plan, bytes, plain.median(), name);
        if (threads == 3 && bytes >= 16 * kMiB) {
          plan.ring = 8 * kMiB;
          staged_rows(bench, plan, bytes, plain.median(), name);
          plan.ring = kRing;
        }
        if (threads != 3 || mover != Mover::kMemcpy) continue;
        plan.asleep = true;
        bench.stager().sleep(true);
        staged_rows(bench, plan, bytes, plain.median(), name);
        bench.stager().sleep(false);
      }
    }
    const Times again = bench.plain(bytes);
    emit(name + " plain again", again.summary(), "us");
  }
}

}  // namespace

void add_staged(Experiments& all) {
  for (const bool in : {true, false}) {
    all.push_back({"staged", 40, [=] { staged_of(in, Pages::kBase); }});
  }
}

}  // namespace pinion::gpu
