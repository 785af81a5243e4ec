// An emulated network between the two processes of `pinion bench transfers --wire`. A get or put moves its
// data at once, by process_vm_readv or process_vm_writev, and ends when a wire of the stated bandwidth would
// have carried it. So the wire, unlike that of a provider in software, leaves the processor to the program.
// Active messages pass through a socket, as fast as that is. Registration lasts as modelled for a NIC (device
// `emulated`).
//
// One thread calls; a thread of its own moves the data, behind `mutex_`.
#pragma once

#include <array>
#include <deque>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "transfer/endpoint/endpoint.h"

namespace pinion::cli {

/// "1.5GB/s", "800MB/s" -> bytes a second. Throws UsageError.
double parse_wire(const std::string& text);
/// The name in rows: "emulated wire of 1500 MB/s".
std::string wire_name(double bytes_per_second);

class EmulatedWire final : public transfer::Endpoint {
 public:
  /// `socket`: one of a pair (SOCK_SEQPACKET, non-blocking), whose other end the other process has; closed
  /// here. Pinion runs. Throws Failure.
  EmulatedWire(transfer::Peer self, int socket, double bytes_per_second);
  ~EmulatedWire() override;
  EmulatedWire(const EmulatedWire&) = delete;
  EmulatedWire& operator=(const EmulatedWire&) = delete;

  /// Meets the other process, which calls it too.
  void connect();

  transfer::Peer self() const override { return self_; }
  transfer::Peer peers() const override { return 2; }
  const transfer::EndpointCapabilities& capabilities() const override { return capabilities_; }
  pinion_domain* domain() const override { return domain_; }
  Error put_list(transfer::Peer to, std::span<const transfer::LocalMemory> from,
                 transfer::RemoteMemory target, transfer::Operation& operation) override;
  Error get_list(transfer::Peer from, std::span<const transfer::LocalMemory> target,
                 transfer::RemoteMemory source, transfer::Operation& operation) override;
  Error send(transfer::Peer to, unsigned kind, const void* payload, std::size_t bytes,
             transfer::Operation* operation) override;
  void disconnect(transfer::Peer) override {}  // both processes are the bench's
  void handle(unsigned kind, transfer::MessageHandler& handler) override { handlers_[kind] = &handler; }
  unsigned progress() override;
  void wait(Duration at_most) override;

 private:
  struct Transfer {
    bool writes;
    transfer::LocalMemory local;
    transfer::RemoteMemory remote;
    transfer::Operation* operation;
    Time posted;
  };
  struct Ended {
    transfer::Operation* operation;
    Error error;
  };
  void post(Transfer transfer);
  void end(Ended ended);
  void run();
  Error move(const Transfer& transfer) const;
  void deliver(const unsigned char* message, std::size_t bytes);

  const transfer::Peer self_;
  const int socket_, ended_event_;
  const double bytes_per_second_;
  const std::string name_;
  transfer::EndpointCapabilities capabilities_;
  pinion_domain* domain_ = nullptr;
  int other_process_ = 0;
  bool gone_ = false;
  std::array<transfer::MessageHandler*, kKinds> handlers_{};

  Mutex mutex_;
  ConditionVariable posted_;
  std::deque<Transfer> transfers_ GUARDED_BY(mutex_);
  std::vector<Ended> ended_ GUARDED_BY(mutex_);
  bool stopped_ GUARDED_BY(mutex_) = false;

  std::thread thread_;  ///< runs run()
};

}  // namespace pinion::cli
