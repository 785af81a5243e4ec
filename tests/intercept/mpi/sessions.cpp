// MPI sessions: one that begins first and ends last, and within it another one and MPI_Init to MPI_Finalize;
// Pinion sees all five exchanges. (That MPI begins anew after its end MPICH 4.0 does not survive.) Two ranks;
// MPI 4.
#include "check.h"

namespace {

MPI_Comm world_of(MPI_Session session) {
  MPI_Group group;
  MPI_Comm comm;
  MPI_Group_from_session_pset(session, "mpi://WORLD", &group);
  MPI_Comm_create_from_group(group, "pinion", MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &comm);
  MPI_Group_free(&group);
  return comm;
}

long exchange(MPI_Comm comm, int what) {
  int me;
  MPI_Comm_rank(comm, &me);
  const int other = 1 - me;
  const auto out = message(50000, me, what);
  std::vector<int> in(out.size());
  MPI_Sendrecv(out.data(), 50000, MPI_INT, other, 1, in.data(), 50000, MPI_INT, other, 1, comm,
               MPI_STATUS_IGNORE);
  return holds(in, other, what) ? 0 : 1;
}

long failures = 0;

}  // namespace

int main(int argc, char** argv) {
  MPI_Session session, another;
  MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &session);
  MPI_Comm comm = world_of(session);
  failures += exchange(comm, 1);
  MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &another);
  failures += exchange(comm, 2);
  MPI_Session_finalize(&another);
  failures += exchange(comm, 3);
  MPI_Init(&argc, &argv);
  failures += exchange(MPI_COMM_WORLD, 4);
  long all = 0;
  int me;
  MPI_Comm_rank(MPI_COMM_WORLD, &me);
  MPI_Finalize();
  failures += exchange(comm, 5);
  MPI_Allreduce(&failures, &all, 1, MPI_LONG, MPI_SUM, comm);
  if (me == 0) std::printf(all ? "FAILED\n" : "verified\n");
  MPI_Comm_free(&comm);
  MPI_Session_finalize(&session);
  return all ? EXIT_FAILURE : EXIT_SUCCESS;
}
