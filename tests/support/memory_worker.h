// The threads of a random program: each picks places of the model, changes them, leases and really transfers
// them, holds leases over others' events, uses buffers on stacks, forks. A transfer must find the contents
// written last. Hooks and device calls are held up at random between their steps.
#pragma once

#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "memory_places.h"
#include "sanitizers.h"

namespace pinion::test {

// ---- pauses ----

/// Sometimes holds the calling thread up. In hooks too: no lock, no allocation.
inline void dawdle() {
  thread_local std::uint32_t state = static_cast<std::uint32_t>(ticks_now()) | 1;
  state = state * 1664525 + 1013904223;
  const std::uint32_t dice = state >> 24;
  if (dice < 24) ::sched_yield();
  if (dice < 8) {
    for (std::uint32_t spin = state >> 20; spin > 0; --spin) StdAtomics::relax();
  }
}
inline Answer dawdling_begin(const MemoryChange& change) {
  dawdle();
  const Answer answer = memory_events::begin(change);
  dawdle();
  return answer;
}
inline void dawdling_end(Range range) {
  dawdle();
  memory_events::end(range);
  dawdle();
}

// ---- the program ----

struct Counts {
  std::size_t steps = 0, events = 0;
  std::size_t transfers = 0, held_transfers = 0, blind = 0;
  std::size_t stacks = 0, forks = 0, child_engines = 0;
  std::size_t refused = 0;  ///< for want of room
  std::size_t crossed = 0;  ///< refused because the event that freed the address was not over yet

  static constexpr std::size_t Counts::*kAll[] = {
      &Counts::steps,  &Counts::events, &Counts::transfers,     &Counts::held_transfers, &Counts::blind,
      &Counts::stacks, &Counts::forks,  &Counts::child_engines, &Counts::refused,        &Counts::crossed};
  Counts& operator+=(const Counts& other) {
    for (const auto count : kAll) this->*count += other.*count;
    return *this;
  }
};

/// The state that threads share.
struct World {
  explicit World(const Options& options) : ring(options) {
    ring.device().at = [](TransferDevice::Moment, Range, Actor) { dawdle(); };
  }

  TransferEngine ring;
  std::vector<std::unique_ptr<Place>> places;
  std::vector<MappedPlace*> mappings;  ///< those of them that stay in place
  /// Held to fork a child that will start an engine: its locks must be free of other holders then.
  Place* library = nullptr;
  std::size_t most_pages = 0;  ///< of one transfer
  bool forks = false, stacks = false;
  std::atomic<bool> failed{false};
};

class Worker {
 public:
  Worker(World& world, unsigned seed) : world_(world), chance_(seed), wire_(world.most_pages * page_size()) {}

  Counts run(std::size_t steps) {
    while (counts_.steps < steps && !world_.failed.load(std::memory_order_relaxed)) {
      step();
      ++counts_.steps;
    }
    held_.clear();
    return counts_;
  }

 private:
  struct Held {
    TransferLease lease;
    Place* place;
    std::size_t from;
    Address begin;
    std::vector<std::uint64_t> epochs;
  };
  using Lock = std::unique_lock<std::mutex>;
  static constexpr std::size_t kMostHeld = 4;
  static constexpr std::size_t kTransfersPerFork = 512;
  static constexpr std::size_t kStepsPerStack = 256;

  CallSite site() { return 1 + chance_.below(6); }

  void step() {
    if (world_.stacks && chance_.one_in(kStepsPerStack)) return use_a_stack();
    const std::size_t dice = chance_.below(32);
    if (dice < 3 && !world_.mappings.empty()) return acquire_blindly();
    if (dice < 6 && !held_.empty()) return transfer_held();
    Lock lock;
    Place& place = lock_any(lock);
    const auto [from, to] = some_pages(place);
    if (from == to || dice < 17) {
      counts_.events += place.change(chance_);
    } else if (world_.forks && chance_.one_in(kTransfersPerFork)) {
      fork(place, from, to);
    } else if (dice < 20) {
      place.write(from, to, chance_);
    } else {
      transfer(place, from, to);
    }
  }

  Place& lock_any(Lock& lock) {
    for (;;) {
      Place& place = *world_.places[chance_.below(world_.places.size())];
      lock = Lock(place.mutex, std::try_to_lock);
      if (lock) return place;
    }
  }
  /// Mapped pages of the place, if it hits some; mostly few.
  std::pair<std::size_t, std::size_t> some_pages(const Place& place) {
    if (place.pages.empty()) return {};
    const std::size_t from = chance_.below(place.pages.size());
    const std::size_t most = std::min(world_.most_pages, place.pages.size() - from);
    return {from, place.mapped_until(from, from + 1 + chance_.below(1 + chance_.below(most)))};
  }

  // ---- transfers ----

  /// A lease on memory that others may be changing at this moment, and no transfer: it may be refused, but
  /// nobody may find its registration later where other memory is.
  void acquire_blindly() {
    const Place& place = *world_.mappings[chance_.below(world_.mappings.size())];
    const std::size_t from = chance_.below(place.pages.size());
    const std::size_t to = from + 1 + chance_.below(place.pages.size() - from);
    TransferLease lease = world_.ring.acquire(place.range(from, to), Access::all, site());
    ++counts_.blind;
    if (lease && chance_.one_in(4)) hold(std::move(lease));
  }

  TransferLease acquire(Place& place, std::size_t from, std::size_t to) {
    // Requests need not be whole pages; the transfer takes samples of all of them.
    const Address margin = page_size() / 4;
    const Range request{place.address(from) + chance_.below(margin),
                        place.address(to) - chance_.below(margin)};
    TransferLease lease = world_.ring.acquire(request, Access::all, site());
    if (!lease) {
      const int code = lease.error().code;
      if (code != ENOMEM && code != EAGAIN) fail(place, from, lease.error().message);
      ++(code == ENOMEM ? counts_.refused : counts_.crossed);
    }
    return lease;
  }

  void transfer(Place& place, std::size_t from, std::size_t to) {
    TransferLease lease = acquire(place, from, to);
    if (!lease) return;
    send_and_receive(lease, place, from, to);
    ++counts_.transfers;
    if (chance_.one_in(8)) hold(std::move(lease), &place, from, to);
  }

  /// `place` null: the lease is not used again.
  void hold(TransferLease lease, Place* place = nullptr, std::size_t from = 0, std::size_t to = 0) {
    if (held_.size() == kMostHeld) return;
    Held held{std::move(lease), place, from, place ? place->begin : 0, {}};
    for (std::size_t i = from; i < to; ++i) held.epochs.push_back(place->pages[i].epoch);
    held_.push_back(std::move(held));
  }

  /// Transfers the part of an earlier lease that is still the same memory; then the lease may go.
  void transfer_held() {
    const std::size_t at = chance_.below(held_.size());
    if (held_[at].place) {
      const Lock lock(held_[at].place->mutex, std::try_to_lock);
      if (!lock) return;
      transfer_what_is_left(held_[at]);
    }
    if (chance_.one_in(2)) {
      std::swap(held_[at], held_.back());
      held_.pop_back();
    }
  }
  void transfer_what_is_left(const Held& held) {
    Place& place = *held.place;
    const auto same = [&](std::size_t i) {
      return place.begin == held.begin && held.from + i < place.pages.size() &&
             place.pages[held.from + i].mapping && place.pages[held.from + i].epoch == held.epochs[i];
    };
    for (std::size_t i = 0; i < held.epochs.size();) {
      std::size_t end = i;
      while (end < held.epochs.size() && same(end)) ++end;
      if (end > i) {
        send_and_receive(held.lease, place, held.from + i, held.from + end);
        ++counts_.held_transfers;
      }
      i = end + 1;
    }
  }

  void send_and_receive(const TransferLease& lease, Place& place, std::size_t from, std::size_t to) {
    const Range range = place.range(from, to);
    place.settle(from, to, chance_);
    if (!expect(place, from, to, reinterpret_cast<const std::byte*>(range.begin),
                "the memory itself is wrong"))
      return;
    std::memset(wire_.data(), 0xa5, range.bytes());
    if (world_.ring.device().send(lease.key(), range, wire_, 0) != 0) return fail(place, from, "not sent");
    if (!expect(place, from, to, wire_.data(), "STALE: other contents were sent")) return;
    if (chance_.one_in(2)) return;
    place.stamp_at(wire_.data(), from, to, chance_);
    if (world_.ring.device().receive(lease.key(), range, wire_, 0) != 0)
      return fail(place, from, "not received");
    expect(place, from, to, reinterpret_cast<const std::byte*>(range.begin), "STALE: received elsewhere");
  }

  bool expect(const Place& place, std::size_t from, std::size_t to, const std::byte* bytes,
              const char* otherwise) {
    const std::size_t wrong = place.first_wrong(bytes, from, to);
    if (wrong < to) fail(place, wrong, otherwise);
    return wrong == to;
  }
  void fail(const Place& place, std::size_t page, const char* what) {
    if (world_.failed.exchange(true)) return;
    ADD_FAILURE() << what << ": page " << page << " of the " << place.kind() << " at "
                  << pointer(place.begin);
  }

  // ---- stacks ----

  /// A thread transfers a buffer on its stack; a lease on it may outlast the thread.
  void use_a_stack() {
    ++counts_.stacks;
    constexpr std::size_t kPages = 16;
    // libc keeps the stacks of ended threads up to a total, so that some go at once and some come again.
    const std::size_t stack = (std::size_t{1} << 20) << chance_.below(5);
    run_on_a_stack(stack, [&] {
      auto* const buffer = static_cast<std::byte*>(__builtin_alloca((kPages + 1) * page_size()));
      const Address begin = page_ceil(reinterpret_cast<Address>(buffer));
      StackPlace place({begin, begin + kPages * page_size()});
      for (std::size_t i = 1 + chance_.below(3); i > 0; --i) {
        const auto [from, to] = some_pages(place);
        TransferLease lease = acquire(place, from, to);
        if (!lease) continue;
        send_and_receive(lease, place, from, to);
        ++counts_.transfers;
        if (chance_.one_in(4)) hold(std::move(lease));
      }
      ++counts_.events;
    });
  }
  static void run_on_a_stack(std::size_t bytes, const std::function<void()>& body) {
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, bytes);
    pthread_t thread;
    const auto call = [](void* function) -> void* {
      (*static_cast<const std::function<void()>*>(function))();
      return nullptr;
    };
    must(pthread_create(&thread, &attributes, call, const_cast<std::function<void()>*>(&body)) == 0);
    pthread_attr_destroy(&attributes);
    must(pthread_join(thread, nullptr) == 0);
  }

  // ---- forks ----

  /// The child must find the contents of its beginning, although the parent writes and receives since. The
  /// parent's leases must stay right, although its pages are copied when either writes.
  void fork(Place& place, std::size_t from, std::size_t to) {
    TransferLease lease;
    if (chance_.one_in(2)) lease = acquire(place, from, to);
    // The memory that the child checks is at rest when it is made.
    std::vector<Place*> at_rest{&place};
    std::vector<Lock> locks;
    const auto rest = [&](Place& other) {
      if (&other == &place) return true;
      Lock lock(other.mutex, std::try_to_lock);
      if (!lock) return false;
      at_rest.push_back(&other);
      locks.push_back(std::move(lock));
      return true;
    };
    for (int i = 0; i < 3; ++i) rest(*world_.places[chance_.below(world_.places.size())]);
    // Sanitizers start no threads after a fork; nor does the dynamic linker, when it was busy.
    const bool with_engine =
        !kSanitized && !world_.failed && chance_.one_in(8) && may_start_engine(at_rest, rest);
    place.settle(from, to, chance_);

    const pid_t child = ::fork();
    must(child >= 0);
    if (child == 0) ::_exit(live_as_a_child(at_rest, with_engine, from, to));
    ++counts_.forks;
    counts_.child_engines += with_engine;
    if (chance_.one_in(2)) place.write(from, to, chance_);
    if (lease) send_and_receive(lease, place, from, to);
    lease.release();
    transfer(place, from, to);
    int status = -1;
    must(::waitpid(child, &status, 0) == child);
    if (WIFSIGNALED(status)) fail(place, from, ::strsignal(WTERMSIG(status)));
    if (WIFEXITED(status) && WEXITSTATUS(status) != 0) fail(place, from, kChildFailures[WEXITSTATUS(status)]);
  }
  template <class Rest>
  bool may_start_engine(const std::vector<Place*>& at_rest, Rest& rest) {
    const bool is_at_rest = std::find(at_rest.begin(), at_rest.end(), world_.library) != at_rest.end();
    return !world_.library || is_at_rest || rest(*world_.library);
  }

  static constexpr const char* kChildFailures[] = {"", "the child found other contents",
                                                   "the child could not transfer",
                                                   "STALE: the child sent other contents"};

  /// Without an engine only async-signal-safe calls.
  int live_as_a_child(const std::vector<Place*>& at_rest, bool with_engine, std::size_t from,
                      std::size_t to) {
    ::alarm(240);
    for (std::size_t i = chance_.below(8); i > 0; --i) ::sched_yield();
    for (const Place* place : at_rest) {
      if (!place->is_copied_at_fork()) continue;
      for (std::size_t i = 0; i < place->pages.size(); ++i) {
        if (place->pages[i].mapping && place->first_wrong(i, i + 1) == i) return 1;
      }
    }
    Place& place = *at_rest.front();
    if (!with_engine || !place.is_copied_at_fork()) return 0;
    TransferEngine ring(TransferEngine::options(RetentionKind::leave_pinned));
    const Wire wire(wire_.bytes());
    if (const int failure = send_as_a_child(ring, wire, place, from, to)) return failure;
    // Then of other memory at the same place; and where the parent's other threads were in the middle of a
    // change.
    for (MappedPlace* other : world_.mappings) {
      other->map_over();
      other->settle(0, other->pages.size(), chance_);
      if (const int failure = send_as_a_child(ring, wire, *other, 0, other->pages.size())) return failure;
    }
    return 0;
  }
  static int send_as_a_child(TransferEngine& ring, const Wire& wire, const Place& place, std::size_t from,
                             std::size_t to) {
    const TransferLease lease = ring.acquire(place.range(from, to));
    if (!lease || ring.device().send(lease.key(), place.range(from, to), wire, 0) != 0) return 2;
    return place.first_wrong(wire.data(), from, to) == to ? 0 : 3;
  }

  World& world_;
  Chance chance_;
  Wire wire_;
  std::vector<Held> held_;
  Counts counts_;
};

/// Lets `threads` of them run, and returns their counts.
inline Counts run_workers(World& world, unsigned threads, std::size_t steps) {
  Counts counts;
  std::mutex counting;
  std::vector<std::thread> running;
  for (unsigned i = 0; i < threads; ++i) {
    running.emplace_back([&, i] {
      const Counts mine = Worker(world, 1000 + i).run(steps);
      const std::lock_guard lock(counting);
      counts += mine;
    });
  }
  for (std::thread& thread : running) thread.join();
  const runlog::Counters engine = world.ring.counters();
  std::printf(
      "%zu steps, %zu events; checked: %zu transfers, %zu under older leases, %zu children (%zu with an "
      "engine); %zu stacks, %zu refused, %zu crossed, %zu blind; %llu hits, %llu registrations, %llu bytes "
      "at "
      "most\n",
      counts.steps, counts.events, counts.transfers, counts.held_transfers, counts.forks,
      counts.child_engines, counts.stacks, counts.refused, counts.crossed, counts.blind,
      static_cast<unsigned long long>(engine.hits), static_cast<unsigned long long>(engine.registrations),
      static_cast<unsigned long long>(engine.registered_peak_bytes));
  return counts;
}

}  // namespace pinion::test
