#include "intercept/mpi/buffers.h"

#include <algorithm>
#include <new>
#include <type_traits>

#include "intercept/mpi/requests.h"

namespace pinion::mpi::PINION_MPI_ABI {

namespace {

/// Where the data of a type lie.
struct Layout {
  Aint extent = 0, true_lower = 0, true_extent = 0;

  explicit Layout(Datatype type) {
    Aint lower = 0;
    library().type_extent(type, &lower, &extent);
    library().type_true_extent(type, &true_lower, &true_extent);
  }
  /// From the first byte of `n` elements to the last. A negative extent walks downwards.
  Range hull(Address buffer, Aint n) const {
    const Aint last = (n - 1) * extent;
    const Address base = buffer + static_cast<Address>(true_lower);
    return {base + static_cast<Address>(std::min<Aint>(0, last)),
            base + static_cast<Address>(std::max<Aint>(0, last) + true_extent)};
  }
};

// Every MPI packs scattered data (copies it into one piece) instead of registering it. The gaps may belong to
// another allocation, or be unmapped.
bool scattered(Range hull, std::uint64_t data) {
  constexpr std::uint64_t kMostBytesPerByte = 2;
  return hull.bytes() / kMostBytesPerByte > data;
}

Range united(Range a, Range b) {
  return a.empty() ? b : Range{std::min(a.begin, b.begin), std::max(a.end, b.end)};
}

struct Matched {
  Message message;
  std::uint64_t bytes = kNothing;  ///< kNothing: none
};
thread_local Matched t_matched;

}  // namespace

void note_matched(Message message, std::uint64_t bytes) { t_matched = {message, bytes}; }

std::uint64_t Buffers::huge_bytes(Aint n, Datatype type) {
  Count size = 0;
  if (!library().type_size_x || library().type_size_x(type, &size) != kSuccess || size < 0) return 0;
  return static_cast<std::uint64_t>(size) * static_cast<std::uint64_t>(n);
}

// ---- which bytes ----

void Buffers::use(const void* buffer, Aint n, Datatype type, Access access, int other) {
  const Range hull = Layout(type).hull(reinterpret_cast<Address>(buffer), n);
  if (!scattered(hull, bytes_of(n, type))) lease(hull, access, other);
}

void Buffers::use_received(void* buffer, Aint n, Datatype type, int source, std::int64_t known) {
  const std::uint64_t data = bytes_of(n, type);
  const Range hull = Layout(type).hull(reinterpret_cast<Address>(buffer), n);
  if (scattered(hull, data)) return;
  // With gaps, the number of bytes leaves their places open.
  if (hull.bytes() == data) {
    lease_received(hull, source, known);
  } else {
    lease(hull, Access::write, source);
  }
}

void Buffers::use_matched(void* buffer, Aint n, Datatype type, Message message) {
  const bool known = t_matched.bytes != kNothing && t_matched.message == message;
  use_received(buffer, n, type, kAll, known ? static_cast<std::int64_t>(t_matched.bytes) : -1);
}

template <class N, class D>
void Buffers::use_blocks(const void* buffer, const N* counts, const D* offsets, Aint blocks, Datatype type,
                         Access access) {
  if (buffer == kInPlace || least_ == kNothing || !counts || !offsets) return;
  const Aint n = sum_of(counts, blocks);
  if (!reaches(n, type)) return;
  const Layout layout(type);
  const auto hull_of = [&](Aint i) {
    const Aint offset = static_cast<Aint>(offsets[i]) * layout.extent;
    return layout.hull(reinterpret_cast<Address>(buffer) + static_cast<Address>(offset),
                       static_cast<Aint>(counts[i]));
  };
  Range all{};
  for (Aint i = 0; i < blocks; ++i)
    if (counts[i] > 0) all = united(all, hull_of(i));
  if (!scattered(all, bytes_of(n, type))) return lease(all, access, kAll);
  for (Aint i = 0; i < blocks; ++i) {
    const std::uint64_t data = bytes_of(static_cast<Aint>(counts[i]), type);
    if (data < least_) continue;
    const Range one = hull_of(i);
    if (!scattered(one, data)) lease(one, access, kAll);
  }
}

template <class N, class D>
void Buffers::use_typed(const void* buffer, const N* counts, const D* offsets, const Datatype* types,
                        Aint blocks, Access access) {
  if (buffer == kInPlace || least_ == kNothing || !counts || !offsets || !types) return;
  std::uint64_t data = 0;
  for (Aint i = 0; i < blocks; ++i) data += bytes_of(static_cast<Aint>(counts[i]), types[i]);
  if (data < least_) return;
  const auto hull_of = [&](Aint i) {
    return Layout(types[i]).hull(
        reinterpret_cast<Address>(buffer) + static_cast<Address>(static_cast<Aint>(offsets[i])),
        static_cast<Aint>(counts[i]));
  };
  Range all{};
  for (Aint i = 0; i < blocks; ++i)
    if (bytes_of(static_cast<Aint>(counts[i]), types[i]) > 0) all = united(all, hull_of(i));
  if (!scattered(all, data)) return lease(all, access, kAll);
  for (Aint i = 0; i < blocks; ++i) {
    const std::uint64_t part = bytes_of(static_cast<Aint>(counts[i]), types[i]);
    if (part < least_) continue;
    const Range one = hull_of(i);
    if (!scattered(one, part)) lease(one, access, kAll);
  }
}

// The kinds of counts and displacements that MPI has.
#define PINION_INSTANTIATE(N, D)                                                              \
  template void Buffers::use_blocks(const void*, const N*, const D*, Aint, Datatype, Access); \
  template void Buffers::use_typed(const void*, const N*, const D*, const Datatype*, Aint, Access);
PINION_INSTANTIATE(int, int)
PINION_INSTANTIATE(int, Aint)
PINION_INSTANTIATE(Count, Aint)
#undef PINION_INSTANTIATE

// ---- leases ----

bool Buffers::enter() {
  nesting_used_ = true;
  if (!nesting_.enter()) return false;
  if (!nesting_.leases().acts_below()) return true;
  if (!told_) verbs::t_mpi_call = {0, nesting_.thread().sites->capture(entry_), kind_, peer_};
  told_ = true;
  return false;
}

bool Buffers::is_left_out(int other) {
  if (!node_is_known()) return false;
  switch (party_) {
    case Party::communicator:
      if (!may_ask(comm_)) return true;
      return other == kAll ? all_on_this_node(comm_) : on_this_node(comm_, other);
    case Party::window:
      if (!may_ask(KnownHandles::windows(), key_of(win_))) return true;
      return peer_ >= 0 ? target_on_this_node(win_, peer_) : all_targets_on_this_node(win_);
    case Party::none:
      break;
  }
  return false;
}

void Buffers::acquire(Range range, Access access, int peer, Refusal refusal) {
  const std::size_t most = nesting_.leases().most_in_a_region(0);
  while (range.bytes() > most) [[unlikely]] {
      const Address cut = page_floor(range.begin) + most;
      acquire_part({range.begin, cut}, access, peer, refusal);
      range.begin = cut;
    }
  acquire_part(range, access, peer, refusal);
}

void Buffers::acquire_part(Range range, Access access, int peer, Refusal refusal) {
  ThreadContext& thread = nesting_.thread();
  Transfer& transfer =
      count_ < slots_.size() ? *new (&slots_[count_].transfer) Transfer : more_.emplace_back();
  ++count_;
  if (nesting_.leases().lease_in_arena(thread, 0, range, access, transfer)) return;
  thread.recent.prefetch(range.begin);
  if (point_.time == 0) {
    point_.time = ticks_now();
    point_.site = thread.sites->capture(entry_);
    point_.kind = kind_;
  }
  point_.peer = peer;
  if (!nesting_.leases().acquire(thread, 0, point_, range, access, transfer, refusal)) {
    --count_;
    if (count_ >= slots_.size()) more_.pop_back();
  }
}

void Buffers::lease(Range range, Access access, int other) {
  if (is_left_out(other)) return;
  const int peer = other == kAll ? peer_ : other;
  if (remembered_) {
    remembered_->uses.push_back({range, access, peer, false});
  } else if (enter()) {
    acquire(range, access, peer);
  }
}

void Buffers::lease_received(Range range, int source, std::int64_t known) {
  if (is_left_out(source)) return;
  const int peer = source == kAll ? peer_ : source;
  if (remembered_) {
    remembered_->uses.push_back({range, Access::write, peer, true});
    return;
  }
  if (!enter()) return;
  if (!nesting_.leases().options().receives_arrived) return acquire(range, Access::write, peer);
  point_.time = ticks_now();
  point_.site = nesting_.thread().sites->capture(entry_);
  point_.kind = kind_;
  point_.peer = peer;
  receive_.buffer = range.begin;
  receive_.posted = range.bytes();
  receive_.key = arrival_key(point_.site, peer, receive_.posted);
  receive_.point = point_;
  const std::uint64_t expected =
      known >= 0 ? static_cast<std::uint64_t>(known) : expected_arrival(receive_.key, receive_.posted);
  receive_.leased = std::min(expected, receive_.posted);
  if (receive_.leased < nesting_.leases().threshold()) receive_.leased = 0;
  if (receive_.leased > 0) acquire({range.begin, range.begin + receive_.leased}, Access::write, peer);
}

void Buffers::exposes(void* memory, Aint bytes) {
  if (bytes <= 0 || static_cast<std::uint64_t>(bytes) < least_ || is_left_out(kAll) || !enter()) return;
  const auto begin = reinterpret_cast<Address>(memory);
  // Memory that cannot be registered costs nothing here: each transfer to it would be copied by itself.
  acquire({begin, begin + static_cast<Address>(bytes)},
          Access::write | Access::remote_read | Access::remote_write, peer_, Refusal::report);
}

void Buffers::repeat(const Remembered& remembered) {
  kind_ = remembered.kind;
  point_ = {};
  for (const Remembered::Use& use : remembered.uses) {
    if (use.is_receive) {
      lease_received(use.range, use.peer, -1);
    } else if (enter()) {
      acquire(use.range, use.access, use.peer);
    }
  }
}

template <class Take>
void Buffers::take_leases(Take take) {
  for (std::size_t i = 0; i < std::min(count_, slots_.size()); ++i) take(slots_[i].transfer);
  for (Transfer& transfer : more_) take(transfer);
  count_ = 0;
  more_.clear();
}

void Buffers::start_over() {
  release();
  receive_ = {};
  if (remembered_) remembered_->uses.clear();
  called_ = true;
}

void Buffers::release() {
  take_leases([&](Transfer& transfer) { nesting_.leases().release(nesting_.thread(), transfer); });
}

void Buffers::move_to(Request request) {
  // Nothing went under way.
  if (request == library().request_null) return;
  Operation operation;
  take_leases([&](Transfer& transfer) { operation.add(transfer); });
  operation.receive = receive_;
  receive_ = {};
  Requests::instance().hold(key_of(request), std::move(operation));
}

void Buffers::move_to(Holdings& holdings, std::uintptr_t object, std::uint64_t part) {
  take_leases([&](Transfer& transfer) { holdings.hold(object, part, transfer); });
}

}  // namespace pinion::mpi::PINION_MPI_ABI
