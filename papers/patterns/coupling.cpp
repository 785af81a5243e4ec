#include "papers/patterns/coupling.h"

#include <algorithm>
#include <map>
#include <unordered_map>
#include <utility>

#include "papers/patterns/meetings.h"
#include "simulate/random.h"

namespace pinion::simulate {

namespace {

using Kind = RankMessage::Kind;

std::uint64_t channel(std::uint32_t from, std::uint32_t to) { return std::uint64_t{from} << 32 | to; }
std::uint64_t mixed(std::uint64_t hash, std::uint64_t value) { return seed_of(hash, value); }

}  // namespace

Coupling::Coupling(std::vector<RankMessages> ranks) {
  for (std::size_t part = 0; part < kParts; ++part) {
    for (const RankMessages& rank : ranks)
      needed_[part].emplace_back(rank.parts[part].size(), MessageOf{kNobody, 0});
    match(part, ranks);
    gather(part, ranks);
  }
}

void Coupling::match(std::size_t part, const std::vector<RankMessages>& ranks) {
  struct Channel {
    std::vector<std::uint32_t> received;  ///< numbers of messages, in order
    std::size_t sent = 0;
  };
  std::unordered_map<std::uint64_t, Channel> channels;
  for (std::uint32_t rank = 0; rank < ranks.size(); ++rank) {
    const std::vector<RankMessage>& messages = ranks[rank].parts[part];
    for (std::uint32_t number = 0; number < messages.size(); ++number)
      if (messages[number].kind == Kind::receives)
        channels[channel(messages[number].with, rank)].received.push_back(number);
  }
  for (std::uint32_t rank = 0; rank < ranks.size(); ++rank) {
    const std::vector<RankMessage>& messages = ranks[rank].parts[part];
    for (std::uint32_t number = 0; number < messages.size(); ++number) {
      const auto [kind, to] = messages[number];
      if (kind != Kind::sends && kind != Kind::sends_at_once) continue;
      Channel& of = channels[channel(rank, to)];
      if (of.sent++ >= of.received.size()) continue;
      const std::uint32_t received = of.received[of.sent - 1];
      needed_[part][to][received] = {rank, number};
      if (kind == Kind::sends) needed_[part][rank][number] = {to, received};
    }
  }
  for (const auto& [ends, of] : channels)
    unmatched_ += of.sent > of.received.size() ? of.sent - of.received.size() : of.received.size() - of.sent;
}

void Coupling::gather(std::size_t part, const std::vector<RankMessages>& ranks) {
  std::map<std::pair<std::vector<int>, std::size_t>, std::uint32_t> known;  // a group's collectives, in order
  for (std::uint32_t rank = 0; rank < ranks.size(); ++rank) {
    const RankMessages& of = ranks[rank];
    std::vector<std::size_t> done(of.groups.size());
    for (std::uint32_t number = 0; number < of.parts[part].size(); ++number) {
      const auto [kind, group] = of.parts[part][number];
      if (kind != Kind::collective) continue;
      const auto fresh = static_cast<std::uint32_t>(collectives_.size());
      const auto [at, is_new] = known.try_emplace({of.groups[group], done[group]++}, fresh);
      if (is_new) collectives_.emplace_back();
      collectives_[at->second].push_back({rank, number});
      needed_[part][rank][number] = {kAll, at->second};
    }
  }
}

void Coupling::mark(const RankKinds& kinds, std::vector<std::uint64_t>& marks) const {
  const std::vector<std::uint64_t> collectives = marks_of_collectives(kinds);
  for (std::size_t part = 0; part < kParts; ++part) {
    for (std::uint32_t rank = 0; rank < marks.size(); ++rank) {
      std::uint64_t& mark = marks[rank];
      for (const MessageOf& met : needed(part, rank)) {
        if (met.rank == kNobody)
          mark = mixed(mark, 0);
        else if (met.rank == kAll)
          mark = mixed(mark, collectives[met.number]);
        else
          mark = mixed(mixed(mark, kinds.of_rank[met.rank] + std::uint64_t{1}), met.number);
      }
    }
  }
}

std::vector<std::uint64_t> Coupling::marks_of_collectives(const RankKinds& kinds) const {
  std::vector<std::uint64_t> marks;
  for (const std::vector<MessageOf>& messages : collectives_) {
    std::vector<std::pair<std::uint32_t, std::uint32_t>> there;
    for (const MessageOf& of : messages) there.emplace_back(kinds.of_rank[of.rank], of.number);
    std::sort(there.begin(), there.end());
    there.erase(std::unique(there.begin(), there.end()), there.end());
    std::uint64_t& mark = marks.emplace_back(1);
    for (const auto& [kind, message] : there) mark = mixed(mixed(mark, kind), message);
  }
  return marks;
}

std::unique_ptr<Meetings> Coupling::meetings(const Workload& workload, const RankKinds& kinds,
                                             std::vector<std::uint32_t> simulated) const {
  return std::make_unique<PatternMeetings>(*this, workload, kinds, std::move(simulated));
}

}  // namespace pinion::simulate
