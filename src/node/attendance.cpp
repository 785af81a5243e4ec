#include "node/attendance.h"

namespace pinion::node {

namespace {
constexpr Duration kAtLeastEvery = 200 * kMillisecond;
/// A look takes the longer the more processes there are (evidence-measured.md).
constexpr Duration kAtMostEvery = 10 * kMillisecond, kAtMostEveryIfShort = kMillisecond;
/// The others remember a shortage for one to two such times, beyond the next use of the buffer that met it:
/// else a process that registers ahead takes the memory each time. A shortage that lasts is posted again.
constexpr Duration kShortagesLast = 5 * kSecond;
}  // namespace

bool Attendance::due(Time now, std::uint64_t operations) const {
  if (!table_.inside()) return false;
  const Duration since = now - attended_;
  return since >= kAtLeastEvery || (since >= kAtMostEvery && operations >= every_) ||
         (since >= kAtMostEveryIfShort && table_.shortages() != shortages_seen_);
}

std::vector<NodeTable::Member> Attendance::attend(Time now, const NodeTable::Post& post, std::size_t& self) {
  attended_ = now;
  shortages_seen_ = table_.shortages();
  if (now - forgave_ >= kShortagesLast) {
    forgave_ = now;
    if (was_short_) table_.post_shortage(0);
    was_short_ = table_.shortage() > 0;
  }
  table_.post(post);
  std::vector<NodeTable::Member> members = table_.members(self);
  if (table_.clear_up(false) > 0) members = table_.members(self);
  return members;
}

Sharing sharing_of(const std::vector<NodeTable::Member>& members, std::size_t self, std::uint64_t limit,
                   std::uint64_t registered) {
  bool others_short = false;
  for (std::size_t i = 0; i < members.size(); ++i)
    others_short = others_short || (i != self && members[i].shortage > 0);
  std::vector<Standing> standings;
  for (const NodeTable::Member& member : members) standings.push_back(member.post.standing);
  const std::uint64_t share = fair_share(standings, self, limit);
  const bool binds = share < standings[self].need;
  if (!others_short) return {UINT64_MAX, registered / 4, binds};
  return {share, 0, binds};
}

}  // namespace pinion::node
