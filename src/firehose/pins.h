// Registrations for peers: buckets of this process's memory, each held in the registry
// (process/peer_memory.h). Owns the holds.
//
// pin() and unpin(): the agent's thread, they block. may_be_pinned(): any thread, hooks too; a bucket counts
// from before its registration, so that no event passes between.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <unordered_map>

#include "base/error.h"
#include "firehose/bucket.h"
#include "firehose/messages.h"
#include "process/peer_memory.h"

struct pinion_domain;

namespace pinion::firehose {

class Pins {
 public:
  Pins(pinion_domain* domain, BucketSize size) : domain_(domain), size_(size) {}

  /// Registers the bucket's memory within `exposed`, which may be empty: EPERM. Where it has holes, the
  /// longest parts that are mapped and writable.
  Error pin(Bucket bucket, Range exposed, RemoteParts& parts);
  /// Whether pin() would register that memory now.
  static bool would_pin(Range exposed, Range memory);
  void unpin(Bucket bucket);
  /// All that are left.
  void unpin_all();

  /// Whether a bucket of the range may be registered: never a false no.
  bool may_be_pinned(Range range) const;
  /// Whether a bucket of the range is registered; the agent's thread.
  bool is_pinned(Range range) const;
  std::uint64_t bytes() const { return bytes_.load(std::memory_order_relaxed); }
  std::uint64_t peak_bytes() const { return peak_.load(std::memory_order_relaxed); }

 private:
  static constexpr std::size_t kCounts = 1 << 14;
  using Holds = List<peer_memory::Hold, kMostParts>;

  Error hold(Range pages, Holds& holds, RemoteParts& parts);
  static std::uint64_t bytes_of(const Holds& holds);
  void count(Bucket bucket, int by);
  std::atomic<std::uint32_t>& count_of(Bucket bucket) {
    return counts_[(bucket * 0x9E3779B97F4A7C15u) >> 50];
  }
  const std::atomic<std::uint32_t>& count_of(Bucket bucket) const {
    return const_cast<Pins*>(this)->count_of(bucket);
  }

  pinion_domain* const domain_;
  const BucketSize size_;
  std::unordered_map<Bucket, Holds> holds_;  ///< the agent's
  std::atomic<std::uint64_t> bytes_{0}, peak_{0};
  std::atomic<std::uint32_t> all_{0};
  std::array<std::atomic<std::uint32_t>, kCounts> counts_{};  ///< pinned buckets, by hash
};

}  // namespace pinion::firehose
