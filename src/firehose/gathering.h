// Barriers and exchanges: each process sends its share to all others, in rounds. A process may be one round
// ahead of another. Peers that are gone are waited for no longer; their shares are zero.
//
// arrived() and gone(): any thread, inside the endpoint's progress. The rest: one thread at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "firehose/outbox.h"

namespace pinion::firehose {

class Gathering {
 public:
  static constexpr std::size_t kMost = 256;

  Gathering(Outbox& outbox, transfer::Peer self, transfer::Peer peers);

  /// Sends this process's share of the next round.
  void begin(const void* own, std::size_t bytes);
  bool is_complete();
  /// Copies the shares of `bytes` each, in order of process. True: all processes took part.
  bool end(std::size_t bytes, char* all);

  void arrived(transfer::Peer from, const void* message, std::size_t bytes);
  void gone(transfer::Peer peer);

 private:
  struct Share {
    std::uint64_t round = 0;  ///< 0: none
    std::array<char, kMost> bytes{};
  };
  struct Member {
    std::array<Share, 2> shares;  ///< of even and odd rounds
    bool gone = false;
  };

  Outbox& outbox_;
  const transfer::Peer self_;
  std::mutex mutex_;  ///< guards all below
  std::uint64_t round_ = 0;
  std::vector<Member> members_;
};

}  // namespace pinion::firehose
