// The peers of an endpoint: their addresses, and whether they live. A peer's end is noticed by one of these:
//
//   the provider reports a lost connection            at once
//   its process has ended, on the same node;          16 peers every 100 ms, so within 0.2 s for up to 16
//   or its card is marked as left
//   its last message announces the end                where no directory holds cards
//   it is silent, on another node                     once something was exchanged: probed after a second,
//                                                     which makes a provider report a lost connection;
//                                                     `silence` after that ends it, too
//   a message of it is missing                        messages have numbers. After a receive that failed, all
//                                                     peers are asked for an answer; its number shows a gap
//
// A peer that is cut off is alive, and may still write to this process's memory. It is gone once its process
// has ended or left, or its connections are closed. Libfabric's shm keeps spin locks in shared memory. A peer
// that is killed while it holds one makes a put or send to it wait for ever, inside the provider; nothing
// here can end that.
//
// note...(), is_here(), lives() and cut_off(): any thread. The rest: the thread that holds the endpoint's
// progress.
#pragma once

#include "transfer/bootstrap/bootstrap.h"

#ifdef PINION_HAS_LIBFABRIC
#include <rdma/fabric.h>

#include <atomic>
#include <memory>

#include "base/mutex.h"
#include "transfer/endpoint/shm_file.h"

namespace pinion::transfer {

class PeerTable {
 public:
  enum class Condition : unsigned char { here, cut_off, ending, gone };

  struct Entry {
    Card card;
    fi_addr_t address = FI_ADDR_UNSPEC;
    bool same_node = false;
    ShmFile shm;  ///< used if the provider is shm
    std::atomic<Condition> condition{Condition::here};
    std::atomic<bool> touched{false};  ///< something was exchanged
    std::atomic<Time> heard{0};
    Mutex sending;                               ///< messages leave in the order of their numbers
    std::uint32_t sent GUARDED_BY(sending) = 0;  ///< number of the last message to it
    std::uint32_t arrived = 0;                   ///< number of the last message from it
    std::atomic<bool> cut{false};                ///< the connection was closed here
    bool told = false;                           ///< and the peer was informed
    bool source_known = false;                   ///< the provider has named it as a message's source
    bool doubted = false;                        ///< a message of it may be lost
    Time noticed = 0;                            ///< when its end was; 0: not yet
    Time probed = 0;                             ///< last
    Time unanswered_since = 0;                   ///< first probe since it was heard; 0: none
  };

  /// Comes before all else.
  void fill(std::vector<Card> cards, const Card& own);
  Peer size() const { return size_; }
  Entry& at(Peer peer) { return entries_[peer]; }
  bool is_here(Peer peer) const { return entries_[peer].condition.load() == Condition::here; }
  /// True: its process runs on this node.
  bool lives(Peer peer) const { return entries_[peer].same_node && !process_has_ended(peer); }
  /// Operations with it have ended.
  static bool is_over(Condition condition) {
    return condition == Condition::cut_off || condition == Condition::gone;
  }

  void note_touched(Peer peer) { entries_[peer].touched.store(true, std::memory_order_relaxed); }
  void note_heard(Peer peer, Time now);
  /// The provider lost it, or a message to it. The own process, too, may be lost in this sense.
  void note_loss(Peer peer);
  /// False: it is here no longer.
  bool cut_off(Peer peer);

  /// Looks after the peers whose turn it is. `probe` sends one; `leave` announces the end to one, where
  /// possible.
  template <class Probe, class Leave>
  void look(const Directory& directory, Time now, Duration silence, Probe&& probe, Leave&& leave) {
    if (now - looked_ < kEvery) return;
    looked_ = now;
    for (Peer count = 0; count < kAtOnce && count < size_; ++count, next_ = (next_ + 1) % size_) {
      if (wants_goodbye(next_)) entries_[next_].told = leave(next_);
      if (!may_write(next_) || (next_ == self_ && !entries_[next_].doubted)) continue;
      if (has_left(directory, next_) || is_silent(next_, now, silence))
        note_loss(next_);
      else if (wants_probe(next_, now))
        probe(next_);
    }
  }
  /// Whether a message from that source, FI_ADDR_UNSPEC if the provider does not know it, may be the peer's.
  /// Once its source was known, it stays so.
  bool may_be_from(Peer peer, fi_addr_t source) {
    Entry& entry = entries_[peer];
    if (source == FI_ADDR_UNSPEC) return !entry.source_known;
    if (source != entry.address) return false;
    return entry.source_known = true;
  }
  /// A message of some peer was lost.
  void doubt_all();
  /// Calls ended(peer), once, for each peer that has ended, after a pause in which its last messages arrive.
  /// The file that its process has left is removed.
  template <class Ended>
  void report_ended(Time now, Ended&& ended) {
    for (Peer peer = 0; peer < size_ && ending_.load() > 0; ++peer)
      if (becomes_gone(peer, now)) ended(peer);
  }

 private:
  static constexpr Duration kEvery = 100 * kMillisecond;
  static constexpr Peer kAtOnce = 16;

  bool may_write(Peer peer) const { return entries_[peer].condition.load() <= Condition::cut_off; }
  bool becomes_gone(Peer peer, Time now);
  bool process_has_ended(Peer peer) const;
  bool has_left(const Directory& directory, Peer peer) const;
  bool is_silent(Peer peer, Time now, Duration silence);
  bool wants_probe(Peer peer, Time now);
  bool wants_goodbye(Peer peer) const;

  std::unique_ptr<Entry[]> entries_;
  Peer size_ = 0, self_ = 0, next_ = 0;
  Time looked_ = 0;
  std::atomic<unsigned> ending_{0};
};

}  // namespace pinion::transfer
#endif
