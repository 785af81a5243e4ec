#include "bench/firehose_hit.h"

#include <memory>
#include <unordered_map>
#include <vector>

#include "bench/ranges.h"
#include "firehose/initiator.h"

namespace pinion::cli {

namespace {

using firehose::Bucket;
using firehose::Firehose;
using firehose::Initiator;

constexpr std::size_t kSteps = 1 << 18;
constexpr std::size_t kBucketBytes = std::size_t{64} << 10;

/// A process that holds buckets 0 to `count` - 1 of a peer.
class Holder {
 public:
  explicit Holder(std::size_t count) : initiator_(1, static_cast<std::uint32_t>(count)) {
    for (Bucket bucket = 0; bucket < count; ++bucket) hold(bucket, static_cast<std::uint32_t>(count));
  }
  /// The bookkeeping of a put that hits: the use and its end.
  void hit(Bucket bucket) {
    Firehose* const used = initiator_.try_use(0, bucket);
    if (used != nullptr && initiator_.end_use(*used)) initiator_.drained(*used);
  }

 private:
  void hold(Bucket bucket, std::uint32_t limit) {
    firehose::Waiter waiter;
    const auto need = initiator_.need(0, bucket, waiter);
    if (need.what == Initiator::Need::hit)
      return static_cast<void>(initiator_.end_use(*need.firehose));  // it came with another one
    initiator_.flush();
    const auto sent = initiator_.next_message();
    if (!sent) return;
    const unsigned asked = std::get<firehose::Move>(sent->message).wanted.count;
    for (Bucket wanted = bucket; wanted < bucket + asked; ++wanted) {
      firehose::Answer answer;
      answer.limit = limit;
      const Address begin = wanted * kBucketBytes;
      answer.grants.add({{wanted, 1}, {{{begin, begin + kBucketBytes, begin, 1}}, 1}});
      initiator_.answer(0, answer);
      while (const firehose::Waiter* const answered = initiator_.next_answered())
        if (answered->firehose != nullptr) static_cast<void>(initiator_.end_use(*answered->firehose));
    }
  }

  Initiator initiator_;
};

}  // namespace

void measure_hits(Bench& bench) {
  for (const std::size_t count : {std::size_t{1} << 10, std::size_t{1} << 14, std::size_t{1} << 18}) {
    bench.step("bookkeeping of hits");
    Holder holder(count);
    std::unordered_map<Bucket, std::uint32_t> table;
    for (std::size_t i = 0; i < count; ++i) table[i * 7] = static_cast<std::uint32_t>(i);
    const auto order = BenchRanges::order(count, kSteps, 1);
    std::uint64_t sum = 0;
    bench.compare(
        "hit-" + size_name(count), "ns", "ns",
        {{"firehose", [&] { return best_ns_a_step(kSteps, [&](std::size_t i) { holder.hit(order[i]); }); }},
         {"hash",
          [&] {
            return best_ns_a_step(kSteps, [&](std::size_t i) { sum += table.find(order[i] * 7)->second; });
          }},
         {"two-atomic-pairs", [] { return 2 * atomic_pair_ns(kSteps); }}});
    asm volatile("" : : "r"(sum));
  }
}

}  // namespace pinion::cli
