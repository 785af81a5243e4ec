// The pieces of datatypes as the front keeps them, over an MPI made up here: how often it is asked, the
// handles that it lends, types it answers wrongly about, and threads.
#include "intercept/mpi/layouts.h"

#include <gtest/gtest.h>

#include <map>
#include <mutex>
#include <thread>

namespace pinion::mpi::PINION_MPI_ABI {

Library g_library;  // of the test, instead of the front's

namespace {

using Pieces = std::vector<mpi::Run>;

struct Type {
  int combiner = 1;  // predefined
  std::vector<int> ints;
  std::vector<Aint> addresses;
  std::vector<Datatype> made_of;
  int size = 0;
  Aint extent = 0, true_lower = 0, true_extent = 0;
  int references = 1;
};

std::mutex g_types_mutex;  ///< guards g_types, g_asked
std::map<Datatype, Type> g_types;
int g_asked = 0;         ///< for contents
bool g_refuses = false;  ///< all contents

constexpr Datatype kInt = 1;

template <class Use>
int with(Datatype type, Use use) {
  std::lock_guard lock(g_types_mutex);
  const auto found = g_types.find(type);
  if (found == g_types.end() || found->second.references == 0) {
    ADD_FAILURE() << "asked about a bad handle: " << type;
    return 1;
  }
  use(found->second);
  return kSuccess;
}
int type_size(Datatype type, int* bytes) {
  return with(type, [&](Type& t) { *bytes = t.size; });
}
int type_extent(Datatype type, Aint* lower, Aint* extent) {
  return with(type, [&](Type& t) { *lower = 0, *extent = t.extent; });
}
int type_true_extent(Datatype type, Aint* lower, Aint* extent) {
  return with(type, [&](Type& t) { *lower = t.true_lower, *extent = t.true_extent; });
}
int type_envelope(Datatype type, int* ints, int* addresses, int* types, int* combiner) {
  return with(type, [&](Type& t) {
    *ints = static_cast<int>(t.ints.size());
    *addresses = static_cast<int>(t.addresses.size());
    *types = static_cast<int>(t.made_of.size());
    *combiner = t.combiner;
  });
}
int type_contents(Datatype type, int, int, int, int* ints, Aint* addresses, Datatype* types) {
  if (g_refuses) return 1;
  std::vector<Datatype> lent;
  const int result = with(type, [&](Type& t) {
    ++g_asked;
    std::copy(t.ints.begin(), t.ints.end(), ints);
    std::copy(t.addresses.begin(), t.addresses.end(), addresses);
    std::copy(t.made_of.begin(), t.made_of.end(), types);
    lent = t.made_of;
  });
  for (const Datatype one : lent) with(one, [](Type& t) { ++t.references; });
  return result;
}
int type_free(Datatype* type) {
  return with(*type, [&](Type& t) {
    EXPECT_NE(t.combiner, 1) << "predefined types cannot be freed";
    --t.references;
  });
}

Type an_int() {
  Type type;
  type.size = 4;
  type.extent = type.true_extent = 4;
  return type;
}

class LayoutsTest : public ::testing::Test {
 protected:
  LayoutsTest() {
    g_library = {};
    g_library.type_size = type_size;
    g_library.type_extent = type_extent;
    g_library.type_true_extent = type_true_extent;
    g_library.type_envelope = type_envelope;
    g_library.type_contents = type_contents;
    g_library.type_free = type_free;
    g_types = {{kInt, an_int()}};
    g_asked = 0;
    g_refuses = false;
  }
  ~LayoutsTest() override {
    for (const auto& [handle, type] : g_types) {
      forget_runs(handle);
      EXPECT_TRUE(type.combiner == 1 || type.references == 1) << "of " << handle;
    }
  }

  /// `blocks` blocks of `length` ints, `stride` bytes apart.
  void make_hvector(Datatype handle, int blocks, int length, Aint stride, Datatype of = kInt) {
    const Type& inner = g_types.at(of);
    Type made;
    made.combiner = Combiners::hvector;
    made.ints = {blocks, length};
    made.addresses = {stride};
    made.made_of = {of};
    made.size = blocks * length * inner.size;
    made.true_extent = (blocks - 1) * stride + length * inner.extent;
    made.extent = made.true_extent;
    g_types[handle] = made;
  }
  static Pieces runs(Datatype type) {
    const Runs kept = runs_of(type, Layout(type));
    return kept ? *kept : Pieces();
  }
};

constexpr int kMegabyte = 1 << 20;
const Pieces kTwo = {{0, 4096, 4096}, {kMegabyte, 4096, 4096}};

TEST_F(LayoutsTest, DecodesATypeOnce) {
  make_hvector(10, 2, 1024, kMegabyte);
  EXPECT_EQ(runs(10), kTwo);
  EXPECT_EQ(runs(10), kTwo);
  EXPECT_EQ(g_asked, 1);
}

TEST_F(LayoutsTest, AHandleThatIsUsedAgainIsAnotherType) {
  make_hvector(10, 2, 1024, kMegabyte);
  EXPECT_EQ(runs(10), kTwo);
  forget_runs(10);
  make_hvector(10, 1, 512, 0);
  EXPECT_EQ(runs(10), (Pieces{{0, 2048, 2048}}));
}

TEST_F(LayoutsTest, ForgettingAnotherTypeChangesNothing) {
  make_hvector(10, 2, 1024, kMegabyte);
  EXPECT_EQ(runs(10), kTwo);
  for (Datatype other = 1000; other < 3000; ++other) forget_runs(other);  // those of the same place too
  EXPECT_EQ(runs(10), kTwo);
  EXPECT_EQ(g_asked, 1);
}

TEST_F(LayoutsTest, ReturnsTheHandlesThatItIsLent) {
  make_hvector(10, 2, 16, 256);
  make_hvector(11, 2, 1, kMegabyte, 10);
  EXPECT_EQ(runs(11), (Pieces{{0, 320, 128}, {kMegabyte, 320, 128}}));
  EXPECT_EQ(g_asked, 2);
}

TEST_F(LayoutsTest, ATypeThatMpiRefusesIsUnknown) {
  make_hvector(10, 2, 1024, kMegabyte);
  g_refuses = true;
  EXPECT_EQ(runs_of(10, Layout(10)), nullptr);
}

TEST_F(LayoutsTest, ATypeThatIsDecodedWronglyIsUnknown) {
  make_hvector(10, 2, 1024, kMegabyte);
  g_types[10].true_extent += 4;
  EXPECT_EQ(runs_of(10, Layout(10)), nullptr);
  forget_runs(10);
  g_types[10].true_extent -= 4;
  g_types[10].combiner = 99;  // of a later standard
  EXPECT_EQ(runs_of(10, Layout(10)), nullptr);
}

TEST_F(LayoutsTest, TooManyPiecesAreUnknown) {
  make_hvector(10, 65, 1024, kMegabyte);
  EXPECT_EQ(runs_of(10, Layout(10)), nullptr);
}

TEST_F(LayoutsTest, AnMpiWithoutTheFunctionsIsLeftAlone) {
  make_hvector(10, 2, 1024, kMegabyte);
  g_library.type_contents = nullptr;
  EXPECT_EQ(runs_of(10, Layout(10)), nullptr);
}

TEST_F(LayoutsTest, ThreadsShareTypesAndFreeTheirOwn) {
  make_hvector(10, 2, 1024, kMegabyte);
  constexpr int kThreads = 4, kOwn = 200;
  for (int thread = 0; thread < kThreads; ++thread)
    for (int i = 0; i < kOwn; ++i) make_hvector(1000 + thread * kOwn + i, 1, 512 + i, 0);
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread)
    threads.emplace_back([thread] {
      for (int i = 0; i < kOwn; ++i) {
        const Datatype own = 1000 + thread * kOwn + i;
        const std::size_t bytes = 4 * (512 + static_cast<std::size_t>(i));
        EXPECT_EQ(runs(own), (Pieces{{0, bytes, bytes}}));
        EXPECT_EQ(runs(10), kTwo);
        forget_runs(own);
      }
    });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace pinion::mpi::PINION_MPI_ABI
