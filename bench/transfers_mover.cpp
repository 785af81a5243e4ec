#include "bench/transfers_mover.h"

#include <array>
#include <cstring>
#include <vector>

#include "base/clock.h"
#include "bench/api.h"
#include "papers/messages/large_messages.h"
#include "transfer/endpoint/remote_memory.h"

namespace pinion::cli {

using transfer::LargeMessages;
using transfer::LocalMemory;
using transfer::MessageOptions;
using transfer::Operation;
using transfer::Peer;
using transfer::Protocol;
using transfer::remote_memory;
using transfer::RemoteMemory;
using transfer::Request;

namespace {

/// The bench's own messages: a word that names them, then their content.
enum : std::uint32_t { kFigure = 1, kMovers = 2 };

void check(const Error& error) {
  if (error) throw Failure(error.message);
}

/// Puts each message to where it arrives, once the receiver waits for it, and then announces it.
class PutMover final : public TransferMover {
 public:
  using TransferMover::TransferMover;

  void begin(const TransferMemory& memory) override {
    memory_ = memory;
    must(pinion_acquire(endpoint_.domain(), memory.address, memory.bytes,
                        PINION_ACCESS_WRITE | PINION_ACCESS_REMOTE_WRITE, &lease_));
    keys_.size = sizeof keys_;
    must(pinion_lease_keys(&lease_, &keys_));
    const RemoteMemory own = remote_memory(keys_, memory.address);
    tell(kMovers, &own, sizeof own);
    until([&] { return told_.load(); });
    told_.store(false);
    barrier();
  }
  void end() override {
    barrier();
    must(pinion_release(&lease_));
  }

  void send(unsigned slot, const unsigned char* data, std::size_t bytes) override {
    // Messages from the first half arrive in the second.
    const std::size_t offset = static_cast<std::size_t>(data - memory_.address) + memory_.bytes / 2;
    Put& put = puts_[slot];
    put.ended.store(false);
    const LocalMemory from{const_cast<unsigned char*>(data), bytes, keys_.descriptor};
    RemoteMemory to = theirs_;
    to.address += offset;
    until([&] { return credits_.load() > sends_; });
    Error error;
    until([&] { return (error = endpoint_.put(other(), from, to, put)).code != EAGAIN; });
    check(error);
    number_[slot] = sends_;
    order_[sends_++ % kWindow] = slot;
  }
  void finish_send(unsigned slot) override {
    // The slot stays this put's until it is announced to the other process.
    until([&] { return notices_ > number_[slot]; });
    check(puts_[slot].error);
  }
  void receive(unsigned slot, unsigned char*, std::size_t) override {
    expected_[slot] = ++receives_;
    tell(kMovers, nullptr, 0);
  }
  void finish_receive(unsigned slot) override {
    until([&] { return arrived_.load() >= expected_[slot]; });
  }

 private:
  struct Put : Operation {
    void done(const Error& with) override {
      error = with;
      ended.store(true);
    }
    std::atomic<bool> ended{true};
    Error error;
  };

  /// Announces each put as soon as it has arrived, in order.
  unsigned progress() override {
    const unsigned events = TransferMover::progress();
    while (notices_ < sends_ && puts_[order_[notices_ % kWindow]].ended.load() && try_tell(kMovers, "a", 1))
      ++notices_;
    return events;
  }

  void told(const void* data, std::size_t bytes) override {
    if (bytes == 0) {
      credits_.fetch_add(1);
    } else if (bytes == 1) {
      arrived_.fetch_add(1);
    } else if (bytes == sizeof theirs_) {
      std::memcpy(&theirs_, data, sizeof theirs_);
      told_.store(true);
    }
  }

  TransferMemory memory_;
  pinion_lease lease_ = PINION_LEASE_INIT;
  struct pinion_keys keys_ {};
  RemoteMemory theirs_;
  std::atomic<bool> told_{false};
  std::array<Put, kWindow> puts_;
  std::array<std::uint64_t, kWindow> expected_{};
  std::array<std::uint64_t, kWindow> number_{};  ///< of a slot's put
  std::array<unsigned, kWindow> order_{};        ///< slots, by the number of the put
  std::uint64_t sends_ = 0, notices_ = 0, receives_ = 0;
  std::atomic<std::uint64_t> credits_{0};  ///< receives that the other one has begun
  std::atomic<std::uint64_t> arrived_{0};
};

/// Moves messages by a protocol for large messages.
class ProtocolMover final : public TransferMover {
 public:
  ProtocolMover(transfer::Endpoint& endpoint, const TransferSubject& subject)
      : TransferMover(endpoint), prepared_(subject.prepared) {
    MessageOptions options;
    options.protocol = static_cast<Protocol>(subject.protocol);
    LargeMessages::Result made = LargeMessages::open(endpoint, options);
    check(made.error);
    messages_ = std::move(made.messages);
  }

  void begin(const TransferMemory& memory) override {
    if (prepared_) {
      const pinion_range range{memory.address, memory.bytes};
      pinion_prepare_options options{};
      options.size = sizeof options;
      options.access = PINION_ACCESS_WRITE | PINION_ACCESS_REMOTE_READ;
      must(pinion_prepare(endpoint_.domain(), &range, 1, &options, &preparation_));
      must(pinion_preparation_wait(preparation_, UINT64_MAX));
    }
    barrier();
  }
  void end() override {
    barrier();
    if (preparation_ != nullptr) must(pinion_preparation_end(preparation_));
    preparation_ = nullptr;
  }
  void send(unsigned slot, const unsigned char* data, std::size_t bytes) override {
    messages_->send(other(), data, bytes, sends_[slot]);
  }
  void receive(unsigned slot, unsigned char* memory, std::size_t bytes) override {
    messages_->receive(other(), memory, bytes, receives_[slot]);
  }
  void finish_send(unsigned slot) override { finish(sends_[slot]); }
  void finish_receive(unsigned slot) override { finish(receives_[slot]); }
  void close() override { messages_->close(); }

 private:
  unsigned progress() override { return messages_->progress(); }
  void finish(Request& request) {
    until([&] { return request.done(); });
    check(request.error());
  }

  const bool prepared_;
  std::unique_ptr<LargeMessages> messages_;
  pinion_preparation* preparation_ = nullptr;
  std::array<Request, kWindow> sends_, receives_;
};

}  // namespace

void TransferMover::message(Peer, const void* payload, std::size_t bytes) {
  std::uint32_t what = 0;
  if (bytes < sizeof what) return;
  std::memcpy(&what, payload, sizeof what);
  const auto* const content = static_cast<const unsigned char*>(payload) + sizeof what;
  bytes -= sizeof what;
  double figure = 0;
  if (what == kFigure && bytes == sizeof figure) {
    std::memcpy(&figure, content, sizeof figure);
    // The other process is one exchange ahead at most.
    figures_[exchanged_.load() % 2].store(figure);
    exchanged_.fetch_add(1);
  } else if (what == kMovers) {
    told(content, bytes);
  }
}

bool TransferMover::try_tell(unsigned what, const void* data, std::size_t bytes) {
  const std::uint32_t name = what;
  std::vector<unsigned char> message(sizeof name + bytes);
  std::memcpy(message.data(), &name, sizeof name);
  if (bytes > 0) std::memcpy(message.data() + sizeof name, data, bytes);
  const Error error = endpoint_.send(other(), kKind, message.data(), message.size(), nullptr);
  if (error.code == EAGAIN) return false;
  check(error);
  return true;
}

void TransferMover::tell(unsigned what, const void* data, std::size_t bytes) {
  until([&] { return try_tell(what, data, bytes); });
}

double TransferMover::exchange(double figure) {
  tell(kFigure, &figure, sizeof figure);
  const unsigned own = exchanges_++;
  until([&] { return exchanged_.load() > own; });
  return figures_[own % 2].load();
}

void TransferMover::until(const std::function<bool()>& holds) {
  while (!holds()) {
    if (gone_.load()) throw Failure("the other process ended");
    if (between_) between_();
    if (progress() == 0) endpoint_.wait(10 * kMillisecond);
  }
}

std::unique_ptr<TransferMover> make_transfer_mover(transfer::Endpoint& endpoint,
                                                   const TransferSubject& subject) {
  if (subject.protocol < 0) return std::make_unique<PutMover>(endpoint);
  return std::make_unique<ProtocolMover>(endpoint, subject);
}

}  // namespace pinion::cli
