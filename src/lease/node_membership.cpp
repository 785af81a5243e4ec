#include "lease/node_membership.h"

#include <algorithm>

#include "base/process.h"
#include "base/size_text.h"
#include "base/warning.h"
#include "retention/retention_options.h"

namespace pinion {

namespace {

/// The share of a process outside of the node's table: the sum keeps to the limit in any case.
std::uint64_t share_alone(const Options& options, const Error& why) {
  if (!options.node_limit) {
    warn("the node's other processes cannot be met (%s): each has a helper", why.message);
    return 0;
  }
  constexpr std::uint64_t kNothing = 1;  // no page
  if (const auto processes = static_cast<std::uint64_t>(most_on_node())) {
    const std::uint64_t share = page_floor(options.node_limit / processes);
    warn(
        "the node's other processes cannot be met (%s): each of %llu keeps to an equal part "
        "of --node-limit, %s",
        why.message, static_cast<unsigned long long>(processes), SizeText(share).text);
    return std::max(share, kNothing);
  }
  warn(
      "the node's other processes cannot be met (%s), and no launcher says how many share "
      "--node-limit: nothing is registered; use --limit, a limit for each process",
      why.message);
  return kNothing;
}

}  // namespace

std::string others_text(const Budget& budget) {
  constexpr std::size_t kShown = 4;
  std::string text;
  const std::vector<Allowance::Holder> others = budget.others();
  for (std::size_t i = 0; i < std::min(kShown, others.size()); ++i) {
    const std::string process = "process " + std::to_string(others[i].process);
    const int rank = rank_of(others[i].process);
    text += text.empty() ? "; of the node's limit " : ", ";
    text += rank < 0 ? process : "rank " + std::to_string(rank) + " (" + process + ")";
    text += std::string(" holds ") + SizeText(others[i].bytes).text;
  }
  return others.size() > kShown ? text + ", ..." : text;
}

NodeMembership::NodeMembership(const Options& options, pid_t process) : process_(process) {
  node::Place::Settings settings;
  settings.limit = options.node_limit;
  if (traits_of(options.retention).acts) settings.policy = options.policy;
  settings.every = options.policy_every;
  if (!traits_of(options.retention).registers || !node::Place::needed(settings)) return;
  settings.job = node_key();
  settings.identity = node::member_identity_of(process_);
  if (const Error alone = node::Place::enter(settings, place_)) {
    limit_ = share_alone(options, alone);
    return;
  }
  limit_ = place_->limit();
  if (options.node_limit && limit_ != options.node_limit)
    warn("--node-limit is %s here: a process that came before has said so", SizeText(limit_).text);
}

node::Place::Duty NodeMembership::attend(Time now, std::uint64_t transfers, const Need& need,
                                         const node::CpuSet& allowed) {
  attended_ = transfers;
  return place_->attend(now, need.leave_pinned, need.registered, need.threads, allowed,
                        node::cpus_of(process_));
}

}  // namespace pinion
