// Neighbourhood collectives in all their forms, on a ring (Cartesian), on a graph, and on a directed graph
// with a rank that only sends and one that only receives. Any number of ranks from 2 on.
#include <initializer_list>

#include "forms.h"

namespace {

constexpr int kCount = 9001;  // 36 KB a neighbour
int me, ranks;

std::size_t at(std::size_t i) { return i * kCount; }

/// The sources and destinations of a rank, in the order of its buffers.
struct Near {
  MPI_Comm comm;
  std::vector<int> sources, destinations;
};

int pair(int from, int to) { return 100 * from + to; }

void fill_for(std::vector<int>& out, const Near& near) {
  for (std::size_t i = 0; i < near.destinations.size(); ++i)
    fill(&out[at(i)], kCount, me, pair(me, near.destinations[i]));
}

void gather(const Near& near) {
  const auto own = message(kCount, me, 1);
  const std::size_t n = near.sources.size();
  std::vector<int> in(at(n) + 1, -1);
  COLLECTIVE(Neighbor_allgather, neighbor_allgather, own.data(), kCount, MPI_INT, in.data(), kCount, MPI_INT,
             near.comm);
  for (std::size_t i = 0; i < n; ++i) CHECK(holds(&in[at(i)], kCount, near.sources[i], 1));

  // None is ever empty: both MPIs refuse arrays of nothing that are null pointers.
  std::vector<count_t> counts(n + 1, kCount);
  std::vector<offset_t> offsets;
  offsets.reserve(n + 1);
  for (std::size_t i = 0; i < n; ++i) offsets.push_back(static_cast<offset_t>(at(n - 1 - i)));
  in.assign(at(n) + 1, -1);
  COLLECTIVE(Neighbor_allgatherv, neighbor_allgatherv, own.data(), kCount, MPI_INT, in.data(), counts.data(),
             offsets.data(), MPI_INT, near.comm);
  for (std::size_t i = 0; i < n; ++i) CHECK(holds(&in[at(n - 1 - i)], kCount, near.sources[i], 1));
}

void exchange(const Near& near) {
  const std::size_t ins = near.sources.size(), outs = near.destinations.size();
  std::vector<int> out(at(outs) + 1), in(at(ins) + 1, -1);
  fill_for(out, near);
  COLLECTIVE(Neighbor_alltoall, neighbor_alltoall, out.data(), kCount, MPI_INT, in.data(), kCount, MPI_INT,
             near.comm);
  const auto check = [&] {
    for (std::size_t i = 0; i < ins; ++i)
      CHECK(holds(&in[at(i)], kCount, near.sources[i], pair(near.sources[i], me)));
    in.assign(in.size(), -1);
  };
  // On a ring of two both neighbours are the same rank, and its messages may come either way round.
  const auto tagged = [&] { return ranks > 2 || ins != 2; };
  if (tagged()) check();

#if defined(MPICH_NUMVERSION) && !defined(LARGE_COUNTS)
  // MPICH 4.0 converts the arrays of int by the wrong one of both degrees.
  if (ins != outs) return;
#endif
  std::vector<count_t> in_counts(ins + 1, kCount), out_counts(outs + 1, kCount);
  std::vector<offset_t> in_offsets, out_offsets;
  std::vector<MPI_Aint> in_bytes, out_bytes;
  std::vector<MPI_Datatype> in_types(ins + 1, MPI_INT), out_types(outs + 1, MPI_INT);
  for (std::size_t i = 0; i < ins + 1; ++i) {
    in_offsets.push_back(static_cast<offset_t>(at(i)));
    in_bytes.push_back(static_cast<MPI_Aint>(at(i) * sizeof(int)));
  }
  for (std::size_t i = 0; i < outs + 1; ++i) {
    out_offsets.push_back(static_cast<offset_t>(at(i)));
    out_bytes.push_back(static_cast<MPI_Aint>(at(i) * sizeof(int)));
  }
  COLLECTIVE(Neighbor_alltoallv, neighbor_alltoallv, out.data(), out_counts.data(), out_offsets.data(),
             MPI_INT, in.data(), in_counts.data(), in_offsets.data(), MPI_INT, near.comm);
  if (tagged()) check();
  COLLECTIVE(Neighbor_alltoallw, neighbor_alltoallw, out.data(), out_counts.data(), out_bytes.data(),
             out_types.data(), in.data(), in_counts.data(), in_bytes.data(), in_types.data(), near.comm);
  if (tagged()) check();
}

Near ring() {
  Near near;
  const int periodic = 1;
  MPI_Cart_create(MPI_COMM_WORLD, 1, &ranks, &periodic, 0, &near.comm);
  near.sources = near.destinations = {(me + ranks - 1) % ranks, (me + 1) % ranks};
  return near;
}

// Everybody with rank 0.
Near star() {
  Near near;
  std::vector<int> ends, edges;
  for (int i = 1; i < ranks; ++i) edges.push_back(i);
  ends.push_back(ranks - 1);
  for (int i = 1; i < ranks; ++i) {
    edges.push_back(0);
    ends.push_back(ranks - 1 + i);
  }
  MPI_Graph_create(MPI_COMM_WORLD, ranks, ends.data(), edges.data(), 0, &near.comm);
  if (me == 0) {
    for (int i = 1; i < ranks; ++i) near.sources.push_back(i);
  } else {
    near.sources = {0};
  }
  near.destinations = near.sources;
  return near;
}

// A fan from 0 to all others, one way.
Near fan() {
  Near near;
  if (me == 0) {
    for (int i = 1; i < ranks; ++i) near.destinations.push_back(i);
  } else {
    near.sources = {0};
  }
  MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, static_cast<int>(near.sources.size()), near.sources.data(),
                                 MPI_UNWEIGHTED, static_cast<int>(near.destinations.size()),
                                 near.destinations.data(), MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &near.comm);
  return near;
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  me = world_rank();
  ranks = world_size();
  for (const Form form : kForms) {
    g_form = form;
    for (const auto make : {ring, star, fan}) {
      Near near = make();
      gather(near);
      exchange(near);
      MPI_Comm_free(&near.comm);
    }
  }
  return finish();
}
