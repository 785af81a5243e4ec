#include "node/place.h"

#include <sched.h>
#include <time.h>

#include <algorithm>
#include <random>

namespace pinion::node {

namespace {

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
  remove_abandoned_tables(settings.directory);
  std::unique_ptr<Place> entered(new Place(settings));
  const Error error =
      entered->table_.join(settings.directory, settings.job, settings.limit, settings.identity);
  if (!error) place = std::move(entered);
  return error;
}

Place::Duty Place::attend(Time now, std::uint64_t need, std::uint64_t registered, std::uint32_t threads,
                          const CpuSet& allowed, const CpuSet& bound) {
  if (!slices_) slices_ = time_slices();
  std::size_t self = 0;
  const std::vector<NodeTable::Member> members =
      attendance_.attend(now, {{need, tie_}, std::max(1u, threads), allowed, bound}, self);

  std::vector<Standing> standings;
  CpuSet all, taken;
  int busy = 0;
  for (const NodeTable::Member& member : members) {
    const NodeTable::Post& post = member.post;
    standings.push_back(post.standing);
    all |= post.allowed;
    taken |= post.bound;
    busy += static_cast<int>(std::min<std::uint32_t>(post.threads, kMostCpus));
  }

  Duty duty;
  const int idle_cores = std::max(0, cores_.count(all) - busy);
  const Terms terms = terms_of(settings_.policy, standings, self, idle_cores, *slices_);
  duty.helper = terms.helper;
  duty.turn = terms.turn;
  // Programs that are bound leave certain cores to helpers; else only the kernel can find the idle ones.
  if (const auto free = cores_.free_of(all, taken); terms.idle_core >= 0 && !free.empty())
    duty.run_on.set(static_cast<std::size_t>(free[static_cast<std::size_t>(terms.idle_core) % free.size()]));
  if (table_.limit()) duty.sharing = sharing_of(members, self, table_.limit(), registered);
  return duty;
}

}  // namespace pinion::node
