// The processes of a job find each other: each publishes a card, and reads the others'. A directory that
// all of them see holds the cards, or else the launcher does (launcher_exchange.h). Nothing of MPI is linked.
// A card is read as a stranger's: its owner, rights, size and content are checked.
//
// Ordinary code; an object belongs to one thread at a time, but has_left() may be called by any.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/kept_file.h"
#include "transfer/endpoint/endpoint.h"

namespace pinion::transfer {

/// This process's membership of a job.
struct Membership {
  Peer rank = 0;
  Peer peers = 1;
  /// All processes see it; only the user may write there. It is made if missing, and removed by the last.
  /// Empty: the launcher carries the cards.
  std::string directory;
  /// So many names it may have: `directory`, then with .1, .2, ... Another user may hold one of them in /tmp.
  unsigned names = 1;
};

/// Reads the launcher's variables (Open MPI, hydra, srun). The directory is the node's own; a job of
/// several nodes has none where the launcher carries cards. EINVAL: the launcher gives no rank.
Error membership_of_launcher(Membership& membership);

/// A process, as the others need to know it.
struct Card {
  Peer rank = 0;
  Peer peers = 0;
  std::uint64_t token = 0;  ///< messages to it carry this
  std::uint64_t node = 0;   ///< equal for processes that see each other's numbers
  std::uint64_t word = 0;   ///< the endpoint's user's
  std::int32_t process = 0;
  std::uint64_t started = 0;  ///< ProcessStat's
  std::string provider;
  std::vector<unsigned char> address;  ///< fi_getname()'s
};
/// A card of this process, without provider and address.
Card own_card(const Membership& membership);

std::string card_to_bytes(const Card& card);
Error card_from_bytes(const std::string& bytes, Card& card);
/// EBADMSG: it is another rank's, or another job's.
Error check_card(const Card& card, Peer rank, Peer peers);

class Directory {
 public:
  /// `job`: this job's number among those that meet in the directory. Its cards have names of their own.
  explicit Directory(unsigned job = 0) : job_(job) {}

  /// Opens the first of so many names that is this user's alone, else makes the first that nobody has.
  /// EPERM: others may write there.
  Error open(const std::string& path, unsigned names = 1);
  /// EADDRINUSE: a process of another job has this rank here.
  Error publish(const Card& card);
  /// All cards, by rank. ETIMEDOUT: one is missing after `within`. Skips cards of an earlier job: their
  /// process has ended, or their tokens are in `before`.
  Error collect(Peer peers, Duration within, std::vector<Card>& cards,
                const std::vector<std::uint64_t>& before = {});
  /// Whether a peer has closed its endpoint.
  bool has_left(Peer rank) const;
  /// Marks this process's card, if it was published. The last one removes what the job has left, and the
  /// directory unless another job is there: `is_gone` knows peers that will never leave.
  void leave(const Card& own, const std::function<bool(Peer)>& is_gone);

 private:
  Error open_name(const std::string& path, bool makes);
  Error read(const std::string& name, Card& card) const;
  bool has(const std::string& name) const;
  std::string name_of(Peer rank, const char* ending) const;
  std::string card_name(Peer rank) const { return name_of(rank, ".card"); }
  std::string left_name(Peer rank) const { return name_of(rank, ".left"); }
  Error check_vacant(const Card& own) const;
  Error write(const Card& card) const;

  const unsigned job_;
  bool published_ = false;
  std::string path_;
  KeptFile directory_;
};

}  // namespace pinion::transfer
