#include "intercept/mpi/call_leases.h"

#include "intercept/mpi/awaited.h"

namespace pinion::mpi {

void CallLeases::tell(int peer) {
  if (!told_) verbs::t_mpi_call = {0, nesting_.thread().sites->capture(entry_), kind_, peer};
  told_ = true;
}

const CallPoint& CallLeases::point(int peer) {
  if (!stamped_) point_ = {ticks_now(), nesting_.thread().sites->capture(entry_), kind_, -1};
  stamped_ = true;
  point_.peer = peer;
  return point_;
}

bool CallLeases::lease_counted(LeasePath::Quick quick, Range range, Access access, bool arriving) {
  LeasePath& path = nesting_.lease_path();
  if (quick == LeasePath::Quick::counted)
    quick = path.lease_counted(nesting_.thread(), 0, range, access, newest());
  if (quick == LeasePath::Quick::rest) path.end_refused(nesting_.thread(), 0, range.begin, newest());
  return quick == LeasePath::Quick::done && leased(range, arriving);
}

Transfer& CallLeases::place_for_lease() {
  ThreadLeases& leases = t_leases;
  if (count_ >= leases.slots.size()) {
    if (leases.more == nullptr) leases.more = new std::vector<Transfer>;
    leases.more->resize(count_ - leases.slots.size() + 1);
  }
  return leases.at(count_);
}

void CallLeases::acquire(Range range, Access access, int peer, Refusal refusal) {
  if (lease_quickly(range, access)) return;
  ThreadContext& thread = nesting_.thread();
  LeasePath& path = nesting_.lease_path();
  const std::size_t most = path.most_in_a_region(0);
  const auto call = [&]() -> const CallPoint& { return point(peer); };
  for (;;) {
    Range part = range;
    if (part.bytes() > most) [[unlikely]]
      part.end = page_floor(part.begin) + most;
    if (path.lease(thread, 0, call, part, access, place_for_lease(), refusal)) [[likely]]
      count(count_ + 1);
    if (part.end == range.end) return;
    range.begin = part.end;
  }
}

void CallLeases::acquire_arriving(Range posted, int peer, std::int64_t known) {
  LeasePath& path = nesting_.lease_path();
  if (!path.options().receives_arrived) return acquire(posted, Access::write, peer);
  if (lease_quickly(posted, Access::write, true)) return;
  const std::uint64_t bytes = receive_.begin_expected(path, posted, point(peer), known);
  if (bytes > 0) acquire({posted.begin, posted.begin + bytes}, Access::write, peer);
}

void CallLeases::repeat(const Remembered& remembered) {
  kind_ = remembered.kind;
  stamped_ = false;
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
[[gnu::always_inline]] inline void CallLeases::take_all(Take take) {
  if (!nesting_.holds()) return;
  for (std::size_t at = 0; at < count_; ++at) take(t_leases.at(at));
  count(0);
}

namespace {

/// The run may have ended during the call.
void give_back(ThreadContext& thread, LeasePath& path, Transfer& lease) {
  if (&path == LeasePath::running()) [[likely]]
    return path.release_in_line(thread, lease);
  path.release_after_run(lease);
}

}  // namespace

void CallLeases::release() {
  if (!nesting_.holds()) return;
  while (count_ > 0) {
    count(count_ - 1);
    give_back(nesting_.thread(), nesting_.lease_path(), t_leases.at(count_));
  }
}

void end_call_left_behind(ThreadContext& thread) {
  verbs::t_mpi_call = {};
  ThreadLeases& leases = t_leases;
  while (leases.count > 0) give_back(thread, *leases.path, leases.at(--leases.count));
  t_awaited.end_left_behind(thread);
}

void CallLeases::move_to(Requests::Key request) {
  if (is_over()) return start_over();
  Requests::instance().hold(request, [&](Operation& operation) {
    take_all([&](Transfer& transfer) { operation.add(transfer); });
    if (awaits_length()) operation.receive = receive_;
  });
  receive_ = {};
}

void CallLeases::move_to(Holdings& holdings, Holdings::Key object, std::uint64_t part) {
  if (is_over()) return release();
  take_all([&](Transfer& transfer) { holdings.hold(object, part, transfer); });
}

}  // namespace pinion::mpi
