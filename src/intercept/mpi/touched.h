// The memory that one buffer of a call touches, as the ranges to lease: pieces of data, joined where no whole
// page lies between them. So the ranges have exactly the pages that the data lie on. A value in the caller's
// frame; no locks, no allocation.
#pragma once

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

class Touched {
 public:
  struct Piece {
    Address begin, end;  // no Range: most of the room is never used, nor set
    std::uint64_t data;
    Range range() const { return {begin, end}; }
  };
  static constexpr std::size_t kMost = 64;  ///< ranges of a buffer

  /// `n` elements at `at`, each `extent` bytes from the one before. Too many pieces make all of it unknown.
  void add(Address at, std::span<const Run> runs, std::ptrdiff_t n, std::ptrdiff_t extent);
  void add(Range range, std::uint64_t data);
  void give_up() { known_ = false; }
  bool known() const { return known_; }
  /// After all is added: the ranges in the order of addresses; none where unknown.
  std::span<const Piece> ranges();

 private:
  static constexpr std::size_t kRoom = 256;

  bool known_ = true;
  std::size_t count_ = 0;
  std::array<Piece, kRoom> pieces_;
};

}  // namespace pinion::mpi
