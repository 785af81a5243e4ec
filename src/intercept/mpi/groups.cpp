#include "intercept/mpi/groups.h"

#include <numeric>
#include <vector>

#include "base/process_mutex.h"

namespace pinion::mpi::PINION_MPI_ABI {

namespace {

bool is_inter(Comm comm) {
  int inter = 0;
  library().comm_test_inter(comm, &inter);
  return inter != 0;
}

}  // namespace

Aint group_size(Comm comm) {
  int size = 0;
  (is_inter(comm) ? library().comm_remote_size : library().comm_size)(comm, &size);
  return size;
}

Aint local_size(Comm comm) {
  int size = 0;
  library().comm_size(comm, &size);
  return size;
}

int own_rank(Comm comm) {
  int rank = -1;
  library().comm_rank(comm, &rank);
  return rank;
}

bool is_root(Comm comm, int root) {
  if (root < 0) return root == kRoot;
  return !is_inter(comm) && own_rank(comm) == root;
}

Neighbours neighbours(Comm comm) {
  int topology = kUndefined, in = 0, out = 0;
  library().topo_test(comm, &topology);
  switch (topology) {
    case kCart:
      library().cartdim_get(comm, &in);
      return {2 * in, 2 * in};
    case kGraph:
      library().graph_neighbors_count(comm, own_rank(comm), &in);
      return {in, in};
    case kDistGraph: {
      int weighted = 0;
      library().dist_graph_neighbors_count(comm, &in, &out, &weighted);
      return {in, out};
    }
    default:
      return {};
  }
}

// ---- nodes ----

namespace {

Comm g_node_comm;
Group g_node;

/// Which members of a group are on this node.
struct Members {
  std::vector<bool> here;
  bool all = true;
};

/// Takes the group.
Members members_of_group(Group group) {
  int size = 0;
  library().group_size(group, &size);
  std::vector<int> ranks(static_cast<std::size_t>(size)), on_node(ranks.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  if (size > 0) library().group_translate_ranks(group, size, ranks.data(), g_node, on_node.data());
  library().group_free(&group);
  Members members;
  for (const int rank : on_node) {
    members.here.push_back(rank != kUndefined);
    members.all = members.all && rank != kUndefined;
  }
  return members;
}

bool contains(const Members& members, int rank) {
  return rank >= 0 && static_cast<std::size_t>(rank) < members.here.size() &&
         members.here[static_cast<std::size_t>(rank)];
}

// Known once for each communicator, and kept as its attribute, so that it goes when the communicator goes.
int g_keyval;

int do_not_copy(Comm, int, void*, void*, void*, int* flag) {
  *flag = 0;
  return kSuccess;
}
int remove_members(Comm, int, void* members, void*) {
  delete static_cast<Members*>(members);
  return kSuccess;
}

const Members* known_members_of(Comm comm) {
  void* known = nullptr;
  int found = 0;
  library().comm_get_attr(comm, g_keyval, &known, &found);
  return found ? static_cast<Members*>(known) : nullptr;
}

const Members& members_of(Comm comm) {
  if (const Members* const known = known_members_of(comm)) return *known;
  // MPI deletes an attribute when it gets another one, which other threads may read. So the first one stays.
  static constinit ProcessMutex first;
  const ProcessLock lock(first);
  if (const Members* const known = known_members_of(comm)) return *known;
  Group group;
  (is_inter(comm) ? library().comm_remote_group : library().comm_group)(comm, &group);
  auto* members = new Members(members_of_group(group));
  library().comm_set_attr(comm, g_keyval, members);
  return *members;
}

Members members_of_window(Win win) {
  Group group;
  library().win_get_group(win, &group);
  return members_of_group(group);
}

}  // namespace

void find_node() {
  const Library& mpi = library();
  if (mpi.comm_split_type(mpi.comm_world, kTypeShared, 0, mpi.info_null, &g_node_comm) != kSuccess) return;
  mpi.comm_group(g_node_comm, &g_node);
  mpi.comm_create_keyval(do_not_copy, remove_members, &g_keyval, nullptr);
  g_node_known.store(true, std::memory_order_release);
}

void forget_node() {
  if (!g_node_known.exchange(false)) return;
  library().group_free(&g_node);
  library().comm_free(&g_node_comm);
}

bool on_this_node(Comm comm, int rank) { return contains(members_of(comm), rank); }
bool all_on_this_node(Comm comm) { return members_of(comm).all; }
bool target_on_this_node(Win win, int target) { return contains(members_of_window(win), target); }
bool all_targets_on_this_node(Win win) { return members_of_window(win).all; }

}  // namespace pinion::mpi::PINION_MPI_ABI
