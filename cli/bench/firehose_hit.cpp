#include "cli/bench/firehose_hit.h"

#include <memory>
#include <unordered_map>
#include <vector>

#include "cli/bench/ranges.h"
#include "firehose/initiator.h"

namespace pinion::cli {

namespace {

using firehose::Bucket;
using firehose::Firehose;
using firehose::Initiator;

constexpr std::size_t kSteps = 1 << 18;
constexpr std::size_t kBucketBytes = std::size_t{64} << 10;

/// A process that holds buckets 0 to `count` - 1 of a peer.
class Holder final : firehose::InitiatorActions {
 public:
  explicit Holder(std::size_t count) : initiator_(1, static_cast<std::uint32_t>(count), *this) {
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
    initiator_.flush();
    if (need.what == Initiator::Need::hit)
      return granted(waiter, *need.firehose);  // it came with another one
    for (Bucket wanted = bucket; wanted < bucket + asked_; ++wanted) {
      firehose::Answer answer;
      answer.limit = limit;
      const Address begin = wanted * kBucketBytes;
      answer.grants.add({{wanted, 1}, {{{begin, begin + kBucketBytes, begin, 1}}, 1}});
      initiator_.answer(0, answer);
    }
  }
  void send(firehose::Peer, const firehose::Message& message) override {
    if (const auto* move = std::get_if<firehose::Move>(&message)) asked_ = move->wanted.count;
  }
  bool send_with(firehose::Peer, const firehose::Move&, firehose::Waiter&) override { return false; }
  void granted(firehose::Waiter&, Firehose& used) override { static_cast<void>(initiator_.end_use(used)); }
  void refused(firehose::Waiter&, int) override {}

  unsigned asked_ = 0;
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
