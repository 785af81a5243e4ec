// `pinion bench queue`: the ring from an application thread to the helper, beside a queue under a mutex.
#include <deque>
#include <mutex>
#include <thread>

#include "base/ring.h"
#include "bench/bench.h"
#include "bench/ranges.h"
#include "retention/record.h"

namespace pinion::cli {

namespace {

constexpr std::size_t kSteps = 200'000;

using RecordRing = Ring<Record, 256>;

class MutexQueue {
 public:
  void push(const Record& record) {
    std::lock_guard lock(mutex_);
    records_.push_back(record);
  }
  bool pop(Record& record) {
    std::lock_guard lock(mutex_);
    if (records_.empty()) return false;
    record = records_.front();
    records_.pop_front();
    return true;
  }

 private:
  std::mutex mutex_;
  std::deque<Record> records_;
};

template <class Queue>
double alone_ns() {
  auto queue = std::make_unique<Queue>();
  Record record, out;
  return ns_a_step(kSteps, [&](std::size_t i) {
    record.begin = i;
    queue->push(record);
    queue->pop(out);
  });
}

/// The cost of a push while another thread drains as fast as it can.
template <class Queue>
double drained_ns() {
  auto queue = std::make_unique<Queue>();
  std::atomic<bool> stop{false};
  std::thread helper([&] {
    Record out;
    while (!stop.load(std::memory_order_relaxed)) {
      if (!queue->pop(out)) StdAtomics::relax();
    }
  });
  Record record;
  const double ns = ns_a_step(kSteps, [&](std::size_t i) {
    record.begin = i;
    queue->push(record);
  });
  stop.store(true);
  helper.join();
  return ns;
}

void run(Bench& bench) {
  bench.note("A full ring refuses the record: learning is lost, the pushing thread never waits.");
  bench.compare("push-pop", "ns", "ns", {{"pinion", alone_ns<RecordRing>}, {"mutex", alone_ns<MutexQueue>}});
  bench.compare("push-while-drained", "ns", "ns",
                {{"pinion", drained_ns<RecordRing>}, {"mutex", drained_ns<MutexQueue>}});
}

const BenchRegistration registration{"queue", "The ring between an application thread and the helper", run};

}  // namespace

}  // namespace pinion::cli
