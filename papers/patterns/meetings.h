// The messages of the simulated ranks of a job while they run: which have begun, and who waits for which.
// Each simulated rank stands for all of its kind, and meets those that stand for its peers' kinds. Owned by
// the run (node.cpp), which lets those go on that woken() names. One thread.
#pragma once

#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "papers/patterns/coupling.h"
#include "simulate/peers.h"
#include "simulate/rank_kinds.h"
#include "simulate/workload.h"

namespace pinion::simulate {

class PatternMeetings final : public Meetings {
 public:
  /// As Coupled::meetings().
  PatternMeetings(const Coupling& coupling, const Workload& workload, const RankKinds& kinds,
                  std::vector<std::uint32_t> simulated);

  Peers& peers_of(std::size_t number) override { return members_[number]; }
  std::vector<std::uint32_t> woken() override { return std::exchange(woken_, {}); }

 private:
  /// A message of a simulated rank, counted from its first on.
  struct Begun {
    std::uint32_t member;
    std::uint64_t number;
  };
  struct Member final : Peers {
    Member(PatternMeetings& meetings, std::uint32_t self, std::uint32_t of)
        : all(meetings), number(self), rank(of) {}
    bool begin(unsigned messages) override { return all.begin(*this, messages); }
    bool met() override { return all.met(*this); }

    PatternMeetings& all;
    const std::uint32_t number, rank;
    std::uint64_t begun = 0;       ///< messages
    std::size_t part = 0, at = 0;  ///< of its program: where the next message stands
    std::uint64_t turn = 0;
    std::vector<Begun> needs;  ///< of messages under way; met from the back
    /// Others, each for the message of this one that `number` names.
    std::vector<Begun> waiting;
  };

  bool begin(Member& member, unsigned messages);
  bool met(Member& member);
  void go_to_next(Member& member);
  /// Adds what the member's next message needs.
  void add_needs(Member& member);
  /// The message of that number in the part and turn where `now` is.
  Begun begun(const MessageOf& message, const Member& now) const;

  const Coupling& coupling_;
  const RankKinds& kinds_;
  std::deque<Member> members_;
  std::vector<std::uint32_t> member_of_;  ///< by kind
  std::vector<std::uint64_t> turns_;      ///< by member
  std::vector<std::uint32_t> woken_;
};

}  // namespace pinion::simulate
