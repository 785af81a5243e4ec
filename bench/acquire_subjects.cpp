#include "bench/acquire_subjects.h"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <thread>
#include <unordered_map>

#include "bench/api.h"
#include "bench/parts.h"
#include "cli/run/log_directory.h"

namespace pinion::cli {

namespace {

/// A registration takes so long where retention weighs it; a hit makes no call.
constexpr Duration kRegistration = 20 * kMicrosecond;
/// Retention learns for so long that the ranges are used all the time.
constexpr Duration kWarmUp = kSecond;

int take_time(void* duration, void*, std::size_t, unsigned, pinion_registration*) {
  const Time end = monotonic_now() + *static_cast<const Duration*>(duration);
  while (*static_cast<const Duration*>(duration) > 0 && monotonic_now() < end) {
  }
  return 0;
}
int let_go(void*, std::uint64_t) { return 0; }

/// Each thread takes `step(range)` over its order, all at once; the mean of their ns. The best batch of a
/// thread alone; beside others their mean, since in its best batch they would rest.
template <class Step>
double by_threads_ns(const AcquireWork& work, Step step) {
  const std::size_t threads = work.orders.size();
  std::vector<double> ns(threads);
  std::atomic<std::size_t> ready{0};
  const auto run = [&](std::size_t who) {
    const std::vector<std::uint32_t>& order = work.orders[who];
    const auto one = [&](std::size_t i) { step(work.ranges[order[i]]); };
    ns_a_step(order.size(), one);
    ready.fetch_add(1);
    while (ready.load() != threads) StdAtomics::relax();
    ns[who] = at_depth(kBenchDepth, [&] {
      return threads == 1 ? best_ns_a_step(order.size(), one) : ns_a_step(order.size(), one);
    });
  };
  std::vector<std::thread> others;
  for (std::size_t who = 1; who < threads; ++who) others.emplace_back(run, who);
  run(0);
  for (std::thread& other : others) other.join();
  double sum = 0;
  for (const double one : ns) sum += one;
  return sum / static_cast<double>(threads);
}

}  // namespace

double measured_apart(const std::function<double()>& measure) {
  struct Answer {
    double ns = 0;
    char failure[256] = "it ended early";
  } answer;
  int pipe[2];
  if (::pipe(pipe) != 0) throw Failure("no pipe");
  const pid_t child = ::fork();
  if (child == 0) {
    try {
      answer.ns = measure();
      answer.failure[0] = 0;
    } catch (const std::exception& failure) {
      std::snprintf(answer.failure, sizeof answer.failure, "%s", failure.what());
    }
    ::_exit(::write(pipe[1], &answer, sizeof answer) == sizeof answer ? 0 : 1);
  }
  ::close(pipe[1]);
  Answer got;
  const bool whole = child > 0 && ::read(pipe[0], &got, sizeof got) == sizeof got;
  ::close(pipe[0]);
  if (child > 0) ::waitpid(child, nullptr, 0);
  if (!whole) throw Failure(answer.failure);
  if (got.failure[0] != 0) throw Failure(std::string(got.failure));
  return got.ns;
}

double c_api_ns(const AcquireWork& work, const std::string& retention, bool log) {
  return measured_apart([&] {
    const bool weighs = retention == "helper";
    Duration duration = weighs ? kRegistration : 0;
    pinion_device_operations operations{};
    operations.size = sizeof operations;
    operations.version = PINION_DEVICE_VERSION;
    operations.flags = PINION_DEVICE_PINS_NOTHING;
    operations.context = &duration;
    operations.register_memory = take_time;
    operations.deregister_memory = let_go;
    const auto directory = log ? std::make_unique<TemporaryLogDirectory>() : nullptr;
    const ApiDomain api("retention=" + retention + ",monitor=brackets" +
                            (directory ? ",log=" + directory->path() : std::string()),
                        &operations);
    for (const Range& range : work.ranges) api.use(range);
    std::atomic<int> failed{0};
    const auto step = [&](const Range& range) {
      pinion_lease lease;
      if (api.acquire(range, lease) != 0 || pinion_release(&lease) != 0)
        failed.store(1, std::memory_order_relaxed);
    };
    if (weighs)
      for (const Time end = monotonic_now() + kWarmUp; monotonic_now() < end;)
        for (const std::uint32_t index : work.orders[0]) step(work.ranges[index]);
    const double ns = by_threads_ns(work, step);
    if (failed.load() != 0) throw Failure("an acquire failed");
    return ns;
  });
}

bool has_peer(const OpenPeer& open, std::string& reason) {
  try {
    measured_apart([&] {
      std::string text;
      if (!open(false, text)) throw Failure(text);
      return 0.0;
    });
    return true;
  } catch (const Failure& failure) {
    reason = failure.what();
    return false;
  }
}

double get_and_put_ns(const OpenPeer& open, const AcquireWork& work) {
  return measured_apart([&] {
    std::string reason;
    const auto cache = open(work.orders.size() > 1, reason);
    if (!cache) throw Failure(reason);
    for (const Range& range : work.ranges) cache->get_and_put(range);
    return by_threads_ns(work, [&](const Range& range) { cache->get_and_put(range); });
  });
}

double hash_ns(const AcquireWork& work) {
  std::unordered_map<Address, std::uint32_t> table;
  for (std::size_t i = 0; i < work.ranges.size(); ++i)
    table[work.ranges[i].begin] = static_cast<std::uint32_t>(i);
  return by_threads_ns(work, [&](const Range& range) {
    const std::uint32_t found = table.find(range.begin)->second;
    asm volatile("" : : "r"(found));
  });
}

}  // namespace pinion::cli
