// Regions under integer keys, the least on top; any can be found, moved and taken out by the place stored in
// it (Region::victims). A region is in one heap at most. Guarded by the domain's slow
// lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "registry/region.h"

namespace pinion {

class RegionHeap {
 public:
  bool empty() const { return entries_.empty(); }
  std::size_t size() const { return entries_.size(); }
  Region* top() const { return entries_.front().region; }
  std::int64_t top_key() const { return entries_.front().key; }
  /// Returns the regions in any order, each for one of 0 to size() - 1.
  Region* at(std::size_t slot) const { return entries_[slot].region; }
  bool contains(const Region* region) const { return region->victims.heap == this; }

  void push(Region* region, std::int64_t key) {
    region->victims.heap = this;
    entries_.push_back({key, region});
    up(entries_.size() - 1);
  }
  void erase(Region* region) {
    const std::size_t slot = region->victims.slot;
    region->victims.heap = nullptr;
    const Entry last = entries_.back();
    entries_.pop_back();
    if (slot == entries_.size()) return;
    put(slot, last);
    up(slot);
    down(last.region->victims.slot);
  }
  void rekey(Region* region, std::int64_t key) {
    entries_[region->victims.slot].key = key;
    up(region->victims.slot);
    down(region->victims.slot);
  }

 private:
  struct Entry {
    std::int64_t key;
    Region* region;
  };

  void put(std::size_t slot, const Entry& entry) {
    entries_[slot] = entry;
    entry.region->victims.slot = static_cast<std::uint32_t>(slot);
  }
  void up(std::size_t slot) {
    const Entry entry = entries_[slot];
    for (; slot > 0 && entry.key < entries_[(slot - 1) / 2].key; slot = (slot - 1) / 2)
      put(slot, entries_[(slot - 1) / 2]);
    put(slot, entry);
  }
  void down(std::size_t slot) {
    const Entry entry = entries_[slot];
    for (std::size_t child; (child = 2 * slot + 1) < entries_.size(); slot = child) {
      if (child + 1 < entries_.size() && entries_[child + 1].key < entries_[child].key) ++child;
      if (entry.key <= entries_[child].key) break;
      put(slot, entries_[child]);
    }
    put(slot, entry);
  }

  std::vector<Entry> entries_;
};

}  // namespace pinion
