// The NAS patterns against the sources of NPB 3.3-MPI: the order of a rank's messages, which of them have one
// call site, and the program's time, by the benchmark's own count of operations.
//
// The lists are made from the sources: the calls that lead to each message, subroutine by subroutine. Two
// messages have one call site if these are the same lines.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "papers/patterns/pattern.h"

namespace pinion::simulate {
namespace {

/// A message as the source has it: the lines that lead to it, its kind and peer.
struct Expected {
  std::string stack;
  CallKind call;
  int peer;
};
using Calls = std::vector<Expected>;

struct Written {
  std::vector<Message> messages;
  Program program;

  explicit Written(const std::string& text, int rank = 0) {
    Pattern pattern;
    const Error error = find_pattern(text, pattern);
    EXPECT_FALSE(error) << error.message;
    Placement placement;
    EXPECT_FALSE(Placement::make(pattern.ranks, 1, "packed", placement));
    const Machine machine;
    ProgramBuilder builder(rank, placement, machine);
    pattern.write(builder, pattern.turns);
    messages = builder.messages();
    program = builder.finish();
  }
};

/// Equal stacks have equal sites, different ones different sites.
void expect_as_in_source(const Written& written, const Calls& before, const Calls& turn, std::size_t sites) {
  Calls all = before;
  all.insert(all.end(), turn.begin(), turn.end());
  ASSERT_EQ(written.messages.size(), all.size());
  std::map<std::string, std::uint64_t> site_of;
  std::map<std::uint64_t, std::string> stack_of;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Message& message = written.messages[i];
    SCOPED_TRACE(std::to_string(i) + ": " + all[i].stack);
    EXPECT_EQ(message.part, i < before.size() ? Message::Part::before : Message::Part::turn);
    EXPECT_EQ(message.call, all[i].call);
    EXPECT_EQ(message.peer, all[i].peer);
    EXPECT_EQ(site_of.try_emplace(all[i].stack, message.site).first->second, message.site);
    EXPECT_EQ(stack_of.try_emplace(message.site, all[i].stack).first->second, all[i].stack);
  }
  EXPECT_EQ(stack_of.size(), sites);
}

constexpr CallKind kReceive = CallKind::receive, kSend = CallKind::send;
constexpr CallKind kIrecv = CallKind::receive_nonblocking, kIsend = CallKind::send_nonblocking;

// ---- LU: 4x4 ranks, rank 5 has all four neighbours ----

struct Lu {
  static constexpr int kNorth = 4, kSouth = 6, kWest = 1, kEast = 9;
  Calls calls;

  void exchange_3(const std::string& caller, const std::string& lower, int below, const std::string& upper,
                  int above) {
    calls.push_back({caller + " irecv " + lower, kIrecv, below});
    calls.push_back({caller + " send " + upper, kSend, above});
    calls.push_back({caller + " irecv " + upper, kIrecv, above});
    calls.push_back({caller + " send " + lower, kSend, below});
  }
  void rhs(const std::string& caller) {
    exchange_3(caller + " > exchange in x", "north", kNorth, "south", kSouth);
    exchange_3(caller + " > exchange in y", "west", kWest, "east", kEast);
  }
  void timestep(const std::string& caller, int planes) {
    for (int plane = 0; plane < planes; ++plane) {
      calls.push_back({caller + " > blts > exchange_1(0) north", kReceive, kNorth});
      calls.push_back({caller + " > blts > exchange_1(0) west", kReceive, kWest});
      calls.push_back({caller + " > blts > exchange_1(2) south", kSend, kSouth});
      calls.push_back({caller + " > blts > exchange_1(2) east", kSend, kEast});
    }
    for (int plane = 0; plane < planes; ++plane) {
      calls.push_back({caller + " > buts > exchange_1(1) south", kReceive, kSouth});
      calls.push_back({caller + " > buts > exchange_1(1) east", kReceive, kEast});
      calls.push_back({caller + " > buts > exchange_1(3) north", kSend, kNorth});
      calls.push_back({caller + " > buts > exchange_1(3) west", kSend, kWest});
    }
    rhs(caller + " > rhs in loop");
  }
};

TEST(LuSource, CallSitesAndOrder) {
  constexpr int kPlanes = 12 - 2;
  Lu before, turn;
  before.rhs("erhs");
  before.rhs("ssor(1) > rhs before loop");
  before.timestep("ssor(1)", kPlanes);
  before.rhs("ssor(itmax) > rhs before loop");
  turn.timestep("ssor(itmax)", kPlanes);
  // Ghosts: eight lines from five places; rows: eight lines from two.
  expect_as_in_source(Written("lu:S:16", 5), before.calls, turn.calls, 8 * 5 + 8 * 2);
}

// ---- MG ----

struct Mg {
  int top, least;  ///< levels of 2^top points to 2^least, the coarsest that is written
  int above[3], below[3];
  Calls calls{};

  void comm3(const std::string& caller) {
    for (int axis = 0; axis < 3; ++axis) {
      const std::string give3 = caller + " > comm3 give3 axis " + std::to_string(axis);
      calls.push_back({caller + " > comm3 ready(-1)", kIrecv, above[axis]});
      calls.push_back({caller + " > comm3 ready(+1)", kIrecv, below[axis]});
      calls.push_back({give3 + " up", kSend, above[axis]});
      calls.push_back({give3 + " down", kSend, below[axis]});
    }
  }
  void mg3p(const std::string& caller) {
    for (int level = top - 1; level >= least; --level) comm3(caller + " > rprj3");
    if (least == 1) comm3(caller + " > psinv coarsest");
    for (int level = std::max(2, least); level < top; ++level) {
      comm3(caller + " > resid in loop");
      comm3(caller + " > psinv in loop");
    }
    comm3(caller + " > resid at top");
    comm3(caller + " > psinv at top");
  }
  Calls before() {
    calls.clear();
    comm3("zran3 first");
    comm3("resid first");
    mg3p("mg3P startup");
    comm3("resid after startup");
    comm3("zran3 again");
    comm3("resid before loop");
    return calls;
  }
  Calls turn() {
    calls.clear();
    mg3p("mg3P in loop");
    comm3("resid in loop");
    return calls;
  }
};

// 2x2x2 ranks, levels of 32, 16, 8, 4 and 2 points. Two lines that receive and six that send, from six
// operators of two cycles and six lines of the program.
TEST(MgSource, CallSitesAndOrder) {
  Mg mg{5, 1, {1, 2, 4}, {1, 2, 4}};
  expect_as_in_source(Written("mg:S:8"), mg.before(), mg.turn(), 8 * (6 * 2 + 6));
}

// 4x4x4 ranks, rank 21 is the second of each direction. With 2 points some have none: left out, and with it
// the coarsest level's line.
TEST(MgSource, NeighboursAboveAndBelow) {
  Mg mg{5, 2, {22, 25, 37}, {20, 17, 5}};
  expect_as_in_source(Written("mg:S:64", 21), mg.before(), mg.turn(), 8 * (5 * 2 + 6));
}

// ---- BT and SP: 3x3 ranks, rank 4 ----

struct MultiPartitioned {
  static constexpr int kSuccessor[] = {5, 7, 6}, kPredecessor[] = {3, 1, 2};
  Calls calls;

  void copy_faces(const std::string& caller) {
    for (const CallKind call : {kIrecv, kIsend}) {
      for (int d = 0; d < 3; ++d) {
        const std::string line = caller + (call == kIrecv ? " irecv " : " isend ") + std::to_string(d);
        calls.push_back({line + " successor", call, kSuccessor[d]});
        calls.push_back({line + " predecessor", call, kPredecessor[d]});
      }
    }
  }
  void adi(const std::string& caller) {
    copy_faces(caller + " > copy_faces");
    for (int d = 0; d < 3; ++d) {
      const std::string solve = caller + " > solve " + std::to_string(d);
      for (int stage = 1; stage <= 3; ++stage) {
        if (stage > 1) calls.push_back({solve + " irecv forward", kIrecv, kPredecessor[d]});
        if (stage < 3) calls.push_back({solve + " isend forward", kIsend, kSuccessor[d]});
      }
      for (int stage = 3; stage >= 1; --stage) {
        if (stage < 3) calls.push_back({solve + " irecv backward", kIrecv, kSuccessor[d]});
        if (stage > 1) calls.push_back({solve + " isend backward", kIsend, kPredecessor[d]});
      }
    }
  }
};

TEST(BtSpSource, CallSitesAndOrder) {
  MultiPartitioned before, turn;
  before.adi("adi untimed");
  turn.adi("adi in loop");
  for (const char* pattern : {"bt:S:9", "sp:S:9"}) {
    SCOPED_TRACE(pattern);
    expect_as_in_source(Written(pattern, 4), before.calls, turn.calls, 2 * (12 + 3 * 4));
  }
}

// BT receives its sweeps into the buffer from which the exchange of faces is sent; SP has separate ones.
TEST(BtSpSource, BuffersOfSweeps) {
  const auto sweeps_receive_where_faces_do = [](const Written& written) {
    const Address faces = written.messages[1].address;  // the first piece of the buffer of receives
    for (std::size_t i = 12; i < 24; ++i)
      if (written.messages[i].call == kIrecv) return written.messages[i].address == faces;
    return false;
  };
  EXPECT_FALSE(sweeps_receive_where_faces_do(Written("bt:S:4")));
  EXPECT_TRUE(sweeps_receive_where_faces_do(Written("sp:S:4")));
}

// ---- CG: 2x4 ranks, rank 5: row 1, column 1 ----

struct Cg {
  Calls calls;

  void conj_grad(const std::string& caller) {
    const auto product = [&](const std::string& line) {
      for (const int partner : {4, 7}) {  // one line in a loop over the dimensions
        calls.push_back({caller + line + " sum irecv", kIrecv, partner});
        calls.push_back({caller + line + " sum send", kSend, partner});
      }
      calls.push_back({caller + line + " transpose irecv", kIrecv, 3});
      calls.push_back({caller + line + " transpose send", kSend, 3});
    };
    for (int step = 0; step < 25; ++step) product(" > q = A.p");
    product(" > r = A.z");
  }
};

TEST(CgSource, CallSitesAndOrder) {
  Cg before, turn;
  before.conj_grad("conj_grad untimed");
  turn.conj_grad("conj_grad in loop");
  expect_as_in_source(Written("cg:S:8", 5), before.calls, turn.calls, 2 * 2 * 4);
}

// ---- FT and IS: all-to-alls, each with a buffer that it sends and one that it receives ----

Calls alltoalls(std::initializer_list<const char*> stacks) {
  Calls calls;
  for (const char* stack : stacks) calls.insert(calls.end(), 2, {stack, CallKind::alltoall, -1});
  return calls;
}

TEST(FtSource, CallSitesAndOrder) {
  expect_as_in_source(Written("ft:S:4"), alltoalls({"fft untimed", "fft start"}), alltoalls({"fft in loop"}),
                      3);
  expect_as_in_source(
      Written("ft:S:2x2"),
      alltoalls({"fft untimed > x_y", "fft untimed > x_z", "fft start > x_y", "fft start > x_z"}),
      alltoalls({"fft in loop > x_z", "fft in loop > x_y"}), 6);
}

// The start transforms u1 to u0, an iteration u1 to u2; each transposition packs one array into the other and
// sends it back.
TEST(FtSource, ArraysOfTheTranspositions) {
  const auto arrays = [](const Written& written) {
    std::vector<std::uint64_t> numbers;
    const Address first = written.messages[0].address;  // u0
    for (const Message& message : written.messages) numbers.push_back((message.address - first) >> 20);
    return numbers;
  };
  EXPECT_EQ(arrays(Written("ft:S:4")), (std::vector<std::uint64_t>{0, 1, 0, 1, 2, 1}));
  EXPECT_EQ(arrays(Written("ft:S:2x2")), (std::vector<std::uint64_t>{0, 1, 1, 0, 0, 1, 1, 0, 2, 1, 1, 2}));
}

TEST(IsSource, CallSitesAndOrder) {
  expect_as_in_source(Written("is:S:4"), alltoalls({"rank(1) untimed"}), alltoalls({"rank in loop"}), 2);
}

// ---- times: computation as the benchmark counts it, at 1 Gflop/s; transfers by latency and bandwidth ----

struct Times {
  Duration compute = 0, transfer = 0;

  explicit Times(const Written& written) {
    const ThreadProgram& program = written.program.threads[0];
    const auto add = [&](const std::vector<Operation>& part, std::uint64_t times) {
      for (const Operation& operation : part) {
        compute += operation.compute * static_cast<Duration>(times);
        transfer += operation.transfer * static_cast<Duration>(times);
      }
    };
    add(program.before, 1);
    add(program.turn, program.turns);
    add(program.after, 1);
  }
};

void expect_computation(const std::string& pattern, double flops_of_a_rank) {
  const Times times{Written(pattern)};
  EXPECT_NEAR(static_cast<double>(times.compute), flops_of_a_rank, 1e-3 * flops_of_a_rank) << pattern;
}

// 2^23 points, each 5.23518 + 7.21113 ln 2^23 = 120.19 operations a transform, on two ranks: 0.504 s. Two
// starts and six iterations.
TEST(RunTime, Ft) { expect_computation("ft:A:2", 8 * 120.19 * (1 << 23) / 2); }

// Arrays of 64 MiB, half of which goes to the other rank at 1.5 GB/s, and half is copied at 4 GB/s.
TEST(RunTime, FtTransfers) {
  const double half = 1 << 25;
  const double by_hand = 8 * (2000 + half / 1.5 + half / 4);
  EXPECT_NEAR(static_cast<double>(Times(Written("ft:A:2")).transfer), by_hand, 1e-3 * by_hand);
}

// 2^23 keys of ten operations on two ranks: ten iterations and one before.
TEST(RunTime, Is) { expect_computation("is:A:2", 11 * 10.0 * (1 << 23) / 2); }

// 201 and 401 steps on four ranks.
TEST(RunTime, Bt) {
  expect_computation("bt:A:4", 201 * (3478.8 * 64 * 64 * 64 - 17655.7 * 64 * 64 + 28023.7 * 64) / 4);
}
TEST(RunTime, Sp) {
  expect_computation("sp:A:4",
                     401 * (881.174 * 64 * 64 * 64 - 4683.91 * 64 * 64 + 11484.5 * 64 - 19272.4) / 4);
}

// 251 steps; forcing terms and twice right-hand sides outside of a step, each 0.3 of it.
TEST(RunTime, Lu) {
  expect_computation(
      "lu:A:4", (251 + 3 * 0.3) * (1984.77 * 64 * 64 * 64 - 10923.3 * 64 * 64 + 27770.9 * 64 - 144010) / 4);
}

// 16 iterations.
TEST(RunTime, Cg) {
  constexpr double kNonzeros = 11 * 12;
  expect_computation("cg:A:4", 16 * 2.0 * 14000 * (3 + kNonzeros + 25 * (5 + kNonzeros) + 3) / 4);
}

// Five iterations of 58 operations a point; two residuals more, of 15 where an iteration has 46 + 75/7; twice
// the random charges.
TEST(RunTime, Mg) {
  constexpr double kScale = 58 / (46 + 75.0 / 7);
  expect_computation("mg:A:4", (5 * 58 + kScale * (2 * 15 + 2 * 7.4)) * (1 << 24) / 4);
}

}  // namespace
}  // namespace pinion::simulate
