#include "intercept/mpi/call_leases.h"

#include <new>

namespace pinion::mpi {

void CallLeases::tell(int peer) {
  if (!told_) verbs::t_mpi_call = {0, nesting_.thread().sites->capture(entry_), kind_, peer};
  told_ = true;
}

void CallLeases::stamp() {
  point_.time = ticks_now();
  point_.site = nesting_.thread().sites->capture(entry_);
  point_.kind = kind_;
}

void CallLeases::acquire(Range range, Access access, int peer, Refusal refusal) {
  ThreadContext& thread = nesting_.thread();
  LeasePath& path = nesting_.lease_path();
  const std::size_t most = path.most_in_a_region(0);
  const auto point = [&]() -> const CallPoint& {
    if (point_.time == 0) stamp();
    point_.peer = peer;
    return point_;
  };
  for (;;) {
    Range part = range;
    if (part.bytes() > most) [[unlikely]]
      part.end = page_floor(part.begin) + most;
    Transfer& transfer =
        count_ < slots_.size() ? *new (&slots_[count_].transfer) Transfer : more_.emplace_back();
    if (path.acquire(thread, 0, point, part, access, transfer, refusal)) [[likely]]
      ++count_;
    else if (count_ >= slots_.size())
      more_.pop_back();
    if (part.end == range.end) return;
    range.begin = part.end;
  }
}

void CallLeases::acquire_arriving(Range posted, int peer, std::int64_t known) {
  LeasePath& path = nesting_.lease_path();
  if (!path.options().receives_arrived) return acquire(posted, Access::write, peer);
  stamp();
  point_.peer = peer;
  receive_.buffer = posted.begin;
  receive_.posted = posted.bytes();
  receive_.key = arrival_key(point_.site, peer, receive_.posted);
  receive_.point = point_;
  const std::uint64_t expected =
      known >= 0 ? static_cast<std::uint64_t>(known) : expected_arrival(receive_.key, receive_.posted);
  receive_.leased = std::min(expected, receive_.posted);
  if (receive_.leased < path.threshold()) receive_.leased = 0;
  if (receive_.leased > 0) acquire({posted.begin, posted.begin + receive_.leased}, Access::write, peer);
}

void CallLeases::repeat(const Remembered& remembered) {
  kind_ = remembered.kind;
  point_ = {};
  for (const Remembered::Use& use : remembered.uses) {
    if (!enter(-1)) return;
    if (use.is_receive) {
      acquire_arriving(use.range, use.peer, -1);
    } else {
      acquire(use.range, use.access, use.peer);
    }
  }
}

template <class Take>
void CallLeases::take_all(Take take) {
  const std::size_t in_slots = std::min(count_, slots_.size());
  for (std::size_t i = 0; i < in_slots; ++i) take(slots_[i].transfer);
  if (count_ > in_slots) [[unlikely]] {
    for (Transfer& transfer : more_) take(transfer);
    more_.clear();
  }
  count_ = 0;
}

void CallLeases::release() {
  take_all([&](Transfer& transfer) { nesting_.lease_path().release(nesting_.thread(), transfer); });
}

void CallLeases::move_to(Requests::Key request) {
  Requests::instance().hold(request, [&](Operation& operation) {
    take_all([&](Transfer& transfer) { operation.add(transfer); });
    operation.receive = receive_;
  });
  receive_ = {};
}

void CallLeases::move_to(Holdings& holdings, Holdings::Key object, std::uint64_t part) {
  take_all([&](Transfer& transfer) { holdings.hold(object, part, transfer); });
}

}  // namespace pinion::mpi
