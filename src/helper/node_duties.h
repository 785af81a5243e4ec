// The helper's duties on its node: lets memory go while it is short, meets the other processes' needs under a
// limit of the node, takes the core that the node's policy leaves to it, and has the node's request to stop.
// The helper thread.
#pragma once

#include "helper/record_drain.h"
#include "lease/domain_table.h"
#include "lease/node_membership.h"
#include "node/cores.h"
#include "node/pressure.h"
#include "node/stop_request.h"
#include "retention/desk.h"

namespace pinion {

class NodeDuties {
 public:
  NodeDuties(NodeMembership& node, DomainTable& domains, RecordDrain& drain, Desk& desk)
      : node_(node), domains_(domains), drain_(drain), desk_(desk) {}

  /// Opens the kernel's files, before the helper's thread begins.
  void open() { pressure_.open(); }
  /// The CPUs that the thread may run on.
  void start() { allowed_ = run_on_ = node::cpus_of(0); }
  void attend(Time now);
  /// At the end of the run. A process that still holds leases keeps its share, until the process ends.
  void end() {
    if (domains_.budget().bytes() == 0) node_.leave(domains_.budget());
    stop_.remove();
  }
  /// What `pinion stop` asks of this process.
  node::StopRequest& stop_request() { return stop_; }

 private:
  NodeMembership& node_;
  DomainTable& domains_;
  RecordDrain& drain_;
  Desk& desk_;
  node::NodePressure pressure_;
  node::StopRequest stop_;
  node::CpuSet allowed_, run_on_;
};

}  // namespace pinion
