// The memory that one buffer of a call touches: pieces of data, joined where no whole page lies between them.
// So the ranges have exactly the pages that the data lie on. Chooses the ranges to lease. A value in the
// caller's frame; no locks, no allocation.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/range.h"

namespace pinion::mpi {

/// A piece of one element of a datatype, at an offset from the element's address.
struct Run {
  std::ptrdiff_t offset = 0;
  std::size_t bytes = 0;   ///< from its first byte to its last
  std::uint64_t data = 0;  ///< bytes of data in it

  bool operator==(const Run&) const = default;
};

/// True for data that every MPI packs (copies into one piece) instead of registering it.
inline bool scattered(Range hull, std::uint64_t data) {
  constexpr std::uint64_t kMostBytesPerByte = 2;
  return hull.bytes() / kMostBytesPerByte > data;
}
/// True for a range that is leased by itself; `least`: the threshold.
inline bool pays(Range range, std::uint64_t data, std::uint64_t least) {
  return data >= least && !scattered(range, data);
}

class Touched {
 public:
  struct Piece {
    Address begin, end;  // no Range: most pieces are never used, nor set
    std::uint64_t data;
    Range range() const { return {begin, end}; }
  };
  static constexpr std::size_t kMost = 64;  ///< ranges of a buffer

  /// `n` elements at `at`, each `extent` bytes from the one before. Too many pieces make all of it unknown.
  void add(Address at, std::span<const Run> runs, std::ptrdiff_t n, std::ptrdiff_t extent);
  void add(Range range, std::uint64_t data);
  void give_up() { known_ = false; }
  bool known() const { return known_; }
  /// The ranges in the order of addresses, after all is added; none where unknown.
  std::span<const Piece> ranges();
  /// Calls lease(Range) for each range to lease: each for itself where all of them pay, else the hull, else
  /// those that pay. False where the ranges are unknown and the hull does not pay.
  template <class Lease>
  bool for_each_to_lease(Range hull, std::uint64_t data, std::uint64_t least, Lease lease) {
    const auto touched = ranges();
    const auto pays_by_itself = [&](const Piece& piece) { return pays(piece.range(), piece.data, least); };
    const bool all_pay = known_ && std::all_of(touched.begin(), touched.end(), pays_by_itself);
    // One region costs less than many small ones.
    if (!all_pay && !scattered(hull, data)) {
      lease(hull);
      return true;
    }
    for (const Piece& piece : touched)
      if (pays_by_itself(piece)) lease(piece.range());
    return known_;
  }

 private:
  static constexpr std::size_t kPieces = 256;

  bool known_ = true;
  std::size_t count_ = 0;
  std::array<Piece, kPieces> pieces_;
};

}  // namespace pinion::mpi
