// The engine among the node's other processes: its share of a limit of the node, and whether it has a helper.
// No process is looked for where neither a limit nor a policy asks for it (node::Place::needed()), nor where
// nothing is registered (retention observe).
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "engine/engine.h"
#include "engine/process.h"
#include "registry/blocking.h"

namespace pinion {

std::uint64_t Engine::enter_node() {
  node::Place::Settings settings;
  settings.limit = options_.node_limit;
  if (options_.retention == RetentionKind::helper) settings.policy = options_.policy;
  settings.every = options_.policy_every;
  if (observes_ || !node::Place::needed(settings)) return 0;
  settings.job = room_key();
  settings.identity = node::identity_of(process_);
  if (const Error alone = node::Place::enter(settings, place_among_)) return share_alone(alone);
  if (options_.node_limit && place_among_->limit() != options_.node_limit)
    std::fprintf(stderr, "pinion: --node-limit is %s here: a process that came before has said so\n",
                 format_size(place_among_->limit()).c_str());
  return place_among_->limit();
}

std::uint64_t Engine::share_alone(const Error& why) const {
  if (!options_.node_limit) {
    std::fprintf(stderr, "pinion: the node's other processes cannot be met (%s): each has a helper\n",
                 why.message);
    return 0;
  }
  constexpr std::uint64_t kNothing = 1;  // no page
  if (const auto processes = static_cast<std::uint64_t>(most_in_room())) {
    const std::uint64_t share = page_floor(options_.node_limit / processes);
    std::fprintf(stderr,
                 "pinion: the node's other processes cannot be met (%s): each of %llu keeps to an equal part "
                 "of --node-limit, %s\n",
                 why.message, static_cast<unsigned long long>(processes), format_size(share).c_str());
    return std::max(share, kNothing);
  }
  std::fprintf(stderr,
               "pinion: the node's other processes cannot be met (%s), and no launcher says how many share "
               "--node-limit: nothing is registered; use --limit, a limit for each process\n",
               why.message);
  return kNothing;
}

void Engine::leave_node() {
  if (!place_among_) return;
  budget_->end_allowance();
  place_among_->leave();
}

void Engine::attend_node(Time now) {
  if (!place_among_ || !place_among_->due(now, transfers_ - transfers_attended_)) return;
  transfers_attended_ = transfers_;
  std::uint32_t threads = 0;
  for (const ThreadContext* thread = all_threads(); thread; thread = thread->next)
    threads += thread->state.load(std::memory_order_relaxed) == ThreadContext::State::live;
  const node::Place::Duty duty = place_among_->attend(now, leave_pinned_bytes(), budget_->bytes(), threads,
                                                      cpus_allowed_, node::cpus_of(process_));

  if (budget_->bytes() > duty.sharing.hold_at_most) shrink_to(duty.sharing.hold_at_most);
  budget_->give_back(duty.sharing.at_hand);

  has_helper_ = duty.helper;
  for (int i = 0; i < domain_count(); ++i) {
    DomainSlot& slot = *domains_[static_cast<std::size_t>(i)];
    if (!slot.retention || observes_) continue;
    slot.costs.wake.set_turn(duty.turn);
    if (!has_helper_)
      slot.retention->stop_acting();
    else if (!keeps_nothing_.load(std::memory_order_acquire))
      slot.retention->act_again();
  }
  const node::CpuSet& cpus = duty.run_on.any() ? duty.run_on : cpus_allowed_;
  if (cpus != cpus_run_on_) node::run_on(cpus_run_on_ = cpus);
}

void Engine::shrink_to(std::uint64_t bytes) {
  for (int i = 0; i < domain_count() && budget_->bytes() > bytes; ++i) {
    const ForkGate::Passage passage(fork_gate_);
    DomainSlot& slot = *domains_[static_cast<std::size_t>(i)];
    for (Region* victim : slot.domain->begin_shrink(bytes)) {
      const Range pages = victim->range();
      const Time begin = clock_.now();
      const auto retired = retire_claimed(*slot.domain, victim, Actor::helper);
      note_device_call(slot, pages, false, retired.error, begin, retired.end);
    }
  }
}

}  // namespace pinion
