// The parts of an endpoint over libfabric: opening and closing (fabric_endpoint.cpp), operations and progress
// (fabric_progress.cpp). Only for those two files.
//
// One thread at a time progresses: it holds `progressing_`, no lock, so that messages stay in order and their
// handlers may call anything. It ends operations and peers without allocating. All members without a comment
// are constant after connect().
#pragma once

#ifdef PINION_HAS_LIBFABRIC
#include <sys/types.h>

#include <array>
#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/futex.h"
#include "transfer/bootstrap/bootstrap.h"
#include "transfer/endpoint/fabric_endpoint.h"
#include "transfer/endpoint/fabric_objects.h"
#include "transfer/endpoint/message.h"
#include "transfer/endpoint/operation_table.h"
#include "transfer/endpoint/peer_table.h"
#include "transfer/endpoint/queue_wait.h"
#include "transfer/endpoint/raw_keys.h"
#include "transfer/endpoint/wire_pool.h"

struct fi_cq_msg_entry;

namespace pinion::transfer {

class OpenEndpoint final : public FabricEndpoint {
 public:
  /// Of the local list of a put or get; a provider may take fewer.
  static constexpr std::size_t kMostElements = 32;

  OpenEndpoint(const FabricLibrary& library, const FabricEndpointOptions& options);
  ~OpenEndpoint() override;
  Error open();

  Error meet(std::uint64_t word, std::vector<std::uint64_t>& words) override;
  Error connect() override;
  Error close() override;
  Peer self() const override { return own_.rank; }
  Peer peers() const override { return own_.peers; }
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
  struct Receive : Context {
    Receive() { kind = Kind::receive; }
    WireBuffer* buffer = nullptr;
  };

  Error add_peer(Peer peer);
  void say_goodbye();
  void stop_thread();
  void end_operations();
  void run();

  Error reachable(Peer peer) const;
  Error post_message(Peer to, unsigned kind, const void* payload, std::size_t bytes, Operation* operation);
  bool close_connections(Peer peer);
  Error transfer(Peer peer, std::span<const LocalMemory> local, const RemoteMemory& remote,
                 Operation& operation, bool put);
  WireBuffer* wire_buffer();
  Error posted(OperationSlot& slot, Peer peer, long code);
  void give_back(OperationSlot& slot);
  void end_later(OperationSlot& slot, int code, Time due);
  Error failed(int code) const;

  // Of the thread that progresses.
  unsigned advance();
  unsigned drain();
  unsigned give_up(int code);
  void complete(const fi_cq_msg_entry& completion);
  bool take_error();
  void conclude(OperationSlot& slot, int code);
  unsigned finish_endings();
  unsigned bury();
  unsigned end_strays();
  void deliver(const void* wire, std::size_t bytes);
  void send_own(Peer to, unsigned kind);
  Error post_receives();

  const FabricEndpointOptions options_;
  const pid_t owner_;
  Card own_;
  std::string provider_;
  EndpointCapabilities capabilities_;
  FabricObjects objects_;
  pinion_domain* domain_ = nullptr;
  std::unique_ptr<WirePool> messages_;
  Directory directory_;
  std::vector<Card> cards_;  ///< of all, between meet() and connect()
  PeerTable peers_;
  std::array<MessageHandler*, kKinds> handlers_{};
  std::thread thread_;
  bool closed_ = false;  ///< the closing thread's

  std::atomic<bool> connected_{false};
  std::atomic<bool> closing_{false};
  std::atomic<bool> progressing_{false};
  std::atomic<bool> strays_{false};  ///< operations are under way with peers that are cut off or gone
  std::atomic<std::uint32_t> stop_{0};
  std::atomic<std::uint64_t> calls_{0};  ///< of progress() and wait() by threads of the program
  OperationTable operations_;
  RawKeys raw_keys_;
  QueueWait wait_;

  // Of the thread that progresses, and of the opening one before.
  std::deque<Receive> receives_;
  std::vector<Receive*> unposted_;
};

}  // namespace pinion::transfer
#endif
