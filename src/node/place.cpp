#include "node/place.h"

#include <sched.h>
#include <time.h>

#include <algorithm>
#include <random>

namespace pinion::node {

namespace {

constexpr Duration kAtLeastEvery = 200 * kMillisecond;
/// A look costs some 20 us where 64 processes are.
constexpr Duration kAtMostEvery = 10 * kMillisecond, kAtMostEveryIfShort = kMillisecond;
/// A shortage that lasts is posted again by each transfer that meets it.
constexpr Duration kShortagesLast = kSecond;

std::uint64_t drawn() {
  std::random_device random;
  return std::uint64_t{random()} << 32 | random();
}

/// The kernel's, for a thread like the calling one.
TimeSlices time_slices() {
  TimeSlices slices;
  timespec slice{};
  if (::sched_rr_get_interval(0, &slice) == 0 && (slice.tv_sec || slice.tv_nsec))
    slices.slice = slice.tv_sec * kSecond + slice.tv_nsec;
  return slices;
}

}  // namespace

Place::Place(const Settings& settings)
    : settings_(settings), cores_(Cores::of_this_machine()), tie_(drawn()) {}

Error Place::enter(const Settings& settings, std::unique_ptr<Place>& place) {
  remove_abandoned_rooms(settings.directory);
  std::unique_ptr<Place> entered(new Place(settings));
  const Error error =
      entered->room_.join(settings.directory, settings.job, settings.limit, settings.identity);
  if (!error) place = std::move(entered);
  return error;
}

bool Place::due(Time now, std::uint64_t operations) const {
  if (!room_.inside()) return false;
  const Duration since = now - attended_;
  return since >= kAtLeastEvery || (since >= kAtMostEvery && operations >= settings_.every) ||
         (since >= kAtMostEveryIfShort && room_.shortages() != shortages_seen_);
}

Place::Duty Place::attend(Time now, std::uint64_t need, std::uint64_t registered, std::uint32_t threads,
                          const CpuSet& allowed, const CpuSet& bound) {
  if (attended_ == 0) slices_ = time_slices();
  attended_ = now;
  shortages_seen_ = room_.shortages();
  if (now - forgave_ >= kShortagesLast) {
    forgave_ = now;
    room_.post_shortage(0);
  }
  room_.post({{need, tie_}, std::max(1u, threads), allowed, bound});

  std::size_t self = 0;
  std::vector<NodeRoom::Member> members = room_.members(self);
  if (room_.clear_up(false) > 0) members = room_.members(self);

  std::vector<Standing> standings;
  CpuSet all, taken;
  int busy = 0;
  bool others_short = false;
  for (std::size_t i = 0; i < members.size(); ++i) {
    const NodeRoom::Post& post = members[i].post;
    standings.push_back(post.standing);
    all |= post.allowed;
    taken |= post.bound;
    busy += static_cast<int>(std::min<std::uint32_t>(post.threads, kMostCpus));
    others_short = others_short || (i != self && members[i].shortage > 0);
  }

  Duty duty;
  const int idle_cores = std::max(0, cores_.count(all) - busy);
  const Terms terms = terms_of(settings_.policy, standings, self, idle_cores, slices_);
  duty.helper = terms.helper;
  duty.turn = terms.turn;
  // Programs that are bound leave certain cores to helpers; else only the kernel knows which are idle.
  if (const auto free = cores_.free_of(all, taken); terms.idle_core >= 0 && !free.empty())
    duty.run_on.set(static_cast<std::size_t>(free[static_cast<std::size_t>(terms.idle_core) % free.size()]));
  if (room_.limit()) {
    if (others_short) duty.hold_at_most = fair_share(standings, self, room_.limit());
    duty.at_hand = others_short ? 0 : registered / 4;
  }
  return duty;
}

}  // namespace pinion::node
