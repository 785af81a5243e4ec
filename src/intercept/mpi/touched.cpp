#include "intercept/mpi/touched.h"

#include <algorithm>
#include <cstdlib>

namespace pinion::mpi {

namespace {

bool whole_page_between(const Touched::Piece& low, const Touched::Piece& high) {
  return low.end < high.begin && page_ceil(low.end) < page_floor(high.begin);
}

}  // namespace

void Touched::add(Range range, std::uint64_t data) {
  if (range.empty()) return;
  if (count_ == kPieces) return give_up();
  pieces_[count_++] = {range.begin, range.end, std::min<std::uint64_t>(data, range.bytes())};
}

void Touched::add(Address at, std::span<const Run> runs, std::ptrdiff_t n, std::ptrdiff_t extent) {
  if (runs.empty() || n <= 0) return;
  const auto distance = static_cast<std::size_t>(std::abs(extent));
  // The gap between elements of one piece is less than a page: they need no walk.
  if (runs.size() == 1 && distance < runs[0].bytes + page_size()) {
    const std::ptrdiff_t reach = (n - 1) * extent;
    const Address begin = at + static_cast<Address>(runs[0].offset + std::min<std::ptrdiff_t>(reach, 0));
    return add({begin, begin + static_cast<Address>(std::abs(reach)) + runs[0].bytes},
               runs[0].data * static_cast<std::uint64_t>(n));
  }
  for (std::ptrdiff_t i = 0; i < n && known_; ++i)
    for (const Run& run : runs) {
      const Address begin = at + static_cast<Address>(i * extent + run.offset);
      add({begin, begin + run.bytes}, run.data);
    }
}

std::span<const Touched::Piece> Touched::ranges() {
  if (!known_ || count_ == 0) return {};
  const auto end = pieces_.begin() + static_cast<std::ptrdiff_t>(count_);
  std::sort(pieces_.begin(), end, [](const Piece& a, const Piece& b) { return a.begin < b.begin; });
  auto last = pieces_.begin();
  for (auto piece = last + 1; piece != end; ++piece) {
    if (whole_page_between(*last, *piece)) {
      *++last = *piece;
      continue;
    }
    last->end = std::max(last->end, piece->end);
    last->data = std::min<std::uint64_t>(last->data + piece->data, last->end - last->begin);
  }
  count_ = static_cast<std::size_t>(last - pieces_.begin()) + 1;
  if (count_ > kMost) known_ = false;
  return {pieces_.data(), known_ ? count_ : 0};
}

}  // namespace pinion::mpi
