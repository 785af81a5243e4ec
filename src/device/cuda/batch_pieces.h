// The memory of a batch of copies, as blocks: there may be hundreds of thousands of pieces, at 200 ns each.
// So each step is linear in their number, and the room for them stays for the next batch: taken from the heap
// and given back at each call, it would have the C library trim the heap, and the program fault it in again.
//
// Owns that room. One thread at a time; several batches at once have room of their own.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "device/cuda/block.h"

namespace pinion::cuda {

class BatchPieces {
 public:
  BatchPieces();
  ~BatchPieces();
  BatchPieces(const BatchPieces&) = delete;
  BatchPieces& operator=(const BatchPieces&) = delete;

  /// Adds a run of bytes, or extends the last one of its side where nothing can lie between them.
  void add(Range piece, std::size_t side = 0) {
    if (piece.empty()) return;
    std::size_t& last = last_[side];
    if (last < room_->pieces.size() && extend(room_->pieces[last], piece)) return;
    last = room_->pieces.size();
    room_->pieces.push_back(piece);
  }
  /// Rows between which nothing can lie are one run of bytes.
  void add(const Block& block, std::size_t side);

  /// All that was added; in order, but for blocks of rows that lie apart. Once.
  std::span<Block> blocks();

 private:
  /// How many digits the sort tells apart at a time, as a power of two.
  static constexpr int kDigitBits = 11;
  struct Room {
    std::vector<Range> pieces, sorted;
    std::vector<Block> blocks;
    std::array<std::size_t, std::size_t{1} << kDigitBits> places;  ///< a thread's stack may have no room
  };
  static void sort(Room& room);
  static void sort_by_cell(Room& room);
  /// Room of an earlier batch; null: there is none, or another one has it.
  static constinit std::atomic<Room*> spare_;

  std::unique_ptr<Room> room_;
  std::array<std::size_t, 2> last_{SIZE_MAX, SIZE_MAX};  ///< the place of the last run of each side
};

}  // namespace pinion::cuda
