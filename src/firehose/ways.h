// The parts of a job by which puts and gets reach a peer, and by which peers reach this process. The Job
// fills it as it joins and tears it down as it closes; in between the pointers are constant, and each part
// states its own guards.
#pragma once

#include <atomic>
#include <memory>

#include "firehose/bell.h"
#include "firehose/bucket.h"
#include "firehose/exposure.h"
#include "pinion/firehose.h"
#include "transfer/endpoint/fabric_endpoint.h"

namespace pinion::firehose {

class Calls;
class Courier;
class Outbox;
class PeerService;
class RemoteAccess;
class Strategy;

struct Ways {
  explicit Ways(const pinion_firehose_options& of);
  ~Ways();

  /// Operations with the peer have ended, and none begins.
  bool is_cut_off(Peer peer) const { return cut_off[peer].load(std::memory_order_relaxed); }

  pinion_firehose_options options;  ///< the program's, with the job's size of buckets
  const Exposure exposure;
  Bell bell;
  std::unique_ptr<std::atomic<bool>[]> cut_off;  ///< a flag for each peer
  std::unique_ptr<transfer::FabricEndpoint> endpoint;
  std::unique_ptr<Outbox> outbox;        ///< messages
  std::unique_ptr<Courier> courier;      ///< parts by message
  std::unique_ptr<RemoteAccess> access;  ///< parts by the provider
  std::unique_ptr<PeerService> service;  ///< peers' operations by message
  std::unique_ptr<Calls> calls;          ///< calls of the program
  std::unique_ptr<Strategy> strategy;    ///< which way a part takes
};

}  // namespace pinion::firehose
