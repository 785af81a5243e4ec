// Which members of a communicator are on this node, over an MPI made up here: asked by two threads at once.
#include "intercept/mpi/groups.h"

#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <thread>

namespace pinion::mpi::PINION_MPI_ABI {

Library g_library;  // of the test, instead of the front's

namespace {

constexpr int kRanks = 64;

int (*g_delete)(Comm, int, void*, void*) = nullptr;
std::atomic<void*> g_attribute{nullptr};
std::atomic<int> g_set{0};
std::barrier<>* g_both_miss = nullptr;  ///< lets the threads find no attribute at the same time, once

int comm_get_attr(Comm, int, void* value, int* found) {
  void* const attribute = g_attribute.load();
  *static_cast<void**>(value) = attribute;
  *found = attribute != nullptr;
  if (thread_local bool first = true; !std::exchange(first, false)) return kSuccess;
  if (g_both_miss != nullptr) g_both_miss->arrive_and_wait();
  return kSuccess;
}
/// Deletes the value before, as MPI does.
int comm_set_attr(Comm comm, int keyval, void* value) {
  ++g_set;
  if (void* const before = g_attribute.exchange(value)) g_delete(comm, keyval, before, nullptr);
  return kSuccess;
}

class GroupsTest : public ::testing::Test {
 protected:
  GroupsTest() {
    g_library = {};
    g_library.comm_split_type = [](Comm, int, int, Info, Comm* node) {
      *node = {};
      return kSuccess;
    };
    g_library.comm_group = [](Comm, Group* group) {
      *group = {};
      return kSuccess;
    };
    g_library.comm_test_inter = [](Comm, int* inter) {
      *inter = 0;
      return kSuccess;
    };
    g_library.comm_create_keyval = [](int (*)(Comm, int, void*, void*, void*, int*),
                                      int (*remove)(Comm, int, void*, void*), int* keyval, void*) {
      g_delete = remove;
      *keyval = 1;
      return kSuccess;
    };
    g_library.group_size = [](Group, int* size) {
      *size = kRanks;
      return kSuccess;
    };
    g_library.group_translate_ranks = [](Group, int n, const int* ranks, Group, int* on_node) {
      for (int i = 0; i < n; ++i) on_node[i] = ranks[i] % 2 == 0 ? ranks[i] : kUndefined;
      return kSuccess;
    };
    g_library.group_free = [](Group*) { return kSuccess; };
    g_library.comm_free = [](Comm*) { return kSuccess; };
    g_library.comm_get_attr = comm_get_attr;
    g_library.comm_set_attr = comm_set_attr;
    find_node();
  }
  ~GroupsTest() override {
    forget_node();
    if (void* const attribute = g_attribute.exchange(nullptr)) g_delete({}, 1, attribute, nullptr);
    g_set = 0;
  }
};

TEST_F(GroupsTest, KnowsTheMembersOnThisNode) {
  EXPECT_TRUE(on_this_node({}, 0));
  EXPECT_FALSE(on_this_node({}, 1));
  EXPECT_FALSE(on_this_node({}, kRanks)) << "no rank";
  EXPECT_FALSE(all_on_this_node({}));
  EXPECT_EQ(g_set, 1);
}

// A second attribute would delete the first one, which the other thread reads.
TEST_F(GroupsTest, ThreadsThatAskFirstShareOneAnswer) {
  std::barrier both_miss(2);
  g_both_miss = &both_miss;
  const auto ask = [] {
    for (int rank = 0; rank < kRanks; ++rank) EXPECT_EQ(on_this_node({}, rank), rank % 2 == 0);
  };
  std::thread one(ask), other(ask);
  one.join();
  other.join();
  g_both_miss = nullptr;
  EXPECT_EQ(g_set, 1);
}

}  // namespace

}  // namespace pinion::mpi::PINION_MPI_ABI
