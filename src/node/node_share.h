// A process's part of the node's limit, for its budget: the pieces that it holds in the node's room. Under
// the budget's mutex, but for held().
#pragma once

#include <algorithm>
#include <atomic>
#include <vector>

#include "node/room.h"
#include "registry/budget.h"

namespace pinion::node {

class NodeShare final : public Allowance {
 public:
  explicit NodeShare(NodeRoom& room) : room_(room) {}

  std::uint64_t bytes() const override { return held_.load(std::memory_order_relaxed) * room_.piece_bytes(); }

  void raise(std::uint64_t bytes) override {
    const std::size_t count = pieces_for(bytes);
    if (!room_.inside() || count <= pieces_.size()) return;
    if (room_.take(count - pieces_.size(), pieces_)) {
      if (short_) room_.post_shortage(0);
      short_ = false;
    } else {
      short_ = true;
      room_.post_shortage(bytes);
    }
    held_.store(pieces_.size(), std::memory_order_relaxed);
  }

  void lower(std::uint64_t bytes) override {
    for (; room_.inside() && pieces_.size() > pieces_for(bytes); pieces_.pop_back())
      room_.give_back(pieces_.back());
    held_.store(pieces_.size(), std::memory_order_relaxed);
  }

  /// The process leaves the room.
  void end() override {
    room_.leave();
    pieces_.clear();
    held_.store(0, std::memory_order_relaxed);
  }

  std::vector<Holder> others() const override {
    std::vector<Holder> holders;
    if (!short_ || !room_.inside()) return holders;
    for (const auto& [identity, pieces] : room_.pieces_of_others())
      holders.push_back({process_of(identity), pieces * room_.piece_bytes()});
    std::stable_sort(holders.begin(), holders.end(),
                     [](const Holder& a, const Holder& b) { return a.bytes > b.bytes; });
    return holders;
  }

 private:
  std::size_t pieces_for(std::uint64_t bytes) const {
    return static_cast<std::size_t>((bytes + room_.piece_bytes() - 1) / room_.piece_bytes());
  }

  NodeRoom& room_;
  std::vector<std::uint16_t> pieces_;
  std::atomic<std::uint64_t> held_{0};  ///< pieces
  bool short_ = false;
};

}  // namespace pinion::node
