#include "transfer/endpoint/peer_table.h"

#ifdef PINION_HAS_LIBFABRIC
#include <utility>

#include "base/process_stat.h"

namespace pinion::transfer {

namespace {
/// Pause in which the last messages of a process that has ended arrive.
constexpr Duration kLastMessages = 20 * kMillisecond;
constexpr Duration kProbeAfter = kSecond;
}  // namespace

void PeerTable::fill(std::vector<Card> cards, const Card& own) {
  entries_ = std::make_unique<Entry[]>(cards.size());
  for (Peer peer = 0; peer < cards.size(); ++peer) {
    entries_[peer].same_node = cards[peer].node == own.node;
    entries_[peer].card = std::move(cards[peer]);
  }
  self_ = own.rank;
  size_ = static_cast<Peer>(cards.size());
}

void PeerTable::note_heard(Peer peer, Time now) {
  note_touched(peer);
  entries_[peer].heard.store(now, std::memory_order_relaxed);
}

void PeerTable::note_loss(Peer peer) {
  std::atomic<Condition>& condition = entries_[peer].condition;
  for (Condition now = condition.load(); now <= Condition::cut_off;)
    if (condition.compare_exchange_weak(now, Condition::ending)) {
      ending_.fetch_add(1);
      return;
    }
}

bool PeerTable::cut_off(Peer peer) {
  Condition here = Condition::here;
  if (!entries_[peer].condition.compare_exchange_strong(here, Condition::cut_off)) return false;
  entries_[peer].cut.store(true);
  return true;
}

/// Over a connection that is made after the closed one.
bool PeerTable::wants_goodbye(Peer peer) const {
  const Entry& entry = entries_[peer];
  return entry.cut.load() && !entry.told && is_over(entry.condition.load()) && !process_has_ended(peer);
}

void PeerTable::doubt_all() {
  for (Peer peer = 0; peer < size_; ++peer) entries_[peer].doubted = true;
}

bool PeerTable::becomes_gone(Peer peer, Time now) {
  Entry& entry = entries_[peer];
  if (entry.condition.load() != Condition::ending) return false;
  if (entry.noticed == 0) entry.noticed = now;
  if (now - entry.noticed < kLastMessages) return false;
  entry.condition.store(Condition::gone);
  ending_.fetch_sub(1);
  if (process_has_ended(peer)) entry.shm.remove();
  return true;
}

bool PeerTable::process_has_ended(Peer peer) const {
  const Entry& entry = entries_[peer];
  return entry.same_node && has_ended(entry.card.process, entry.card.started);
}

bool PeerTable::has_left(const Directory& directory, Peer peer) const {
  return process_has_ended(peer) || directory.has_left(peer);
}

bool PeerTable::is_silent(Peer peer, Time now, Duration silence) {
  Entry& entry = entries_[peer];
  if (entry.heard.load(std::memory_order_relaxed) >= entry.unanswered_since) entry.unanswered_since = 0;
  const bool is_unasked = !is_here(peer) && !entry.same_node && entry.unanswered_since == 0;
  if (is_unasked) entry.unanswered_since = now;
  return entry.unanswered_since != 0 && now - entry.unanswered_since > silence;
}

bool PeerTable::wants_probe(Peer peer, Time now) {
  Entry& entry = entries_[peer];
  if (!is_here(peer) || now - entry.probed < kProbeAfter) return false;
  if (entry.doubted) {
    entry.probed = now;
    return true;
  }
  if (entry.same_node || !entry.touched.load(std::memory_order_relaxed)) return false;
  if (now - entry.heard.load(std::memory_order_relaxed) < kProbeAfter) return false;
  entry.probed = now;
  if (entry.unanswered_since == 0) entry.unanswered_since = now;
  return true;
}

}  // namespace pinion::transfer
#endif
