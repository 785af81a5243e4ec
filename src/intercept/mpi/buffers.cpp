#include "intercept/mpi/buffers.h"

#include <algorithm>
#include <new>
#include <type_traits>

#include "intercept/mpi/layouts.h"
#include "intercept/mpi/requests.h"

namespace pinion::mpi::PINION_MPI_ABI {

namespace {

// Every MPI packs scattered data (copies it into one piece) instead of registering it.
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

/// `n` elements of a type at an address.
struct Buffers::Elements {
  Address at;
  Aint n;
  Datatype type;
  Layout layout;
  std::uint64_t data;  ///< its bytes

  Range hull() const { return layout.hull(at, n); }
  bool have_gaps() const { return hull().bytes() != data; }
  void add_to(Touched& touched) const {
    if (!have_gaps()) return touched.add(hull(), data);
    if (const Runs runs = runs_of(type, layout)) return touched.add(at, *runs, n, layout.extent);
    touched.give_up();
  }
};

void note_matched(Message message, std::uint64_t bytes) { t_matched = {message, bytes}; }

std::uint64_t Buffers::huge_bytes(Aint n, Datatype type) {
  Count size = 0;
  if (!library().type_size_x || library().type_size_x(type, &size) != kSuccess || size < 0) return 0;
  return static_cast<std::uint64_t>(size) * static_cast<std::uint64_t>(n);
}

// ---- which bytes ----

void Buffers::use(const void* buffer, Aint n, Datatype type, Access access, int other) {
  const Elements elements{reinterpret_cast<Address>(buffer), n, type, Layout(type), bytes_of(n, type)};
  if (!elements.have_gaps()) return lease(elements.hull(), access, other);
  use_with_gaps(elements, access, other);
}

void Buffers::use_received(void* buffer, Aint n, Datatype type, int source, std::int64_t known) {
  const Elements elements{reinterpret_cast<Address>(buffer), n, type, Layout(type), bytes_of(n, type)};
  if (!elements.have_gaps()) return lease_received(elements.hull(), source, known);
  // With gaps, the number of bytes leaves their places open.
  use_with_gaps(elements, Access::write, source);
}

[[gnu::noinline]] void Buffers::use_with_gaps(const Elements& elements, Access access, int other) {
  if (!will_lease(other)) return;
  Touched touched;
  elements.add_to(touched);
  lease_touched(touched, elements.hull(), elements.data, access, other);
}

bool Buffers::pays(Range range, std::uint64_t data) const {
  return data >= least_ && !scattered(range, data);
}

bool Buffers::lease_touched(Touched& touched, Range hull, std::uint64_t data, Access access, int other) {
  const auto ranges = touched.ranges();
  const auto pays_for_itself = [&](const Touched::Piece& piece) { return pays(piece.range(), piece.data); };
  const bool all_pay = touched.known() && std::all_of(ranges.begin(), ranges.end(), pays_for_itself);
  // One region costs less than many small ones.
  if (!all_pay && !scattered(hull, data)) {
    lease_at_once(hull, access, other);
    return true;
  }
  for (const Touched::Piece& piece : ranges)
    if (pays_for_itself(piece)) lease_at_once(piece.range(), access, other);
  return touched.known();
}

void Buffers::use_matched(void* buffer, Aint n, Datatype type, Message message) {
  const bool known = t_matched.bytes != kNothing && t_matched.message == message;
  use_received(buffer, n, type, kAll, known ? static_cast<std::int64_t>(t_matched.bytes) : -1);
}

template <class BlockOf>
void Buffers::use_each(Aint blocks, BlockOf block, Access access) {
  Range all{};
  std::uint64_t data = 0;
  bool have_gaps = false;
  for (Aint i = 0; i < blocks; ++i) {
    const Elements one = block(i);
    if (one.data == 0) continue;
    all = united(all, one.hull());
    data += one.data;
    have_gaps = have_gaps || one.have_gaps();
  }
  if (have_gaps) {
    if (!will_lease(kAll)) return;
    Touched touched;
    for (Aint i = 0; i < blocks && touched.known(); ++i)
      if (const Elements one = block(i); one.data > 0) one.add_to(touched);
    if (lease_touched(touched, all, data, access, kAll)) return;
  } else if (!scattered(all, data)) {
    return lease(all, access, kAll);
  }
  for (Aint i = 0; i < blocks; ++i)
    if (const Elements one = block(i); one.data > 0 && pays(one.hull(), one.data))
      lease(one.hull(), access, kAll);
}

template <class N, class D>
void Buffers::use_blocks(const void* buffer, const N* counts, const D* offsets, Aint blocks, Datatype type,
                         Access access) {
  if (buffer == kInPlace || least_ == kNothing || !counts || !offsets) return;
  if (!reaches(sum_of(counts, blocks), type)) return;
  const Layout layout(type);
  const std::uint64_t bytes = bytes_of(1, type);
  const auto block = [&](Aint i) {
    const auto n = static_cast<Aint>(counts[i]);
    const Aint offset = static_cast<Aint>(offsets[i]) * layout.extent;
    return Elements{reinterpret_cast<Address>(buffer) + static_cast<Address>(offset), n, type, layout,
                    n > 0 ? static_cast<std::uint64_t>(n) * bytes : 0};
  };
  use_each(blocks, block, access);
}

template <class N, class D>
void Buffers::use_typed(const void* buffer, const N* counts, const D* offsets, const Datatype* types,
                        Aint blocks, Access access) {
  if (buffer == kInPlace || least_ == kNothing || !counts || !offsets || !types) return;
  std::uint64_t data = 0;
  for (Aint i = 0; i < blocks; ++i) data += bytes_of(static_cast<Aint>(counts[i]), types[i]);
  if (data < least_) return;
  const auto block = [&](Aint i) {
    const auto n = static_cast<Aint>(counts[i]);
    const std::uint64_t bytes = bytes_of(n, types[i]);
    return Elements{reinterpret_cast<Address>(buffer) + static_cast<Address>(static_cast<Aint>(offsets[i])),
                    n, types[i], bytes > 0 ? Layout(types[i]) : Layout(), bytes};
  };
  use_each(blocks, block, access);
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
  const auto point = [&]() -> const CallPoint& {
    thread.recent.prefetch(range.begin);
    if (point_.time == 0) {
      point_.time = ticks_now();
      point_.site = thread.sites->capture(entry_);
      point_.kind = kind_;
    }
    point_.peer = peer;
    return point_;
  };
  if (!nesting_.leases().acquire(thread, 0, point, range, access, transfer, refusal)) {
    --count_;
    if (count_ >= slots_.size()) more_.pop_back();
  }
}

bool Buffers::will_lease(int other) { return !is_left_out(other) && (remembered_ || enter()); }

void Buffers::lease(Range range, Access access, int other) {
  if (!is_left_out(other)) lease_at_once(range, access, other);
}

void Buffers::lease_at_once(Range range, Access access, int other) {
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
