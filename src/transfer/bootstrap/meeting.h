// An endpoint's meeting with its peers: publishes this process's card, and collects the others', by the job's
// directory or by its launcher. Owns the card and the directory. One thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "transfer/bootstrap/bootstrap.h"
#include "transfer/bootstrap/own_jobs.h"

namespace pinion::transfer {

class Meeting {
 public:
  Meeting(const Membership& membership, Duration within)
      : membership_(membership),
        within_(within),
        own_(own_card(membership)),
        job_(membership.directory, membership.rank),
        directory_(job_.number()) {}

  /// The provider and the address are filled in before meet().
  Card& own() { return own_; }
  const Card& own() const { return own_; }
  const Directory& directory() const { return directory_; }

  /// Each process brings a word; returns all, by rank. All of them call it, once at most.
  Error meet(std::uint64_t word, std::vector<std::uint64_t>& words);
  bool met() const { return !cards_.empty(); }
  /// The cards of all, which the caller takes over.
  std::vector<Card> take_cards() { return std::exchange(cards_, {}); }
  /// EINVAL: a process has chosen another provider.
  Error check_providers() const;

  /// True: no directory tells peers of this process's end.
  bool needs_goodbye() const { return membership_.directory.empty(); }
  /// As Directory::leave().
  void leave(const std::function<bool(Peer)>& is_gone) { directory_.leave(own_, is_gone); }

 private:
  const Membership membership_;
  const Duration within_;
  Card own_;
  OwnJob job_;
  Directory directory_;
  std::vector<Card> cards_;  ///< all cards, between meet() and take_cards()
};

}  // namespace pinion::transfer
