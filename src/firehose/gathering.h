// Barriers and exchanges. In a round each process gathers the shares of all, by dissemination: in step k it
// sends the shares of 2^k processes, its own first, to the process 2^k before it.
//
//   5 processes, to process 0:   step 0: 1   step 1: 2 3   step 2: 4
//
// So a round takes log2(n) steps, and n log2(n) messages. Where a process is gone whose shares are awaited,
// their owners are asked one by one; its own share is zero. A process may be one round ahead of another.
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
  using Peer = transfer::Peer;
  static constexpr std::size_t kMost = 256;  ///< bytes of a share

  /// `most_message`: bytes that one message takes.
  Gathering(Outbox& outbox, Peer self, Peer peers, std::size_t most_message);

  /// Begins the next round with this process's share.
  void begin(const void* own, std::size_t bytes);
  bool is_complete();
  /// Copies the shares of `bytes` each, in order of process. True: all processes took part.
  bool end(std::size_t bytes, char* all);

  void arrived(Peer from, const void* message, std::size_t bytes);
  void gone(Peer peer);

 private:
  using Round = std::uint64_t;
  enum class Kind : std::uint32_t { shares, question };
  struct Header {
    Round round;
    Kind kind;
    std::uint32_t first;  ///< process
    std::uint32_t count;
    std::uint32_t bytes;  ///< a share's
  };
  struct Share {
    Round round = 0;         ///< 0: none
    bool took_part = false;  ///< its process
    std::array<char, kMost> bytes{};
  };
  struct Member {
    std::array<Share, 2> shares;  ///< one for even rounds, one for odd ones
    Round asked = 0;              ///< its question waits for that round
    bool gone = false;
  };

  Share& share(Peer peer, Round round) { return members_[peer].shares[round % 2]; }
  bool is_known(Peer peer);
  void advance();
  void send_shares(Peer to, Round round, Peer first, Peer count);
  void ask_for_shares_of(Peer source);
  void take(const Header& header, const char* shares);
  bool is_expected(Peer from, const Header& header) const;
  std::size_t size_of(const Header& header) const;

  Outbox& outbox_;
  const Peer self_;
  const std::size_t most_message_;
  std::mutex mutex_;  ///< guards all below
  Round round_ = 0;
  std::array<std::uint32_t, 2> bytes_{};  ///< of a share, in even and odd rounds
  std::vector<Member> members_;
  Peer known_ = 0;  ///< processes from this one on whose shares are here
  Peer step_ = 1;   ///< 2^k of the next step
};

}  // namespace pinion::firehose
