// The common parts of the self-checking MPI programs here: contents that name their origin, checks that
// count, and the verdict. Plain MPI alone.
#pragma once

#include <mpi.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

inline long g_failures = 0;

#define CHECK(condition)                                                                         \
  do {                                                                                           \
    if (!(condition) && g_failures++ < 5)                                                        \
      std::printf("%s:%d: rank %d: not so: %s\n", __FILE__, __LINE__, world_rank(), #condition); \
  } while (false)

inline int world_rank() {
  int rank = -1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}
inline int world_size() {
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return size;
}

/// Element i of the message `what` from `rank`.
inline int element(int rank, int what, std::size_t i) {
  return static_cast<int>((static_cast<unsigned>(rank) * 7919u + static_cast<unsigned>(what)) * 2654435761u +
                          static_cast<unsigned>(i) * 40503u);
}

inline void fill(int* data, std::size_t count, int rank, int what) {
  for (std::size_t i = 0; i < count; ++i) data[i] = element(rank, what, i);
}
inline std::vector<int> message(std::size_t count, int rank, int what) {
  std::vector<int> data(count);
  fill(data.data(), count, rank, what);
  return data;
}
inline bool holds(const int* data, std::size_t count, int rank, int what) {
  for (std::size_t i = 0; i < count; ++i)
    if (data[i] != element(rank, what, i)) return false;
  return true;
}
inline bool holds(const std::vector<int>& data, int rank, int what) {
  return holds(data.data(), data.size(), rank, what);
}

/// Ends the program: rank 0 prints "verified" when no check failed on any rank.
inline int finish() {
  long all = 0;
  MPI_Allreduce(&g_failures, &all, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
  if (world_rank() == 0) std::printf(all ? "FAILED: %ld checks\n" : "verified\n", all);
  MPI_Finalize();
  return all ? EXIT_FAILURE : EXIT_SUCCESS;
}
