// A process's part of the node's limit, for its budget: the pieces that it holds in the node's table. Under
// the budget's mutex, but for held().
#pragma once

#include <algorithm>
#include <atomic>
#include <vector>

#include "node/node_table.h"
#include "registry/budget.h"

namespace pinion::node {

class NodeShare final : public Allowance {
 public:
  explicit NodeShare(NodeTable& table) : table_(table) {}

  std::uint64_t bytes() const override {
    return held_.load(std::memory_order_relaxed) * table_.piece_bytes();
  }

  void raise(std::uint64_t bytes) override {
    const std::size_t count = pieces_for(bytes);
    if (!table_.inside() || count <= pieces_.size()) return;
    if (table_.take(count - pieces_.size(), pieces_)) {
      if (short_) table_.post_shortage(0);
      short_ = false;
    } else {
      short_ = true;
      table_.post_shortage(bytes);
    }
    held_.store(pieces_.size(), std::memory_order_relaxed);
  }

  void lower(std::uint64_t bytes) override {
    for (; table_.inside() && pieces_.size() > pieces_for(bytes); pieces_.pop_back())
      table_.give_back(pieces_.back());
    held_.store(pieces_.size(), std::memory_order_relaxed);
  }

  /// The process leaves the table.
  void end() override {
    table_.leave();
    pieces_.clear();
    held_.store(0, std::memory_order_relaxed);
  }

  std::vector<Holder> others() const override {
    std::vector<Holder> holders;
    if (!short_ || !table_.inside()) return holders;
    for (const auto& [identity, pieces] : table_.pieces_of_others())
      holders.push_back({process_of(identity), pieces * table_.piece_bytes()});
    std::stable_sort(holders.begin(), holders.end(),
                     [](const Holder& a, const Holder& b) { return a.bytes > b.bytes; });
    return holders;
  }

 private:
  std::size_t pieces_for(std::uint64_t bytes) const {
    return static_cast<std::size_t>((bytes + table_.piece_bytes() - 1) / table_.piece_bytes());
  }

  NodeTable& table_;
  std::vector<std::uint16_t> pieces_;
  std::atomic<std::uint64_t> held_{0};  ///< pieces
  bool short_ = false;
};

}  // namespace pinion::node
