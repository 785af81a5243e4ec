// Puts, gets and atomics by active message: the parts that the target's own processor carries out. Parts are
// cut into messages; each peer has a window of unanswered requests, which bounds the messages under way.
//
// Any thread. Each peer's lane has a mutex of its own, under which messages are posted; parts are ended
// outside of it.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>

#include "base/mutex.h"
#include "firehose/call.h"
#include "firehose/data_message.h"
#include "firehose/outbox.h"
#include "firehose/waiting_atomics.h"

namespace pinion::firehose {

class Calls;

class Courier {
 public:
  /// `chunk`: bytes of a part that one message carries.
  Courier(Outbox& outbox, Calls& calls, Peer peers, std::size_t chunk);

  /// Takes the part over: it ends by Calls::answered(), here or later.
  void carry(Part& part);
  /// Like carry(), for a part that goes neither by the provider nor packed: the call's way is noted.
  void by_message(Part& part);
  /// Like carry(), as one message of kind kControlMessage behind `head`. False: it is too large, or others
  /// wait.
  bool ride(Part& part, const void* head, std::size_t bytes);
  /// Takes a message of kind `answer`.
  void answered(Peer from, const DataMessage& answer);
  /// Tries again if the endpoint's queue was full. True: no part waits for that.
  bool flush();
  /// Ends all parts of the peer by that error.
  void end(Peer peer, int error);

  /// Parts that by_message() has taken.
  std::uint64_t parts() const { return parts_.load(std::memory_order_relaxed); }
  std::uint64_t riders() const { return riders_.load(std::memory_order_relaxed); }

 private:
  static constexpr unsigned kWindow = WaitingAtomics::kMostOfAPeer;

  struct Request {
    Part* part = nullptr;  ///< null: free
    char* local = nullptr;
    std::uint32_t bytes = 0;
    std::uint32_t uses = 0;
  };
  struct Lane {
    Mutex mutex;  ///< guards the parts' own fields, too
    Parts waiting GUARDED_BY(mutex);
    std::array<Request, kWindow> requests GUARDED_BY(mutex);
    bool stalled GUARDED_BY(mutex) = false;
  };
  static constexpr unsigned kRequestBits = 4;
  static_assert(kWindow == 1U << kRequestBits);

  void pump(Peer peer, Lane& lane, Parts& ended) REQUIRES(lane.mutex);
  static std::size_t write_request(const Part& part, Request& request, std::uint32_t number, std::size_t most,
                                   char* header);
  static int take(const Part& part, const Request& request, const DataMessage& answer);
  Error post(Peer peer, Part& part, Request& request, std::uint32_t number);
  static void note_ended(Part& part, int error, Parts& ended);
  void finish_all(Parts& ended) const;

  Outbox& outbox_;
  Calls& calls_;
  const Peer peers_;
  const std::size_t chunk_;
  const std::unique_ptr<Lane[]> lanes_;
  std::atomic<unsigned> stalled_{0};  ///< lanes
  std::atomic<std::uint64_t> parts_{0}, riders_{0};
};

}  // namespace pinion::firehose
