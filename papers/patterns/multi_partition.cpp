#include "papers/patterns/multi_partition.h"

#include <algorithm>

namespace pinion::simulate {

MultiPartition::MultiPartition(int points, int ranks, int rank) : points_(points), side_(square_root(ranks)) {
  const int p = side_;
  const int column = rank % p, row = rank / p;
  for (int c = 0; c < p; ++c) {
    Cell cell{};
    cell.at = {(column + c) % p, (row - c + p) % p, c};
    for (std::size_t d = 0; d < 3; ++d) cell.size[d] = points / p + (cell.at[d] < points % p);
    cells_.push_back(cell);
  }
  const auto at = [p](int i, int j) { return (i + p) % p + p * ((j + p) % p); };
  successor_ = {at(column + 1, row), at(column, row + 1), at(column - 1, row + 1)};
  predecessor_ = {at(column - 1, row), at(column, row - 1), at(column + 1, row - 1)};
}

const MultiPartition::Cell& MultiPartition::in_stage(Direction d, int stage) const {
  return *std::find_if(cells_.begin(), cells_.end(), [&](const Cell& cell) { return cell.at[d] == stage; });
}

std::uint64_t MultiPartition::face_bytes(Direction d, int missing) const {
  constexpr std::uint64_t kLayers = 2, kValues = 5;
  std::uint64_t points = 0;
  for (const Cell& cell : cells_)
    if (cell.at[d] != missing) points += face(cell, d);
  return points * kLayers * kValues * kDouble;
}

std::uint64_t MultiPartition::faces_bytes() const {
  std::uint64_t sum = 0;
  for (const Direction d : {x, y, z}) sum += face_bytes(d, side_ - 1) + face_bytes(d, 0);
  return sum;
}

void MultiPartition::copy_faces(ProgramBuilder& builder, Address in, Address out, Site caller) const {
  if (side_ == 1) return;
  // The buffers hold the piece of each direction's predecessor, then the successor's, whose message comes
  // first.
  const auto exchange = [&](CallKind call, Address piece, Site line) {
    for (const Direction d : {x, y, z}) {
      const std::uint64_t lower = face_bytes(d, 0), upper = face_bytes(d, side_ - 1);
      builder.post(call, piece + lower, upper, successor(d), called_from(caller, line++));
      builder.post(call, piece, lower, predecessor(d), called_from(caller, line++));
      piece += lower + upper;
    }
  };
  exchange(CallKind::receive_nonblocking, in, 1);
  exchange(CallKind::send_nonblocking, out, 7);
  builder.wait();
}

void MultiPartition::sweep(ProgramBuilder& builder, Direction d, Address received, Address sent, Site caller,
                           const Way& forward, const Way& backward) const {
  for (int stage = 0; stage < side_; ++stage) {
    const std::uint64_t bytes = forward.bytes(stage);
    if (stage > 0)
      builder.post(CallKind::receive_nonblocking, received, bytes, predecessor(d), called_from(caller, 1));
    builder.compute(forward.overlapped_flops);
    if (stage > 0) builder.wait();
    builder.compute(forward.flops);
    if (stage + 1 < side_)
      builder.post(CallKind::send_nonblocking, sent, bytes, successor(d), called_from(caller, 2));
  }
  for (int stage = side_; stage-- > 0;) {
    const std::uint64_t bytes = backward.bytes(stage);
    if (stage + 1 < side_) {
      builder.post(CallKind::receive_nonblocking, received, bytes, successor(d), called_from(caller, 3));
      builder.compute(backward.overlapped_flops);
      builder.wait();
    }
    builder.compute(backward.flops);
    if (stage > 0)
      builder.post(CallKind::send_nonblocking, sent, bytes, predecessor(d), called_from(caller, 4));
  }
  builder.compute(backward.overlapped_flops);  // of the last cell
}

Error make_multi_partition(const char* name, std::span<const CubeClass> classes,
                           void (*write)(ProgramBuilder& builder, int points, std::uint64_t steps),
                           const std::string& scale, const std::string& ranks, Pattern& pattern) {
  Error error;
  const CubeClass* of = find_class(classes, name, scale, error);
  if (!of) return error;
  if ((error = read_ranks(ranks, name, RanksRule::square, pattern.ranks))) return error;
  if (of->points / square_root(pattern.ranks) < 3)
    return Error::make(EINVAL, "pattern %s: %d ranks leave cells of less than 3 points a side of class %c",
                       name, pattern.ranks, of->name);
  pattern.turns = of->steps;
  pattern.write = [write, points = of->points](ProgramBuilder& builder, std::uint64_t turns) {
    write(builder, points, turns);
  };
  return {};
}

}  // namespace pinion::simulate
