#include "bench/metrics.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace pinion::cli {

namespace {

constexpr std::pair<const char*, const char*> kMeanings[] = {
    // Most benches
    {"ns", "time of the case's work, once"},
    {"us", "time of the case's work, once"},
    {"ms", "time of the case's work, once"},
    {"s", "time of the whole program"},
    {"hit_rate", "puts that found their target registered"},
    {"seconds", "of the whole work"},
    // transfers, firehose
    {"latency_us", "half a round trip; of firehose: a put, until it is delivered"},
    {"learning_us", "latency_us of the messages before, while retention learns"},
    {"bandwidth_MBps", "four messages at a time, one way"},
    {"cpu_us", "processor time of the sender, its helper and progress thread included"},
    {"remote_cpu_us", "processor time of the receiver, or of a put's target"},
    {"registered_peak_bytes", "most that the sender had registered at once"},
    {"registered_mean_bytes", "what the sender had registered, averaged over time"},
    // firehose
    {"puts", "of all processes together"},
    {"misses", "puts that waited for a registration at their target"},
    {"distinct_buckets", "buckets of its target that a process put to"},
    {"p99_us", "the 99th percentile of a put's time"},
    {"hit_us", "a put that found its target registered"},
    {"miss_us", "a put that did not"},
    {"miss_of_hit", "miss_us divided by hit_us"},
    {"bookkeeping_ns", "time of firehose's own work for a hit"},
    {"victim_hits", "moves to a bucket that was still in the FIFO of victims"},
    {"victim_share", "moves to a bucket that was still in the FIFO of victims"},
    {"moves", "firehoses moved to another bucket"},
    {"move_us", "time of a move"},
    {"unpins", "buckets unpinned"},
    {"local_pins", "registrations of a put's own source"},
    {"pinned_bytes", "most that a process had registered for its peers"},
    {"copied_share", "puts whose data a message carried"},
    {"handshakes", "round trips for a put, beside it"},
    {"full_memory", "all memory of a process can be put to"},
    // gather
    {"post_ns", "until the operations are posted"},
    {"complete_ns", "from then until they are complete"},
    {"of_one", "time, divided by that of one piece of as many bytes as one of them"},
    {"post_of_one", "time of posting, divided by that of one such piece"},
    {"of_better", "time, divided by that of the faster of in-place and packed"},
    {"spread", "slowest offset over the fastest, less one"},
    // p2p
    {"switches", "context switches of rank 0's thread"},
    {"helper-switches", "context switches of its helper"},
    {"helper-ns", "processor time of its helper"},
    {"of-leave-pinned", "ns, divided by that of leave-pinned in the same round"},
    {"of-none", "ns, divided by that without Pinion in the same round"},
    // placement
    {"cpu_ns", "processor time of a step"},
    {"cpu_s", "processor time of the program"},
    {"resident_peak", "most memory that the process had resident"},
    {"computation_s", "rank 0 outside of MPI calls, from MPI_Init to MPI_Finalize"},
    {"communication_s", "rank 0 in MPI calls, registrations included"},
    {"page_faults", "of all processes, as the kernel counts them"},
    {"tlb_misses", "loads that missed the data TLB, of all processes"},
    // prereg
    {"saved", "of the fastest way without the arena"},
    {"saved_of_offloaded", "of the paper's baseline"},
    {"faster_than_on-demand", "times"},
    {"faster_than_unfaulted", "times"},
    // registration
    {"extents", "pieces of contiguous physical memory"},
    {"deregister_us", "time of the deregistration"},
};

/// Parts of names that go with others: of `prepare`, mmap_p99_us.
constexpr std::pair<const char*, const char*> kEndings[] = {
    {"_p50_us", "the median of another thread's calls meanwhile"},
    {"_p99_us", "the 99th percentile of another thread's calls meanwhile"},
    {"_max_us", "the longest of another thread's calls meanwhile"},
};

}  // namespace

std::string meaning_of(const std::string& metric) {
  for (const auto& [name, meaning] : kMeanings)
    if (metric == name) return meaning;
  for (const auto& [ending, meaning] : kEndings)
    if (metric.ends_with(ending)) return meaning;
  return "";
}

}  // namespace pinion::cli
