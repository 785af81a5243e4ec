#include "firehose/gathering.h"

#include <algorithm>
#include <cstring>

namespace pinion::firehose {

using Peer = transfer::Peer;

Gathering::Gathering(Outbox& outbox, Peer self, Peer peers) : outbox_(outbox), self_(self), members_(peers) {}

void Gathering::begin(const void* own, std::size_t bytes) {
  std::uint64_t round = 0;
  {
    const std::lock_guard lock(mutex_);
    round = ++round_;
    Share& share = members_[self_].shares[round % 2];
    share.round = round;
    if (bytes > 0) std::memcpy(share.bytes.data(), own, bytes);
  }
  for (Peer peer = 0; peer < members_.size(); ++peer) {
    if (peer == self_) continue;
    // An error is the peer's end, which gone() reports.
    static_cast<void>(outbox_.send(peer, kGatheringMessage, &round, sizeof round, own, bytes));
  }
}

bool Gathering::is_complete() {
  const std::lock_guard lock(mutex_);
  return std::all_of(members_.begin(), members_.end(), [&](const Member& member) {
    return member.gone || member.shares[round_ % 2].round == round_;
  });
}

bool Gathering::end(std::size_t bytes, char* all) {
  const std::lock_guard lock(mutex_);
  bool whole = true;
  for (std::size_t i = 0; i < members_.size(); ++i) {
    const Share& share = members_[i].shares[round_ % 2];
    const bool took_part = share.round == round_;
    whole &= took_part;
    if (bytes == 0) continue;
    if (took_part)
      std::memcpy(all + i * bytes, share.bytes.data(), bytes);
    else
      std::memset(all + i * bytes, 0, bytes);
  }
  return whole;
}

void Gathering::arrived(Peer from, const void* message, std::size_t bytes) {
  std::uint64_t round = 0;
  if (bytes < sizeof round || bytes > sizeof round + kMost) return;
  std::memcpy(&round, message, sizeof round);
  const std::lock_guard lock(mutex_);
  if (from == self_ || (round != round_ && round != round_ + 1)) return;
  Share& share = members_[from].shares[round % 2];
  share.bytes.fill(0);
  std::memcpy(share.bytes.data(), static_cast<const char*>(message) + sizeof round, bytes - sizeof round);
  share.round = round;
}

void Gathering::gone(Peer peer) {
  const std::lock_guard lock(mutex_);
  members_[peer].gone = true;
}

}  // namespace pinion::firehose
