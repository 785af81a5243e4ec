// The parts of a preparation: pieces and their parts, the pace of faults, the caller's memory policy.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <thread>
#include <vector>

#include "device/kernel/memory_policy.h"
#include "monitor/map_changes.h"
#include "prepare/fault_pace.h"
#include "prepare/preparation_pieces.h"

namespace pinion {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

// ---- pieces

struct Cut {
  std::vector<Range> parts, pieces;
};
Cut cut(PreparationPieces& pieces) {
  Cut all;
  for (;;) {
    const PreparationPieces::Part part = pieces.take();
    if (part.piece == nullptr) return all;
    all.parts.push_back(part.pages);
    if (part.piece->faulted_in(part.pages)) all.pieces.push_back(part.piece->pages);
  }
}

void expect_covers(const std::vector<Range>& found, Range all) {
  Address at = all.begin;
  for (const Range& range : found) {
    EXPECT_EQ(range.begin, at);
    EXPECT_LT(range.begin, range.end);
    at = range.end;
  }
  EXPECT_EQ(at, all.end);
}

TEST(PreparationPieces, PartsAndPiecesCoverTheMemoryOnce) {
  const Range all{5 * kMiB, 105 * kMiB};
  PreparationPieces pieces({all}, 16 * kMiB);
  EXPECT_EQ(pieces.bytes(), 100 * kMiB);
  const Cut made = cut(pieces);
  expect_covers(made.parts, all);
  expect_covers(made.pieces, all);
  EXPECT_LE(made.parts.size(), pieces.most_parts());
  for (const Range& piece : made.pieces) {
    EXPECT_LE(piece.bytes(), 16 * kMiB);
    EXPECT_TRUE(piece.end == all.end || piece.end % (16 * kMiB) == 0);
  }
}

TEST(PreparationPieces, ABufferOfAPieceIsOne) {
  const Range all{15 * kMiB, 31 * kMiB};
  PreparationPieces pieces({all}, 16 * kMiB);
  EXPECT_EQ(cut(pieces).pieces, std::vector<Range>{all});
}

TEST(PreparationPieces, LargerPiecesAreTakenFromThenOn) {
  const Range all{0, 256 * kMiB};
  PreparationPieces pieces({all}, 16 * kMiB);
  ASSERT_EQ(pieces.take().pages, Range(0, 4 * kMiB));
  pieces.set_piece_bytes(64 * kMiB);
  std::vector<Range> of_pieces;
  for (PreparationPieces::Part part = pieces.take(); part.piece != nullptr; part = pieces.take())
    if (of_pieces.empty() || of_pieces.back() != part.piece->pages) of_pieces.push_back(part.piece->pages);
  expect_covers(of_pieces, all);
  EXPECT_EQ(of_pieces[0].bytes(), 16 * kMiB) << "begun already";
  EXPECT_EQ(of_pieces[1], Range(16 * kMiB, 64 * kMiB)) << "up to a multiple";
  EXPECT_EQ(of_pieces[2].bytes(), 64 * kMiB);
}

TEST(PreparationPieces, EmptyRangesAreNone) {
  PreparationPieces pieces({{kMiB, kMiB}, {2 * kMiB, 3 * kMiB}, {4 * kMiB, 4 * kMiB}}, 16 * kMiB);
  EXPECT_EQ(cut(pieces).pieces, (std::vector<Range>{{2 * kMiB, 3 * kMiB}}));
}

// ---- pace

class Mapped {
 public:
  explicit Mapped(std::size_t bytes)
      : bytes_(bytes),
        begin_(static_cast<char*>(
            ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {
    ::madvise(begin_, bytes, MADV_NOHUGEPAGE);
  }
  ~Mapped() { ::munmap(begin_, bytes_); }
  Mapped(const Mapped&) = delete;
  Mapped& operator=(const Mapped&) = delete;
  Range range() const { return Range::of(begin_, bytes_); }
  char* begin() const { return begin_; }
  bool present() const {
    std::vector<unsigned char> flags(range().pages());
    return ::mincore(begin_, bytes_, flags.data()) == 0 &&
           std::all_of(flags.begin(), flags.end(), [](unsigned char flag) { return flag & 1; });
  }

 private:
  std::size_t bytes_;
  char* begin_;
};

TEST(FaultPace, MakesMemoryPresentAndKeepsItsContents) {
  const Mapped memory(8 * kMiB);
  for (std::size_t at = 0; at < 8 * kMiB; at += 3 * kMiB / 2) std::memset(memory.begin() + at, 7, 100);
  FaultPace pace;
  const Error error = pace.fault_in(memory.range(), true);
  ASSERT_FALSE(error) << error.message;
  EXPECT_TRUE(memory.present());
  for (std::size_t at = 0; at < 8 * kMiB; at += 3 * kMiB / 2) {
    EXPECT_EQ(memory.begin()[at + 99], 7);
    EXPECT_EQ(memory.begin()[at + 100], 0);
  }
}

TEST(FaultPace, ACallThatNeverEndsHoldsItUpNoLonger) {
  MapChanges::set_seen(true);
  {
    const Mapped memory(8 * kMiB);
    FaultPace pace;
    const MapChange endless(true);
    ASSERT_TRUE(MapChanges::under_way());
    const Error error = pace.fault_in(memory.range(), true);
    EXPECT_FALSE(error) << error.message;
    EXPECT_TRUE(memory.present());
  }
  EXPECT_FALSE(MapChanges::under_way());
  MapChanges::set_seen(false);
}

TEST(FaultPace, UnmappedMemoryIsAnError) {
  const Mapped memory(2 * kMiB);
  ::munmap(memory.begin() + kMiB, kMiB / 2);
  FaultPace pace;
  EXPECT_EQ(pace.fault_in(memory.range(), true).code, EFAULT);
}

TEST(MapChanges, AreCountedOnlyWhileWatched) {
  {
    const MapChange before(true);
    EXPECT_FALSE(MapChanges::under_way());
    const MapChanges::Watch watch;
    const MapChange change(true), other(false);
    EXPECT_TRUE(MapChanges::under_way());
  }
  EXPECT_FALSE(MapChanges::under_way());
}

// ---- policy

constexpr int kInterleave = 3;

TEST(MemoryPolicy, IsTheCallersInAnotherThread) {
  if (memory_nodes() < 2) GTEST_SKIP() << "one node of memory";
  unsigned long nodes[16] = {};
  ASSERT_EQ(::syscall(SYS_get_mempolicy, nullptr, nodes, 1025, nullptr, 4 /* MPOL_F_MEMS_ALLOWED */), 0);
  ASSERT_EQ(::syscall(SYS_set_mempolicy, kInterleave, nodes, 1025), 0);
  const MemoryPolicy policy = MemoryPolicy::of_this_thread();
  ASSERT_EQ(::syscall(SYS_set_mempolicy, 0, nullptr, 0), 0);
  int mode = -1;
  std::thread([&] {
    policy.apply();
    ::syscall(SYS_get_mempolicy, &mode, nullptr, 0, nullptr, 0);
  }).join();
  EXPECT_EQ(mode, kInterleave);
}

TEST(MemoryPolicy, ChangesNothingOnOneNode) {
  if (memory_nodes() > 1) GTEST_SKIP() << "several nodes of memory";
  EXPECT_TRUE(MemoryPolicy::of_this_thread().changes_nothing());
}

}  // namespace
}  // namespace pinion
