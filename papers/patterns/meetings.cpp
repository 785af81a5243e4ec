#include "papers/patterns/meetings.h"

#include <algorithm>

namespace pinion::simulate {

PatternMeetings::PatternMeetings(const Coupling& coupling, const Workload& workload, const RankKinds& kinds,
                                 std::vector<std::uint32_t> simulated)
    : coupling_(coupling), kinds_(kinds), member_of_(kinds.count) {
  for (std::uint32_t number = 0; number < simulated.size(); ++number) {
    const std::uint32_t rank = simulated[number];
    members_.emplace_back(*this, number, rank);
    member_of_[kinds.of_rank[rank]] = number;
    turns_.push_back(workload.programs[workload.ranks[rank].program].threads.front().turns);
  }
}

void PatternMeetings::go_to_next(Member& member) {
  while (member.part < Coupling::kParts && member.at == coupling_.needed(member.part, member.rank).size()) {
    member.at = 0;
    const bool again = member.part == 1 && ++member.turn < turns_[member.number] &&
                       !coupling_.needed(1, member.rank).empty();
    if (!again) ++member.part;
  }
}

PatternMeetings::Begun PatternMeetings::begun(const MessageOf& message, const Member& now) const {
  const std::uint32_t number = member_of_[kinds_.of_rank[message.rank]];
  const std::uint64_t before = coupling_.needed(0, message.rank).size();
  const std::uint64_t in_turn = coupling_.needed(1, message.rank).size();
  switch (now.part) {
    case 0:
      return {number, message.number};
    case 1:
      return {number, before + now.turn * in_turn + message.number};
    default:
      return {number, before + turns_[number] * in_turn + message.number};
  }
}

void PatternMeetings::add_needs(Member& member) {
  const MessageOf& needed = coupling_.needed(member.part, member.rank)[member.at];
  if (needed.rank == Coupling::kNobody) return;
  if (needed.rank != Coupling::kAll) {
    member.needs.push_back(begun(needed, member));
    return;
  }
  for (const MessageOf& of : coupling_.collective(needed.number)) member.needs.push_back(begun(of, member));
}

bool PatternMeetings::begin(Member& member, unsigned messages) {
  for (; messages > 0; --messages) {
    go_to_next(member);
    add_needs(member);
    ++member.at;
    ++member.begun;
  }
  const std::size_t woken = woken_.size();
  for (const Begun& waits : std::exchange(member.waiting, {})) {
    if (waits.number >= member.begun)
      member.waiting.push_back(waits);
    else if (met(members_[waits.member]))
      woken_.push_back(waits.member);
  }
  return woken_.size() > woken;
}

bool PatternMeetings::met(Member& member) {
  for (; !member.needs.empty(); member.needs.pop_back()) {
    const auto [other, number] = member.needs.back();
    if (members_[other].begun > number) continue;
    members_[other].waiting.push_back({member.number, number});
    return false;
  }
  return true;
}

}  // namespace pinion::simulate
