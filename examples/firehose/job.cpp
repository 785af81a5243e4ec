#include "job.h"

#include <sys/mman.h>
#include <time.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <stdexcept>

namespace gas {

namespace {

void must(int error) {
  if (error != 0) throw std::runtime_error(pinion_last_error());
}

std::uint64_t now_ns(clockid_t clock) {
  timespec time{};
  ::clock_gettime(clock, &time);
  return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000u + static_cast<std::uint64_t>(time.tv_nsec);
}

/// A process's part in the job's figures.
struct Share {
  std::uint64_t puts, gets, atomics, hits, misses, waited, messaged, moves, refusals, distinct_buckets;
  std::uint64_t bookkeeping_ns, sampled_hits, hit_ns, timed_hits, miss_ns, timed_misses;
  std::uint64_t exposed_peak_bytes, pins, unpins, pin_ns, unpin_ns, victim_hits, recalls, cut_off;
  std::uint64_t local_pins;
  double seconds, cpu_seconds;
};

/// Registrations of this process that were not for its peers.
std::uint64_t local_pins(std::uint64_t for_peers) {
  struct pinion_statistics s {};
  s.size = sizeof s;
  must(pinion_statistics(nullptr, &s));
  return s.registrations - std::min(s.registrations, for_peers);
}

double ratio(double part, double whole) { return whole > 0 ? part / whole : 0; }

}  // namespace

std::size_t Latencies::slot(std::uint64_t ns) {
  if (ns < 16) return ns;
  const unsigned shift = static_cast<unsigned>(std::bit_width(ns)) - 5;
  return 16 * shift + (ns >> shift);
}

double Latencies::ns_of(std::size_t slot) {
  if (slot < 32) return static_cast<double>(slot);
  const std::size_t shift = slot / 16 - 1;
  return static_cast<double>((16 + slot % 16) << shift) + static_cast<double>(std::size_t{1} << shift) / 2;
}

double Latencies::mean_us() const {
  double sum = 0, count = 0;
  for (std::size_t i = 0; i < kSlots; ++i) {
    if (counts_[i] == 0) continue;
    sum += ns_of(i) * static_cast<double>(counts_[i]);
    count += static_cast<double>(counts_[i]);
  }
  return ratio(sum, count) / 1000;
}

double Latencies::share_us(double share) const {
  double count = 0, seen = 0;
  for (const std::uint64_t n : counts_) count += static_cast<double>(n);
  for (std::size_t i = 0; i < kSlots; ++i) {
    seen += static_cast<double>(counts_[i]);
    if (count > 0 && seen >= share * count) return ns_of(i) / 1000;
  }
  return 0;
}

Job::~Job() {
  // After an error the peers are in unknown places: the process ends without them.
  if (heap_ != nullptr && firehose_ == nullptr) ::munmap(heap_, heap_bytes_);
}

void Job::map_heap(std::size_t bytes) {
  constexpr std::size_t kHugepage = std::size_t{2} << 20;
  const std::size_t multiple = options_.hugepages ? kHugepage : 1;
  heap_bytes_ = (bytes + multiple - 1) / multiple * multiple;
  const std::size_t mapped = heap_bytes_ + multiple - 1;
  void* const memory = ::mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::runtime_error("no memory for the heap");
  heap_ = reinterpret_cast<std::byte*>((reinterpret_cast<std::uintptr_t>(memory) + multiple - 1) / multiple *
                                       multiple);
  if (!options_.hugepages) return;
  ::madvise(heap_, heap_bytes_, MADV_HUGEPAGE);
  std::memset(heap_, 0, heap_bytes_);
}

void Job::open(std::size_t heap_bytes) {
  map_heap(heap_bytes);
  const struct pinion_range segment { heap_, heap_bytes_ };
  struct pinion_firehose_options options {};
  options.size = sizeof options;
  if (!place_.directory.empty()) {
    options.process = place_.process;
    options.processes = place_.processes;
    options.directory = place_.directory.c_str();
  }
  if (!options_.provider.empty()) options.provider = options_.provider.c_str();
  if (!options_.strategy.empty()) options.strategy = options_.strategy.c_str();
  if (!options_.sharing.empty()) options.sharing = options_.sharing.c_str();
  if (!options_.rides.empty()) options.rides = options_.rides.c_str();
  options.memory = options_.memory;
  options.victims = options_.victims;
  options.bucket = options_.bucket;
  if (!options_.all_memory) {
    options.segments = &segment;
    options.segment_count = 1;
  }
  must(pinion_firehose_open(&options, &firehose_));
  heaps_ = gather(reinterpret_cast<std::uint64_t>(heap_));
  window_.resize(options_.window);
}

void Job::close() {
  must(pinion_firehose_close(firehose_));
  firehose_ = nullptr;
}

void Job::barrier() { must(pinion_firehose_barrier(firehose_)); }

void Job::exchange(const void* own, std::size_t bytes, void* all) {
  must(pinion_firehose_exchange(firehose_, own, bytes, all));
}

void Job::begin() {
  barrier();
  began_ns_ = now_ns(CLOCK_MONOTONIC);
  cpu_began_ns_ = now_ns(CLOCK_PROCESS_CPUTIME_ID);
}

void Job::end() {
  fence();
  cpu_seconds_ = static_cast<double>(now_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu_began_ns_) / 1e9;
  barrier();
  seconds_ = static_cast<double>(now_ns(CLOCK_MONOTONIC) - began_ns_) / 1e9;
}

bool Job::everywhere(bool here) {
  const std::vector<unsigned char> all = gather(static_cast<unsigned char>(here));
  return std::all_of(all.begin(), all.end(), [](unsigned char one) { return one != 0; });
}

std::map<std::string, double> Job::figures() {
  struct pinion_firehose_statistics s {};
  s.size = sizeof s;
  must(pinion_firehose_statistics(firehose_, &s));
  const Share own{s.puts,
                  s.gets,
                  s.atomics,
                  s.hits,
                  s.misses,
                  s.waited,
                  s.messaged,
                  s.moves,
                  s.refusals,
                  s.distinct_buckets,
                  s.bookkeeping_ns,
                  s.sampled_hits,
                  s.hit_ns,
                  s.timed_hits,
                  s.miss_ns,
                  s.timed_misses,
                  s.exposed_peak_bytes,
                  s.pins,
                  s.unpins,
                  s.pin_ns,
                  s.unpin_ns,
                  s.victim_hits,
                  s.recalls,
                  s.cut_off,
                  local_pins(s.pins),
                  seconds_,
                  cpu_seconds_};
  const std::vector<Share> shares = gather(own);
  const auto sum = [&](auto Share::*member) {
    double all = 0;
    for (const Share& share : shares) all += static_cast<double>(share.*member);
    return all;
  };
  const auto most = [&](auto Share::*member) {
    double all = 0;
    for (const Share& share : shares) all = std::max(all, static_cast<double>(share.*member));
    return all;
  };
  const Latencies latency = latencies();
  // Refused puts asked first, and went by message then.
  const double all_ways = sum(&Share::hits) + sum(&Share::misses) + sum(&Share::waited) +
                          sum(&Share::messaged) - sum(&Share::refusals);
  const double puts = sum(&Share::puts);
  return {{"puts", puts},
          {"gets", sum(&Share::gets)},
          {"atomics", sum(&Share::atomics)},
          {"seconds", most(&Share::seconds)},
          {"hits", sum(&Share::hits)},
          {"misses", sum(&Share::misses)},
          {"hit_rate", ratio(sum(&Share::hits), all_ways)},
          {"messaged", sum(&Share::messaged)},
          {"moves", sum(&Share::moves)},
          {"refusals", sum(&Share::refusals)},
          {"distinct_buckets", sum(&Share::distinct_buckets)},
          {"bookkeeping_ns", ratio(sum(&Share::bookkeeping_ns), sum(&Share::sampled_hits))},
          {"hit_us", ratio(sum(&Share::hit_ns), sum(&Share::timed_hits)) / 1000},
          {"miss_us", ratio(sum(&Share::miss_ns), sum(&Share::timed_misses)) / 1000},
          {"latency_us", latency.mean_us()},
          {"p99_us", latency.share_us(0.99)},
          {"pinned_bytes", most(&Share::exposed_peak_bytes)},
          {"pins", sum(&Share::pins)},
          {"unpins", sum(&Share::unpins)},
          {"victim_hits", sum(&Share::victim_hits)},
          {"victim_share", ratio(sum(&Share::victim_hits), sum(&Share::moves))},
          {"move_us", (ratio(sum(&Share::pin_ns), sum(&Share::pins)) +
                       ratio(sum(&Share::unpin_ns), sum(&Share::unpins))) /
                          1000},
          {"local_pins", sum(&Share::local_pins)},
          {"recalls", sum(&Share::recalls)},
          {"cut_off", sum(&Share::cut_off)},
          {"remote_cpu_us", ratio(sum(&Share::cpu_seconds) - shares[0].cpu_seconds, puts) * 1e6}};
}

Latencies Job::latencies() {
  Latencies sums;
  constexpr std::size_t kPart = 32;  // of 8 bytes: what an exchange carries
  for (std::size_t i = 0; i < Latencies::kSlots; i += kPart) {
    std::array<std::uint64_t, kPart> part{};
    std::copy_n(latencies_.counts().begin() + static_cast<std::ptrdiff_t>(i), kPart, part.begin());
    for (const auto& theirs : gather(part))
      for (std::size_t j = 0; j < kPart; ++j) sums.counts()[i + j] += theirs[j];
  }
  return sums;
}

void Job::put(unsigned to, std::size_t offset, const void* from, std::size_t bytes) {
  post(claim(to, offset, bytes), from);
}

void Job::put_word(unsigned to, std::size_t offset, std::uint64_t word) {
  Put& put = claim(to, offset, sizeof word);
  put.word = word;
  if (options_.scattered)
    put.under_way = true;
  else
    post(put, &put.word);
}

/// The words of the window that are for that peer.
void Job::put_together(unsigned to) {
  std::vector<pinion_firehose_piece> pieces;
  for (Put& put : window_) {
    if (!put.under_way || put.to != to) continue;
    pieces.push_back({&put.word, address(to, put.begin), sizeof put.word});
    put.under_way = false;
  }
  pinion_firehose_handle handle;
  must(pinion_firehose_put_v(firehose_, to, pieces.data(), pieces.size(), &handle));
  must(pinion_firehose_wait(firehose_, &handle));
}

Job::Put& Job::claim(unsigned to, std::size_t offset, std::size_t bytes) {
  // Puts under way are unordered: one to the same memory waits.
  for (Put& other : window_)
    if (other.under_way && other.to == to && other.begin < offset + bytes && offset < other.end)
      finish(other);
  Put& put = window_[next_++ % window_.size()];
  if (put.under_way) finish(put);
  put.to = to;
  put.begin = offset;
  put.end = offset + bytes;
  return put;
}

void Job::post(Put& put, const void* from) {
  const std::uint64_t target = address(put.to, put.begin);
  const std::size_t bytes = put.end - put.begin;
  if (options_.window > 1) {
    must(pinion_firehose_put_nb(firehose_, put.to, target, from, bytes, &put.handle));
    put.under_way = true;
    return;
  }
  const std::uint64_t began = now_ns(CLOCK_MONOTONIC);
  must(pinion_firehose_put(firehose_, put.to, target, from, bytes));
  latencies_.add(now_ns(CLOCK_MONOTONIC) - began);
}

void Job::finish(Put& put) {
  if (options_.scattered) return put_together(put.to);
  must(pinion_firehose_wait(firehose_, &put.handle));
  put.under_way = false;
}

void Job::fence() {
  for (Put& put : window_)
    if (put.under_way) finish(put);
}

void Job::get(unsigned from, std::size_t offset, void* to, std::size_t bytes) {
  must(pinion_firehose_get(firehose_, from, address(from, offset), to, bytes));
}

void Job::put_implicit(unsigned to, std::size_t offset, const void* from, std::size_t bytes) {
  must(pinion_firehose_put_nbi(firehose_, to, address(to, offset), from, bytes));
}

void Job::get_implicit(unsigned from, std::size_t offset, void* to, std::size_t bytes) {
  must(pinion_firehose_get_nbi(firehose_, from, address(from, offset), to, bytes));
}

void Job::end_implicit() { must(pinion_firehose_fence(firehose_)); }

std::uint64_t Job::compare_swap(unsigned to, std::size_t offset, std::uint64_t compare, std::uint64_t value) {
  std::uint64_t old = 0;
  must(pinion_firehose_atomic(firehose_, to, address(to, offset), sizeof old, PINION_FIREHOSE_COMPARE_SWAP,
                              value, compare, &old));
  return old;
}

std::uint64_t Job::add(unsigned to, std::size_t offset, std::uint64_t value) {
  std::uint64_t old = 0;
  must(pinion_firehose_atomic(firehose_, to, address(to, offset), sizeof old, PINION_FIREHOSE_ADD, value, 0,
                              &old));
  return old;
}

}  // namespace gas
