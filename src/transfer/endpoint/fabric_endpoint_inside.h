// An endpoint over libfabric: opening and closing (fabric_endpoint.cpp), progress (fabric_progress.cpp). Only
// for those two files. Its parts: meeting.h, fabric_objects.h, posting.h, receives.h, peer_table.h,
// queue_wait.h.
//
// One thread at a time progresses: it holds `progressing_`, no lock, so that messages stay in order and their
// handlers may call anything. It ends operations and peers without allocating. Members without a comment that
// are neither atomic nor guarded by themselves are constant after connect().
#pragma once

#ifdef PINION_HAS_LIBFABRIC
#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "base/futex.h"
#include "transfer/bootstrap/meeting.h"
#include "transfer/endpoint/fabric_endpoint.h"
#include "transfer/endpoint/fabric_objects.h"
#include "transfer/endpoint/message.h"
#include "transfer/endpoint/peer_table.h"
#include "transfer/endpoint/posting.h"
#include "transfer/endpoint/queue_wait.h"
#include "transfer/endpoint/receives.h"

namespace pinion::transfer {

class OpenEndpoint final : public FabricEndpoint {
 public:
  OpenEndpoint(const FabricLibrary& library, const FabricEndpointOptions& options);
  ~OpenEndpoint() override;
  Error open(const std::string& provider);

  Error meet(std::uint64_t word, std::vector<std::uint64_t>& words) override;
  Error connect() override;
  Error close() override;
  Peer self() const override { return meeting_.own().rank; }
  Peer peers() const override { return meeting_.own().peers; }
  const EndpointCapabilities& capabilities() const override { return capabilities_; }
  pinion_domain* domain() const override { return domain_; }
  Error put_list(Peer to, std::span<const LocalMemory> from, RemoteMemory target,
                 Operation& operation) override;
  Error get_list(Peer from, std::span<const LocalMemory> target, RemoteMemory source,
                 Operation& operation) override;
  Error send(Peer to, unsigned kind, const void* payload, std::size_t bytes, Operation* operation) override;
  void disconnect(Peer peer) override;
  bool lives(Peer peer) const override { return peers_.lives(peer); }
  void handle(unsigned kind, MessageHandler& handler) override;
  unsigned progress() override;
  void wait(Duration at_most) override;

 private:
  Error add_peer(Peer peer);
  void say_goodbye();
  void stop_thread();
  void end_operations();
  void run();

  Error reachable(Peer peer) const;
  bool close_connections(Peer peer);
  bool send_own(Peer to, unsigned kind);

  // Called by the thread that progresses.
  unsigned advance();
  unsigned drain();
  unsigned give_up(int code);
  void complete(const fi_cq_msg_entry& completion, fi_addr_t source);
  bool take_error();
  unsigned bury();
  void deliver(const void* wire, std::size_t bytes, fi_addr_t source);

  const Duration silence_;
  const pid_t owner_;
  Meeting meeting_;
  EndpointCapabilities capabilities_;
  FabricObjects objects_;
  pinion_domain* domain_ = nullptr;
  PeerTable peers_;
  QueueWait wait_;
  Posting posting_;
  std::array<MessageHandler*, kKinds> handlers_{};
  std::thread thread_;
  bool closed_ = false;  ///< the closing thread's

  std::atomic<bool> connected_{false};
  std::atomic<bool> closing_{false};
  std::atomic<bool> progressing_{false};
  std::atomic<std::uint32_t> stop_{0};
  std::atomic<std::uint64_t> calls_{0};  ///< calls of progress() and wait() by threads of the program
  Receives receives_;
};

}  // namespace pinion::transfer
#endif
