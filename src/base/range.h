// Address ranges and pages.
// Owns nothing; pure values, callable from anywhere, hooks included.
#pragma once

#include <unistd.h>

#include <bit>
#include <cstddef>
#include <cstdint>

namespace pinion {

using Address = std::uintptr_t;

/// The system's page size in bytes (never a literal: 4 KiB, 16 KiB and 64 KiB systems exist).
inline std::size_t page_size() {
  static const std::size_t size = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  return size;
}

inline Address page_floor(Address a) { return a & ~(static_cast<Address>(page_size()) - 1); }
inline Address page_ceil(Address a) { return page_floor(a + page_size() - 1); }

/// The end of the largest address space that a program has (x86-64 with five levels of page tables). All
/// memory lies below it, so that sums and page roundings of addresses and lengths below it cannot overflow.
constexpr Address kAddressEnd = Address{1} << 57;

/// Whether memory can be there; not whether any is.
inline bool is_addressable(Address begin, std::size_t bytes) {
  return begin != 0 && bytes != 0 && begin < kAddressEnd && bytes <= kAddressEnd - begin;
}

/// Half-open range of addresses [begin, end).
struct Range {
  Address begin = 0;
  Address end = 0;

  static Range of(const void* p, std::size_t bytes) {
    const auto a = reinterpret_cast<Address>(p);
    return {a, a + bytes};
  }
  std::size_t bytes() const { return end - begin; }
  std::size_t pages() const {
    // Shifts are fast, and each transfer asks for this several times.
    const int shift = std::countr_zero(page_size());
    return ((end + (std::size_t{1} << shift) - 1) >> shift) - (begin >> shift);
  }
  bool empty() const { return end <= begin; }
  bool contains(const Range& r) const { return begin <= r.begin && r.end <= end; }
  bool overlaps(const Range& r) const { return begin < r.end && r.begin < end; }
  /// The smallest range of whole pages that contains this one.
  Range to_pages() const { return {page_floor(begin), page_ceil(end)}; }
  bool operator==(const Range& r) const { return begin == r.begin && end == r.end; }
};

/// to_pages() of a range that may reach to the last address.
inline Range pages_touched(Range range) {
  const bool last = range.end > ~Address{0} - page_size();
  return {page_floor(range.begin), last ? range.end : page_ceil(range.end)};
}

}  // namespace pinion
