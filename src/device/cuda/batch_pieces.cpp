#include "device/cuda/batch_pieces.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace pinion::cuda {

namespace {

/// Room for more goes back at once. This much takes 29 MiB; the bars of so many pieces take 16.
constexpr std::size_t kMostKept = std::size_t{1} << 18;

/// Pieces that begin in one cell are one run of bytes in any order: nothing can lie between them.
constexpr int kCellBits = std::countr_zero(kLeastRegistered);
static_assert(std::has_single_bit(kLeastRegistered));
Address cell_of(Range piece) { return piece.begin >> kCellBits; }

/// extend(), where a piece of the run's own cell may begin before it.
bool join(Range& run, Range piece) {
  if (cell_of(piece) != cell_of(run)) return extend(run, piece);
  run = {std::min(run.begin, piece.begin), std::max(run.end, piece.end)};
  return true;
}

}  // namespace

/// Puts many pieces in the order of their cells, by radix.
void BatchPieces::sort_by_cell(Room& room) {
  auto& [pieces, sorted, blocks, places] = room;
  const auto [least, most] = std::minmax_element(pieces.begin(), pieces.end(),
                                                 [](Range a, Range b) { return cell_of(a) < cell_of(b); });
  const Address first = cell_of(*least), span = cell_of(*most) - first;
  sorted.resize(pieces.size());
  for (int shift = 0; shift < 64 && span >> shift != 0; shift += kDigitBits) {
    places.fill(0);
    const auto digit = [=, digits = places.size()](Range piece) {
      return ((cell_of(piece) - first) >> shift) % digits;
    };
    for (const Range piece : pieces) ++places[digit(piece)];
    std::size_t next = 0;
    for (std::size_t& count : places) next += std::exchange(count, next);
    for (const Range piece : pieces) sorted[places[digit(piece)]++] = piece;
    pieces.swap(sorted);
  }
}

void BatchPieces::sort(Room& room) {
  constexpr std::size_t kMany = 256;
  std::vector<Range>& pieces = room.pieces;
  const auto before = [](Range a, Range b) { return a.begin < b.begin; };
  if (std::is_sorted(pieces.begin(), pieces.end(), before)) return;
  if (pieces.size() < kMany) return std::sort(pieces.begin(), pieces.end(), before);
  sort_by_cell(room);
}

constinit std::atomic<BatchPieces::Room*> BatchPieces::spare_{nullptr};

BatchPieces::BatchPieces() : room_(spare_.exchange(nullptr, std::memory_order_acquire)) {
  if (!room_) room_ = std::make_unique<Room>();
}

BatchPieces::~BatchPieces() {
  Room& room = *room_;
  room.pieces.clear();
  room.blocks.clear();
  Room* none = nullptr;
  if (std::max({room.pieces.capacity(), room.sorted.capacity(), room.blocks.capacity()}) <= kMostKept &&
      spare_.compare_exchange_strong(none, &room, std::memory_order_release))
    static_cast<void>(room_.release());
}

void BatchPieces::add(const Block& block, std::size_t side) {
  if (block.empty()) return;
  const std::size_t layer = block.first.bytes() + (block.rows - 1) * block.pitch;
  const bool apart = (block.rows > 1 && block.pitch - block.first.bytes() >= kLeastRegistered) ||
                     (block.layers > 1 && block.slice - layer >= kLeastRegistered);
  apart ? room_->blocks.push_back(block) : add(block.hull(), side);
}

std::span<Block> BatchPieces::blocks() {
  sort(*room_);
  std::vector<Block>& blocks = room_->blocks;
  Range run;
  for (const Range piece : room_->pieces) {
    if (!run.empty() && join(run, piece)) continue;
    if (!run.empty()) blocks.push_back(run);
    run = piece;
  }
  if (!run.empty()) blocks.push_back(run);
  return blocks;
}

}  // namespace pinion::cuda
