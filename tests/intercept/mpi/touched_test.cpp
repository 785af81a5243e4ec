// The ranges that a buffer with gaps touches: whole pages between pieces part them, and nothing else does.
#include "intercept/mpi/touched.h"

#include <gtest/gtest.h>

#include <vector>

namespace pinion::mpi {
namespace {

const Address kBase = Address{1} << 40;  // nothing is read there
std::size_t page() { return page_size(); }
Address at(std::size_t pages, std::size_t bytes = 0) { return kBase + pages * page() + bytes; }

std::vector<Range> ranges_of(Touched& touched) {
  std::vector<Range> ranges;
  for (const Touched::Piece& piece : touched.ranges()) ranges.push_back(piece.range());
  return ranges;
}

TEST(Touched, AWholePageBetweenPiecesPartsThem) {
  Touched touched;
  touched.add({at(0), at(1)}, page());
  touched.add({at(2), at(3)}, page());
  EXPECT_EQ(ranges_of(touched), (std::vector<Range>{{at(0), at(1)}, {at(2), at(3)}}));
}

TEST(Touched, ALongGapWithoutAWholePageJoins) {
  Touched touched;
  touched.add({at(0), at(1, 1)}, page() + 1);
  touched.add({at(2, page() - 1), at(4)}, page() + 1);
  EXPECT_EQ(ranges_of(touched), (std::vector<Range>{{at(0), at(4)}}));
  EXPECT_EQ(touched.ranges()[0].data, 2 * page() + 2);
}

TEST(Touched, OrdersAndJoinsPiecesThatOverlap) {
  Touched touched;
  touched.add({at(8), at(9)}, page());
  touched.add({at(0), at(4)}, 4 * page());
  touched.add({at(1), at(2)}, page());
  touched.add({at(3), at(5)}, 2 * page());
  EXPECT_EQ(ranges_of(touched), (std::vector<Range>{{at(0), at(5)}, {at(8), at(9)}}));
  EXPECT_EQ(touched.ranges()[0].data, 5 * page()) << "no more data than bytes";
}

TEST(Touched, ElementsInBothDirections) {
  const std::vector<mpi::Run> runs = {{static_cast<std::ptrdiff_t>(page()), page(), 8}};
  const auto step = static_cast<std::ptrdiff_t>(4 * page());
  Touched up, down;
  up.add(kBase, runs, 3, step);
  down.add(at(8), runs, 3, -step);
  const std::vector<Range> expected = {{at(1), at(2)}, {at(5), at(6)}, {at(9), at(10)}};
  EXPECT_EQ(ranges_of(up), expected);
  EXPECT_EQ(ranges_of(down), expected);
  EXPECT_EQ(up.ranges()[0].data, 8u);
}

TEST(Touched, ManyElementsNearEachOtherAreOneRange) {
  const std::vector<mpi::Run> runs = {{16, 8, 8}};
  Touched up, down;
  up.add(kBase, runs, 1'000'000, 64);
  down.add(at(0, 64 * 999'999), runs, 1'000'000, -64);
  const std::vector<Range> expected = {{at(0, 16), at(0, 16 + 64 * 999'999 + 8)}};
  EXPECT_EQ(ranges_of(up), expected);
  EXPECT_EQ(ranges_of(down), expected);
  EXPECT_EQ(up.ranges()[0].data, 8'000'000u);
}

TEST(Touched, TooManyRangesAreUnknown) {
  const std::vector<mpi::Run> runs = {{0, page(), page()}};
  const auto apart = static_cast<std::ptrdiff_t>(2 * page());
  Touched most, more, endless;
  most.add(kBase, runs, Touched::kMost, apart);
  EXPECT_EQ(most.ranges().size(), Touched::kMost);
  more.add(kBase, runs, Touched::kMost + 1, apart);
  EXPECT_TRUE(more.ranges().empty());
  EXPECT_FALSE(more.known());
  endless.add(kBase, runs, std::ptrdiff_t{1} << 40, apart);
  EXPECT_FALSE(endless.known());
}

TEST(Touched, NothingIsKnownToBeNothing) {
  Touched touched;
  touched.add({at(3), at(3)}, 0);
  touched.add(kBase, {}, 1 << 20, 8);
  EXPECT_TRUE(touched.ranges().empty());
  EXPECT_TRUE(touched.known());
}

std::vector<Range> to_lease(Touched& touched, Range hull, std::uint64_t data, std::uint64_t least) {
  std::vector<Range> ranges;
  touched.for_each_to_lease(hull, data, least, [&](Range range) { ranges.push_back(range); });
  return ranges;
}

TEST(Touched, RangesAreLeasedApartWhereEachReachesTheThreshold) {
  Touched touched;
  touched.add({at(0), at(1)}, page());
  touched.add({at(8), at(9)}, page());
  EXPECT_EQ(to_lease(touched, {at(0), at(9)}, 2 * page(), page()),
            (std::vector<Range>{{at(0), at(1)}, {at(8), at(9)}}));
}

TEST(Touched, TheHullIsLeasedWhereARangeIsTooSmall) {
  Touched touched;
  touched.add({at(0), at(4)}, 4 * page());
  touched.add({at(6), at(6, 8)}, 8);
  const Range hull{at(0), at(6, 8)};
  EXPECT_EQ(to_lease(touched, hull, 4 * page() + 8, page()), (std::vector<Range>{hull}));
}

TEST(Touched, AScatteredHullIsLeftAndOnlyLargeRangesAreLeased) {
  Touched touched;
  touched.add({at(0), at(2)}, 2 * page());
  touched.add({at(20), at(20, 8)}, 8);
  EXPECT_EQ(to_lease(touched, {at(0), at(20, 8)}, 2 * page() + 8, page()),
            (std::vector<Range>{{at(0), at(2)}}));
}

}  // namespace
}  // namespace pinion::mpi
