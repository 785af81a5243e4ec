// Movers carry messages from one process of `pinion bench transfers` to the other: by a protocol of
// papers/messages/large_messages.h, or by plain puts into memory that is registered already (the limit).
//
// One thread calls; the endpoint's own thread runs handlers beside it. Errors are thrown as Failure.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>

#include "bench/transfers_pair.h"
#include "transfer/endpoint/fabric_endpoint.h"

namespace pinion::cli {

struct TransferMemory {
  unsigned char* address = nullptr;
  std::size_t bytes = 0;
};

class TransferMover : public transfer::MessageHandler {
 public:
  static constexpr unsigned kWindow = 4;  ///< messages under way at a time, in slots
  static constexpr unsigned kKind = 15;   ///< of the bench's own messages

  /// Before the endpoint connects.
  explicit TransferMover(transfer::Endpoint& endpoint) : endpoint_(endpoint) {
    endpoint.handle(kKind, *this);
  }
  virtual ~TransferMover() = default;

  /// The memory of the messages to come; both processes call it.
  virtual void begin(const TransferMemory& memory) = 0;
  virtual void end() = 0;
  virtual void send(unsigned slot, const unsigned char* data, std::size_t bytes) = 0;
  virtual void receive(unsigned slot, unsigned char* memory, std::size_t bytes) = 0;
  virtual void finish_send(unsigned slot) = 0;
  virtual void finish_receive(unsigned slot) = 0;
  virtual void close() {}

  /// Called again and again while it waits.
  void between(std::function<void()> call) { between_ = std::move(call); }
  /// Each gives a figure and gets the other's; after all that was sent before.
  double exchange(double figure);
  void barrier() { exchange(0); }

  void message(transfer::Peer from, const void* payload, std::size_t bytes) override;
  void gone(transfer::Peer) override { gone_.store(true); }

 protected:
  /// Moves all on. Returns how much happened.
  virtual unsigned progress() { return endpoint_.progress(); }
  void until(const std::function<bool()>& holds);
  /// False: the endpoint is full.
  bool try_tell(unsigned what, const void* data, std::size_t bytes);
  void tell(unsigned what, const void* data, std::size_t bytes);
  transfer::Peer other() const { return 1 - endpoint_.self(); }
  /// Called for the mover's own messages.
  virtual void told(const void*, std::size_t) {}

  transfer::Endpoint& endpoint_;

 private:
  std::function<void()> between_;
  std::atomic<bool> gone_{false};
  std::atomic<unsigned> exchanged_{0};
  unsigned exchanges_ = 0;
  std::atomic<double> figures_[2]{};
};

std::unique_ptr<TransferMover> make_transfer_mover(transfer::Endpoint& endpoint,
                                                   const TransferSubject& subject);

}  // namespace pinion::cli
