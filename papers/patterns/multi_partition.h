// The multi-partition decomposition that BT and SP share (NAS Parallel Benchmarks 2.0, report NAS-95-020,
// after Bruno and Cappello; also Naik, IBM): a cube of c^3 cells on c^2 ranks. Each has c cells, one in every
// plane of cells of every direction, so that all ranks work in every stage of a sweep. Values.
#pragma once

#include <array>
#include <functional>
#include <span>
#include <vector>

#include "papers/patterns/patterns.h"

namespace pinion::simulate {

class MultiPartition {
 public:
  enum Direction { x, y, z };
  struct Cell {
    std::array<int, 3> at;    ///< its coordinates, from 0
    std::array<int, 3> size;  ///< in grid points
  };

  MultiPartition(int points, int ranks, int rank);

  int cells_per_side() const { return side_; }
  const std::vector<Cell>& cells() const { return cells_; }
  int successor(Direction d) const { return successor_[d]; }
  int predecessor(Direction d) const { return predecessor_[d]; }
  /// Points a side that the program declares its cells with: the largest one's, or one more.
  int declared_side() const { return points_ / side_ + 1; }
  /// The cell that a sweep in direction `d` reaches in stage `stage`.
  const Cell& in_stage(Direction d, int stage) const;
  /// Points of the cell's face across `d`.
  static std::uint64_t face(const Cell& cell, Direction d) {
    return static_cast<std::uint64_t>(cell.size[(d + 1) % 3]) *
           static_cast<std::uint64_t>(cell.size[(d + 2) % 3]);
  }

  /// The exchange of two layers of ghost points, five values each, with all six neighbours at once
  /// (copy_faces): received into pieces of `in`, sent from pieces of `out`.
  void copy_faces(ProgramBuilder& builder, Address in, Address out, Site caller) const;
  /// One way of a sweep: the bytes that a stage passes on, its computation while its neighbour's message is
  /// under way, and that afterwards.
  struct Way {
    std::function<std::uint64_t(int stage)> bytes;
    double overlapped_flops, flops;
  };
  /// A sweep: each stage waits for its neighbour's message, computes, and sends its own; forward to the
  /// successor, then backward.
  void sweep(ProgramBuilder& builder, Direction d, Address received, Address sent, Site caller,
             const Way& forward, const Way& backward) const;
  /// Bytes of either buffer of copy_faces.
  std::uint64_t faces_bytes() const;

 private:
  std::uint64_t face_bytes(Direction d, int missing) const;

  int points_, side_;
  std::vector<Cell> cells_;
  std::array<int, 3> successor_, predecessor_;
};

/// Checks the arguments of BT and SP; `write` writes the program of a rank.
Error make_multi_partition(const char* name, std::span<const CubeClass> classes,
                           void (*write)(ProgramBuilder& builder, int points, std::uint64_t steps),
                           const std::string& scale, const std::string& ranks, Pattern& pattern);

}  // namespace pinion::simulate
