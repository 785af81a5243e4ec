#include "firehose/gathering.h"

#include <algorithm>
#include <cstring>

#include "transfer/endpoint/wire_pool.h"

namespace pinion::firehose {

using Peer = transfer::Peer;

// A message of shares: the header, a byte for each process (1: it took part), and the shares.

Gathering::Gathering(Outbox& outbox, Peer self, Peer peers, std::size_t most_message)
    : outbox_(outbox), self_(self), most_message_(most_message), members_(peers) {}

void Gathering::begin(const void* own, std::size_t bytes) {
  const MutexLock lock(mutex_);
  ++round_;
  bytes_[round_ % 2] = static_cast<std::uint32_t>(bytes);
  Share& mine = share(self_, round_);
  mine.round = round_;
  mine.took_part = true;
  if (bytes > 0) std::memcpy(mine.bytes.data(), own, bytes);
  known_ = 0;
  step_ = 1;
  const auto peers = static_cast<Peer>(members_.size());
  for (Peer peer = 0; peer < peers; ++peer)
    if (members_[peer].asked == round_) send_shares(peer, round_, self_, 1);
  for (Peer distance = 1; distance < peers; distance *= 2) ask_for_shares_of((self_ + distance) % peers);
  advance();
}

/// Its share is here, or never comes.
bool Gathering::is_known(Peer peer) { return share(peer, round_).round == round_ || members_[peer].gone; }

/// Sends the shares of the next steps, as far as they are here.
void Gathering::advance() {
  const auto peers = static_cast<Peer>(members_.size());
  while (known_ < peers && is_known((self_ + known_) % peers)) ++known_;
  for (; step_ < peers && step_ <= known_; step_ *= 2)
    send_shares((self_ + peers - step_) % peers, round_, self_, std::min(step_, peers - step_));
}

std::size_t Gathering::size_of(const Header& header) const {
  return sizeof header + header.count * (std::size_t{1} + header.bytes);
}

void Gathering::send_shares(Peer to, Round round, Peer first, Peer count) {
  const auto peers = static_cast<Peer>(members_.size());
  Header header{round, Kind::shares, 0, 0, bytes_[round % 2]};
  std::array<char, transfer::WirePool::kBytes> payload;
  for (Peer done = 0; done < count; done += header.count) {
    const std::size_t a_share = std::size_t{1} + header.bytes;
    header.first = (first + done) % peers;
    header.count = std::min(count - done, static_cast<Peer>((most_message_ - sizeof header) / a_share));
    std::memset(payload.data(), 0, header.count * a_share);
    for (Peer i = 0; i < header.count; ++i) {
      const Share& each = share((header.first + i) % peers, round);
      if (each.round != round || !each.took_part) continue;
      payload[i] = 1;
      std::memcpy(&payload[header.count + i * std::size_t{header.bytes}], each.bytes.data(), header.bytes);
    }
    // An error is the peer's end, which gone() reports.
    static_cast<void>(
        outbox_.send(to, kGatheringMessage, &header, sizeof header, payload.data(), header.count * a_share));
  }
}

/// If the process is gone, and shares by its way are missing.
void Gathering::ask_for_shares_of(Peer source) {
  if (!members_[source].gone) return;
  const auto peers = static_cast<Peer>(members_.size());
  const Peer distance = (source + peers - self_) % peers;
  const Header question{round_, Kind::question, 0, 0, 0};
  for (Peer i = 0; i < std::min(distance, peers - distance); ++i) {
    const Peer peer = (source + i) % peers;
    if (!is_known(peer)) static_cast<void>(outbox_.send(peer, kGatheringMessage, &question, sizeof question));
  }
}

bool Gathering::is_complete() {
  const MutexLock lock(mutex_);
  return known_ == members_.size();
}

bool Gathering::end(std::size_t bytes, char* all) {
  const MutexLock lock(mutex_);
  bool whole = true;
  for (Peer peer = 0; peer < members_.size(); ++peer) {
    const Share& each = share(peer, round_);
    const bool took_part = each.round == round_ && each.took_part;
    whole &= took_part;
    if (bytes == 0) continue;
    if (took_part)
      std::memcpy(all + peer * bytes, each.bytes.data(), bytes);
    else
      std::memset(all + peer * bytes, 0, bytes);
  }
  return whole;
}

/// A peer sends its own share, or those of the step at its distance.
bool Gathering::is_expected(Peer from, const Header& header) const {
  const auto peers = static_cast<Peer>(members_.size());
  const Peer distance = (from + peers - self_) % peers;
  const Peer offset = (header.first + peers - from) % peers;
  const bool is_step = (distance & (distance - 1)) == 0;
  const Peer most = is_step ? std::min(distance, peers - distance) : 1;
  return header.first < peers && header.bytes <= kMost && offset < most && header.count <= most - offset;
}

void Gathering::take(const Header& header, const char* shares) {
  const auto peers = static_cast<Peer>(members_.size());
  for (Peer i = 0; i < header.count; ++i) {
    Share& each = share((header.first + i) % peers, header.round);
    if (each.round == header.round) continue;
    each.round = header.round;
    each.took_part = shares[i] != 0;
    each.bytes.fill(0);
    std::memcpy(each.bytes.data(), shares + header.count + i * std::size_t{header.bytes}, header.bytes);
  }
}

void Gathering::arrived(Peer from, const void* message, std::size_t bytes) {
  Header header;
  if (bytes < sizeof header) return;
  std::memcpy(&header, message, sizeof header);
  const MutexLock lock(mutex_);
  if (from == self_) return;
  if (header.kind == Kind::question) {
    if (header.round == round_ || header.round + 1 == round_)
      send_shares(from, header.round, self_, 1);
    else if (header.round == round_ + 1)
      members_[from].asked = header.round;
    return;
  }
  if ((header.round != round_ && header.round != round_ + 1) || !is_expected(from, header) ||
      bytes != size_of(header))
    return;
  take(header, static_cast<const char*>(message) + sizeof header);
  if (header.round == round_) advance();
}

void Gathering::gone(Peer peer) {
  const MutexLock lock(mutex_);
  members_[peer].gone = true;
  if (round_ == 0) return;
  const auto peers = static_cast<Peer>(members_.size());
  const Peer distance = (peer + peers - self_) % peers;
  if ((distance & (distance - 1)) == 0) ask_for_shares_of(peer);
  advance();
}

}  // namespace pinion::firehose
