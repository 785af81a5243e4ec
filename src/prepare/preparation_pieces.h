// The memory of a preparation, cut twice. A piece is one registration; a part of a piece is what one thread
// faults in at a time, so that several threads work on a large piece. The thread that faults in a piece's
// last part registers it.
//
// Owns the ranges and the pieces. take() and set_piece_bytes() may be called by any thread; a piece's
// transfer belongs to the thread that registers it; for_each() is for the time when no thread works any more.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/range.h"
#include "lease/transfer.h"

namespace pinion {

class PreparationPieces {
 public:
  struct Piece {
    Piece(Range all) : pages(all), missing(all.bytes()) {}
    const Range pages;
    std::atomic<std::size_t> missing;  ///< bytes that no thread has faulted in
    Transfer transfer;
    bool leased = false;

    /// True for the last part.
    bool faulted_in(Range part) {
      return missing.fetch_sub(part.bytes(), std::memory_order_acq_rel) == part.bytes();
    }
  };
  struct Part {
    Range pages;
    Piece* piece = nullptr;
  };

  /// A range that is no longer than `piece_bytes` is one piece, as long as its pages are at most `most`
  /// bytes: a buffer, which one registration must serve. Longer ones are cut at multiples of `piece_bytes`,
  /// so that hugepages stay whole.
  PreparationPieces(std::vector<Range> ranges, std::size_t piece_bytes, std::size_t most = SIZE_MAX)
      : ranges_(std::move(ranges)), whole_(piece_bytes), most_(most), piece_bytes_(piece_bytes) {
    for (const Range& range : ranges_) bytes_ += range.to_pages().bytes();
  }

  std::size_t bytes() const { return bytes_; }
  /// At least as many parts as the memory has.
  std::size_t most_parts() const { return bytes_ / kPart + 2 * (bytes_ / whole_ + ranges_.size()); }

  /// The next part; its piece is null when none is left.
  Part take() {
    const MutexLock lock(mutex_);
    if (rest_.empty() && !cut()) return {};
    const Range part = {rest_.begin, std::min(rest_.end, (rest_.begin / kPart + 1) * kPart)};
    rest_.begin = part.end;
    return {part, &pieces_.back()};
  }
  /// Of the pieces to come; a multiple of the first size.
  void set_piece_bytes(std::size_t bytes) {
    const MutexLock lock(mutex_);
    piece_bytes_ = bytes;
  }

  template <class Visit>
  void for_each(Visit&& visit) {
    const MutexLock lock(mutex_);
    for (Piece& piece : pieces_) visit(piece);
  }

 private:
  static constexpr std::size_t kPart = std::size_t{4} << 20;

  /// Makes the next piece. False: there is no memory left.
  bool cut() REQUIRES(mutex_) {
    while (next_ < ranges_.size() && at_ >= ranges_[next_].to_pages().bytes()) {
      ++next_;
      at_ = 0;
    }
    if (next_ == ranges_.size()) return false;
    const Range pages = ranges_[next_].to_pages();
    const bool whole = ranges_[next_].bytes() <= whole_ && pages.bytes() <= most_;
    const Address begin = pages.begin + at_;
    const Address end = whole ? pages.end : std::min(pages.end, (begin / piece_bytes_ + 1) * piece_bytes_);
    rest_ = {begin, end};
    at_ += rest_.bytes();
    pieces_.emplace_back(rest_);
    return true;
  }

  const std::vector<Range> ranges_;
  const std::size_t whole_, most_;
  std::size_t bytes_ = 0;
  Mutex mutex_;
  std::size_t piece_bytes_ GUARDED_BY(mutex_);
  std::size_t next_ GUARDED_BY(mutex_) = 0, at_ GUARDED_BY(mutex_) = 0;  ///< a range, and a place in it
  Range rest_ GUARDED_BY(mutex_);                                        ///< of the last piece
  std::deque<Piece> pieces_ GUARDED_BY(mutex_);
};

}  // namespace pinion
