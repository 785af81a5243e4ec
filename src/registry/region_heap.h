// Regions under integer keys, the least on top; any can be found, moved and taken out by the place stored in
// it (Region::place). A region is in one heap at most. Guarded by the domain's slow lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "registry/region.h"

namespace pinion {

class RegionHeap {
 public:
  /// Its number tells the heaps of a domain apart, and is not 0.
  explicit RegionHeap(std::uint8_t number) : number_(number) {}

  bool empty() const { return entries_.empty(); }
  std::size_t size() const { return entries_.size(); }
  Region* top() const { return entries_.front().region; }
  std::int64_t top_key() const { return entries_.front().key; }
  /// Returns the regions in any order, each for one of 0 to size() - 1.
  Region* at(std::size_t slot) const { return entries_[slot].region; }
  bool contains(const Region* region) const { return region->place.heap == number_; }

  void push(Region* region, std::int64_t key) {
    region->place.heap = number_;
    entries_.push_back({key, region});
    up(entries_.size() - 1);
  }
  void erase(Region* region) {
    const std::size_t slot = region->place.heap_slot;
    region->place.heap = 0;
    const Entry last = entries_.back();
    entries_.pop_back();
    if (slot == entries_.size()) return;
    put(slot, last);
    up(slot);
    down(last.region->place.heap_slot);
  }
  void rekey(Region* region, std::int64_t key) {
    entries_[region->place.heap_slot].key = key;
    up(region->place.heap_slot);
    down(region->place.heap_slot);
  }

 private:
  struct Entry {
    std::int64_t key;
    Region* region;
  };

  void put(std::size_t slot, const Entry& entry) {
    entries_[slot] = entry;
    entry.region->place.heap_slot = static_cast<std::uint32_t>(slot);
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

  std::uint8_t number_;
  std::vector<Entry> entries_;
};

}  // namespace pinion
