// The helper's duties among the node's other processes: meets their needs under a limit of the node, and
// takes the core that the node's policy leaves to it. The helper thread.
#pragma once

#include "engine/domain_table.h"
#include "engine/node_membership.h"
#include "engine/record_drain.h"
#include "node/cores.h"
#include "retention/desk.h"

namespace pinion {

class NodeDuties {
 public:
  NodeDuties(NodeMembership& node, DomainTable& domains, RecordDrain& drain, Desk& desk)
      : node_(node), domains_(domains), drain_(drain), desk_(desk) {}

  /// The CPUs that the thread may run on.
  void start() { allowed_ = run_on_ = node::cpus_of(0); }
  void attend(Time now);

 private:
  NodeMembership& node_;
  DomainTable& domains_;
  RecordDrain& drain_;
  Desk& desk_;
  node::CpuSet allowed_, run_on_;
};

}  // namespace pinion
