// The patterns' messages against sizes and counts worked out by hand from the decompositions, for small
// cases. pattern_order_test.cpp has their call sites and order.
#include "papers/patterns/pattern.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace pinion::simulate {
namespace {

const Machine kMachine;

Pattern pattern_of(const std::string& text) {
  Pattern pattern;
  const Error error = find_pattern(text, pattern);
  EXPECT_FALSE(error) << error.message;
  return pattern;
}

Placement packed(int ranks, int ppn) {
  Placement placement;
  EXPECT_FALSE(Placement::make(ranks, ppn, "packed", placement));
  return placement;
}

/// The calls of one rank to MPI, and the resulting program.
struct Written {
  std::vector<Message> messages;
  Program program;

  explicit Written(const std::string& text, int rank = 0, int ppn = 1) {
    const Pattern pattern = pattern_of(text);
    const Placement placement = packed(pattern.ranks, ppn);
    ProgramBuilder builder(rank, placement, kMachine);
    pattern.write(builder, pattern.turns);
    messages = builder.messages();
    program = builder.finish();
  }

  using Part = Message::Part;
  std::size_t count(Part part) const {
    return static_cast<std::size_t>(
        std::count_if(messages.begin(), messages.end(), [&](const Message& m) { return m.part == part; }));
  }
  std::size_t count(Part part, std::uint64_t bytes) const {
    return static_cast<std::size_t>(std::count_if(messages.begin(), messages.end(), [&](const Message& m) {
      return m.part == part && m.bytes == bytes;
    }));
  }
  std::vector<int> peers(CallKind call) const {
    std::vector<int> peers;
    for (const Message& m : messages)
      if (m.call == call && m.part == Part::turn) peers.push_back(m.peer);
    return peers;
  }
};
using Part = Message::Part;

// ---- NAS ----

// Class S, 12 points a side on 2x2 ranks: cells of 6, two a rank, one of which has a neighbour on each side.
TEST(Bt, MessagesOfAStep) {
  const Written bt("bt:S:4");
  EXPECT_EQ(bt.count(Part::before), 12u + 3 * 4);  // the step before the clock is started
  EXPECT_EQ(bt.count(Part::turn), 12u + 3 * 4);
  EXPECT_EQ(bt.count(Part::turn, 6 * 6 * 5 * 2 * 8), 12u);  // two layers of five values of one cell's face
  EXPECT_EQ(bt.count(Part::turn, 7 * 7 * 30 * 8), 3u * 2);  // forward, of the largest cell and one more
  EXPECT_EQ(bt.count(Part::turn, 7 * 7 * 5 * 8), 3u * 2);   // backward
  EXPECT_EQ(bt.program.threads[0].turns, 60u);
}

// 102 points on 4x4 ranks: cells are declared with floor(102 / 4) + 1 = 26 points a side, which the largest
// have; 408 on 2x2 with 205, one more than they have.
TEST(Bt, SweepsSendCellsAsDeclared) {
  EXPECT_EQ(Written("bt:B:16").count(Part::turn, 26 * 26 * 30 * 8), 3u * 2 * 3);
  EXPECT_EQ(Written("bt:D:4").count(Part::turn, 205 * 205 * 30 * 8), 3u * 2);
}

TEST(Bt, NeighboursOfTheMultiPartition) {
  // Rank 4 of 3x3 is column 1 in row 1.
  const Written bt("bt:S:9", 4);
  const auto sent = bt.peers(CallKind::send_nonblocking);
  // East, west, north, south, top, bottom.
  EXPECT_EQ((std::vector<int>(sent.begin(), sent.begin() + 6)), (std::vector<int>{5, 3, 7, 1, 6, 2}));
}

// Each message that a rank sends is received by its peer.
TEST(Bt, FacesAreSentAsTheyAreReceived) {
  const int ranks = 9;
  for (int rank = 0; rank < ranks; ++rank) {
    const Written from("bt:W:9", rank);
    for (std::size_t i = 6; i < 12; ++i) {
      const Message& sent = from.messages[i];
      const Written to("bt:W:9", sent.peer);
      const bool received = std::any_of(to.messages.begin(), to.messages.begin() + 6, [&](const Message& m) {
        return m.peer == rank && m.bytes == sent.bytes;
      });
      EXPECT_TRUE(received) << rank << " to " << sent.peer;
    }
  }
}

TEST(Sp, MessagesOfAStep) {
  const Written sp("sp:S:4");
  EXPECT_EQ(sp.count(Part::turn), 12u + 3 * 4);
  EXPECT_EQ(sp.count(Part::turn, 6 * 6 * 5 * 2 * 8), 12u);
  EXPECT_EQ(sp.count(Part::turn, 5 * 5 * 22 * 8), 3u * 2);  // one layer of each side lies at the boundary
  EXPECT_EQ(sp.count(Part::turn, 5 * 5 * 10 * 8), 3u * 2);
  EXPECT_EQ(sp.program.threads[0].turns, 100u);
}

// 12 points on 2x2 ranks: 6 by 6 by 12. A corner has two neighbours.
TEST(Lu, MessagesOfAStep) {
  const Written lu("lu:S:4", 0);
  // Forcing terms, a step with right-hand sides before it, and those before the clock is started.
  EXPECT_EQ(lu.count(Part::before), 4u + 4 + 2 * 2 * 10 + 4 + 4);
  // Two sweeps over ten inner planes; the outermost points of the grid are not solved for.
  EXPECT_EQ(lu.count(Part::turn, 5 * 5 * 8), 2u * 2 * 10);
  EXPECT_EQ(lu.count(Part::turn, 10 * 6 * 12 * 8), 4u);
  EXPECT_EQ(lu.count(Part::turn), 2u * 2 * 10 + 4);
  EXPECT_EQ(lu.peers(CallKind::receive_nonblocking), (std::vector<int>{1, 2}));  // south, east
}

// Twice as many ranks across x as across y.
TEST(Lu, EightRanksAreFourByTwo) {
  const Written lu("lu:A:8", 1);
  EXPECT_EQ(lu.count(Part::turn, 10 * 32 * 64 * 8), 4u);  // north and south, faces of y and z
  EXPECT_EQ(lu.count(Part::turn, 10 * 16 * 64 * 8), 2u);  // east, faces of x and z
}

// 1400 rows on 2x2 ranks: 700 each. A product is an exchange with the other of the row and one with the
// transposed.
TEST(Cg, MessagesOfAnIterationOnASquare) {
  const Written cg("cg:S:4", 1);
  EXPECT_EQ(cg.count(Part::turn), 26u * 4);
  EXPECT_EQ(cg.count(Part::before), 26u * 4);
  EXPECT_EQ(cg.count(Part::turn, 700 * 8), 26u * 4);
  EXPECT_EQ(cg.messages[0].peer, 0);
  EXPECT_EQ(cg.messages[2].peer, 2);
}

// 1x2 ranks: each has all rows, and half of them to sum up.
TEST(Cg, MessagesOfAnIterationOnARectangle) {
  const Written cg("cg:S:2", 0);
  EXPECT_EQ(cg.count(Part::turn, 700 * 8), 26u * 4);
  EXPECT_EQ(cg.messages[0].peer, 1);
  EXPECT_EQ(cg.messages[1].address - cg.messages[3].address, 700u * 8);  // the other's half, then its own
  EXPECT_EQ(cg.messages[2].peer, 0);                                     // its own transposed
}

TEST(Cg, PartnersOnTwoByFour) {
  const Written cg("cg:S:8", 5);  // row 1, column 1
  EXPECT_EQ(cg.messages[0].peer, 4);
  EXPECT_EQ(cg.messages[2].peer, 7);
  EXPECT_EQ(cg.messages[4].peer, 3);
}

TEST(Cg, FourThousandRanksAreTwoClasses) {
  // 64x64: seven exchanges of 23437 or 23438 rows; those on the diagonal keep the last one to themselves.
  const Written cg("cg:D:4096", 1);
  EXPECT_EQ(cg.count(Part::turn), 26u * 14);
  EXPECT_EQ(cg.program.acquires(), 101u * 26 * 14);
  const Written diagonal("cg:D:4096", 65);
  EXPECT_EQ(diagonal.program.acquires(), 101u * 26 * 12);
}

// 64^3 complex numbers on 4 ranks: arrays of 1 MiB.
TEST(Ft, SlabsTransposeOnce) {
  const Written ft("ft:S:4");
  EXPECT_EQ(ft.count(Part::before, 1 << 20), 2u * 2);
  EXPECT_EQ(ft.count(Part::turn, 1 << 20), 2u);
  EXPECT_EQ(ft.program.acquires(), 2u * 2 + 6 * 2);
}

TEST(Ft, PencilsTransposeTwice) {
  const Written ft("ft:S:2x2");
  EXPECT_EQ(ft.count(Part::before, 1 << 20), 2u * 4);
  EXPECT_EQ(ft.count(Part::turn, 1 << 20), 4u);
}

TEST(Ft, ThreeArrays) {
  const Written ft("ft:S:4");
  std::vector<Address> arrays;
  for (const Message& m : ft.messages) arrays.push_back(m.address);
  std::sort(arrays.begin(), arrays.end());
  arrays.erase(std::unique(arrays.begin(), arrays.end()), arrays.end());
  EXPECT_EQ(arrays.size(), 3u);
}

TEST(Ft, GridInsteadOfClass) {
  const Written ft("ft:64x64x64:4");
  EXPECT_EQ(ft.count(Part::turn, 1 << 20), 2u);
  EXPECT_EQ(ft.program.threads[0].turns, 25u);
}

// Ranks 0 and 1 share a node: a row's exchange stays there, a column's leaves it.
TEST(Ft, PeersOnTheNodeNeedNoRegistration) {
  const Written ft("ft:S:2x2", 0, 2);
  EXPECT_EQ(ft.program.acquires(), 2u * 2 + 6 * 2);
  // Four ranks of which two share the node: their halves of the arrays stay out.
  const Written slab("ft:S:4", 0, 2);
  for (const Operation& operation : slab.program.threads[0].turn)
    if (operation.kind == Operation::Kind::acquire) {
      EXPECT_EQ(operation.range.bytes(), std::size_t{1} << 19);
    }
}

// 32 points a side on 2x2x2 ranks: 16 each, two ghosts.
TEST(Mg, MessagesOfACycle) {
  const Written mg("mg:S:8");
  // Levels of 32, 16, 8, 4 and 2 points: four restrictions, the coarsest smoothed, two exchanges on each of
  // four levels on the way up, and the residual.
  EXPECT_EQ(mg.count(Part::turn), (4u + 1 + 2 * 4 + 1) * 3 * 4);
  EXPECT_EQ(mg.count(Part::turn, 16 * 16 * 8), 3u * 4);
  EXPECT_EQ(mg.count(Part::turn, 18 * 16 * 8), 3u * 4);
  EXPECT_EQ(mg.count(Part::turn, 18 * 18 * 8), 3u * 4);
  EXPECT_EQ(mg.count(Part::turn, 8 * 8 * 8), 3u * 4);  // at 16 points: restriction and two exchanges
}

// 65536 keys of 4 bytes on 4 ranks.
TEST(Is, KeysOfAnIteration) {
  const Written is("is:S:4");
  EXPECT_EQ(is.count(Part::turn, 65536), 2u);
  EXPECT_EQ(is.program.threads[0].turns, 10u);
}

TEST(Nas, OneRankSendsNothing) {
  for (const char* name : {"bt:A:1", "sp:A:1", "lu:A:1", "cg:A:1", "ft:A:1", "mg:A:1", "is:A:1"})
    EXPECT_EQ(Written(name).program.acquires(), 0u) << name;
}

TEST(Nas, EveryClassCanBeWritten) {
  for (const char* name : {"bt", "sp", "lu", "cg", "ft", "mg", "is"})
    for (const char* scale : {"S", "W", "A", "B", "C", "D", "E"})
      EXPECT_GT(Written(std::string(name) + ":" + scale + ":4").messages.size(), 0u) << name << scale;
}

// ---- synthetic ----

TEST(Synthetic, ReuseHasThreeBuffersAndNoReuseOneForEachMessage) {
  const auto buffers = [](const Written& of) {
    std::vector<Address> all;
    for (const Message& m : of.messages) all.push_back(m.address);
    std::sort(all.begin(), all.end());
    return std::unique(all.begin(), all.end()) - all.begin();
  };
  const Written reuse("reuse:4M:2"), once("no-reuse:4M:2", 1);
  EXPECT_EQ(buffers(reuse), 3);
  EXPECT_EQ(reuse.program.acquires(), 30u);
  EXPECT_EQ(buffers(once), 30);
  EXPECT_EQ(once.program.acquires(), 30u);
  EXPECT_EQ(once.messages[0].call, CallKind::receive);
}

TEST(Synthetic, AllCanBeWritten) {
  for (const char* name : {"nested", "warm-up", "regime-change", "drift", "irregular"})
    EXPECT_GT(Written(std::string(name) + ":1M:1").program.acquires(), 100u) << name;
}

// A message as a time: latency and bytes over bandwidth.
TEST(Builder, MessageTakesItsTimeOnTheNetwork) {
  const Written reuse("reuse:3M:2");
  const std::vector<Operation>& turn = reuse.program.threads[0].turn;
  ASSERT_EQ(turn[1].kind, Operation::Kind::release);
  EXPECT_EQ(turn[1].transfer, 2 * kMicrosecond + static_cast<Duration>(3 * 1048576 / 1.5));
  EXPECT_EQ(turn[2].compute, kSecond);
}

TEST(Builder, MessagesBelowTheThresholdAreTimeOnly) {
  const Written reuse("reuse:16383:2");
  EXPECT_EQ(reuse.program.acquires(), 0u);
  EXPECT_EQ(reuse.messages.size(), 3u);
}

// ---- errors: one line each ----

TEST(PatternErrors, NameWhatIsValid) {
  const auto error_of = [](const std::string& text) {
    Pattern pattern;
    const Error error = find_pattern(text, pattern);
    EXPECT_TRUE(error) << text;
    EXPECT_EQ(std::string(error.message).find('\n'), std::string::npos);
    return std::string(error.message);
  };
  EXPECT_EQ(error_of("bt:C"), "pattern 'bt:C' is not of the form NAME:CLASS:RANKS");
  EXPECT_NE(error_of("xx:C:4").find("valid: bt, sp, lu, cg, ft, mg, is"), std::string::npos);
  EXPECT_EQ(error_of("bt:F:4"), "pattern bt: there is no class 'F'; valid: S, W, A, B, C, D, E");
  EXPECT_EQ(error_of("bt:C:8"),
            "pattern bt: '8' ranks are not valid; needed: a square number (1, 4, 9, 16, ...)");
  EXPECT_EQ(error_of("cg:C:12"),
            "pattern cg: '12' ranks are not valid; needed: a power of two (1, 2, 4, 8, ...)");
  for (const char* text : {"bt:S:64", "sp:S:64", "lu:S:256", "cg:S:2048", "ft:S:128x2", "ft:S:2xx2",
                           "ft:S:3x2", "mg:S:1048576", "is:S:512", "cg:C:0", "cg:C:-4", "cg:C:4x", "cg::4",
                           "reuse:nothing:2", "reuse:0:2", "reuse:4M:many", "ft:64x64:4", "ft:60x64x64:4"})
    error_of(text);
}

// ---- placement ----

TEST(PlacementTest, PackedAndRandom) {
  const Placement four = packed(10, 4);
  EXPECT_EQ(four.nodes(), 3);
  EXPECT_EQ(four.ranks_of(2), (std::vector<int>{8, 9}));
  EXPECT_TRUE(four.same_node(0, 3));
  EXPECT_FALSE(four.same_node(3, 4));
  Placement one, same, other;
  ASSERT_FALSE(Placement::make(64, 4, "random:1", one));
  ASSERT_FALSE(Placement::make(64, 4, "random:1", same));
  ASSERT_FALSE(Placement::make(64, 4, "random:2", other));
  bool differ = false;
  for (int rank = 1; rank < 64; ++rank) {
    EXPECT_EQ(one.same_node(0, rank), same.same_node(0, rank));
    differ |= one.same_node(0, rank) != other.same_node(0, rank);
  }
  EXPECT_TRUE(differ);
  for (int node = 0; node < 16; ++node) EXPECT_EQ(one.ranks_of(node).size(), 4u);
  EXPECT_TRUE(Placement::make(4, 0, "packed", other));
  EXPECT_TRUE(Placement::make(4, 1, "random", other));
  EXPECT_TRUE(Placement::make(4, 1, "random:x", other));
}

}  // namespace
}  // namespace pinion::simulate
