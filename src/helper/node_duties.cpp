#include "helper/node_duties.h"

#include "lease/thread_context.h"

namespace pinion {

void NodeDuties::attend(Time now) {
  if (pressure_.look(now)) desk_.see_memory(domains_.budget(), pressure_.is_short());
  if (!node_.due(now, drain_.transfers())) return;
  NodeMembership::Need need{drain_.needed_bytes(), domains_.budget().bytes(), 0};
  for (const ThreadContext* thread = all_threads(); thread; thread = thread->next)
    need.threads += thread->state.load(std::memory_order_relaxed) == ThreadContext::State::live;
  const node::Place::Duty duty = node_.attend(now, drain_.transfers(), need, allowed_);

  const bool binds = duty.sharing.binds || need.leave_pinned > domains_.budget().limits().bytes;
  desk_.share(domains_.budget(), duty.sharing.hold_at_most, duty.sharing.at_hand, binds);
  desk_.set_helper(duty.helper, duty.turn);
  const node::CpuSet& cpus = duty.run_on.any() ? duty.run_on : allowed_;
  if (cpus != run_on_) node::run_on(run_on_ = cpus);
}

}  // namespace pinion
