// Finds the heap's area at an address: two levels of tables, an entry for each 2 MiB of addresses.
//
// find() is lock-free, for any thread. add() and remove() belong to the shards, under their locks; concurrent
// calls are for other areas. Tables are made by compare-and-swap, and stay.
#pragma once

#include <array>
#include <atomic>

#include "placement/area.h"

namespace pinion {

class AreaMap {
 public:
  Area* find(Address address) const {
    if (address >= kEnd) return nullptr;
    const Table* const table = tables_[address / kTableSpan].load(std::memory_order_acquire);
    return table == nullptr ? nullptr : (*table)[entry(address)].load(std::memory_order_acquire);
  }

  /// False: memory for tables is short, or the addresses are beyond those of user programs.
  bool add(Area& area, PageSource& source) {
    if (area.range().end > kEnd) return false;
    for (Address at = area.range().begin / kTableSpan; at <= (area.range().end - 1) / kTableSpan; ++at)
      if (!has_table(at, source)) return false;
    set(area.range(), &area);
    return true;
  }
  void remove(const Area& area) { set(area.range(), nullptr); }

 private:
  static constexpr Address kEnd = Address{1} << 48;
  static constexpr std::size_t kEntries = 1 << 13;
  static constexpr Address kTableSpan = kEntries * kHugepage;
  using Table = std::array<std::atomic<Area*>, kEntries>;

  static std::size_t entry(Address address) { return address / kHugepage % kEntries; }
  bool has_table(Address at, PageSource& source) {
    if (tables_[at].load(std::memory_order_acquire) != nullptr) return true;
    auto* const made = static_cast<Table*>(source.map_records(sizeof(Table)));  // zeros are null pointers
    if (made == nullptr) return false;
    Table* none = nullptr;
    if (!tables_[at].compare_exchange_strong(none, made)) source.unmap_records(made, sizeof(Table));
    return true;
  }
  void set(Range range, Area* area) {
    for (Address at = range.begin; at != range.end; at += kHugepage)
      (*tables_[at / kTableSpan].load(std::memory_order_acquire))[entry(at)].store(area,
                                                                                   std::memory_order_release);
  }

  std::array<std::atomic<Table*>, kEnd / kTableSpan> tables_{};
};

}  // namespace pinion
