// Puts of lists that one thread posts one after another and then waits for. Owned by that thread. Operations
// of others may end by its calls.
#pragma once

#include <atomic>
#include <cerrno>
#include <span>

#include "base/clock.h"
#include "transfer/endpoint/endpoint.h"

namespace pinion::transfer {

class ListPuts final : public Operation {
 public:
  explicit ListPuts(Endpoint& endpoint) : endpoint_(endpoint) {}
  ~ListPuts() { static_cast<void>(wait()); }
  ListPuts(const ListPuts&) = delete;
  ListPuts& operator=(const ListPuts&) = delete;

  /// Makes progress while the endpoint's queue is full.
  Error post(Peer to, std::span<const LocalMemory> from, const RemoteMemory& target) {
    Error error;
    while ((error = endpoint_.put_list(to, from, target, *this)).code == EAGAIN) endpoint_.progress();
    if (!error) ++posted_;
    return error;
  }
  /// Waits until all that were posted have ended. False: one of them failed.
  bool wait() {
    while (ended_.load() < posted_)
      if (endpoint_.progress() == 0) endpoint_.wait(kMillisecond);
    return !failed_.load();
  }

 private:
  void done(const Error& error) override {
    if (error) failed_.store(true);
    ended_.fetch_add(1);
  }

  Endpoint& endpoint_;
  unsigned posted_ = 0;
  std::atomic<unsigned> ended_{0};
  std::atomic<bool> failed_{false};
};

}  // namespace pinion::transfer
