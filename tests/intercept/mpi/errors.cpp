// Prints how often the program's error handlers run, and for which errors: in calls with bad arguments of
// every kind, and where a request that was freed ends badly. Pinion leaves the output unchanged. One rank.
#include <mpi.h>

#include <cstdio>
#include <string>
#include <vector>

namespace {

int g_runs = 0;
int g_class = 0;

void note(int code) {
  ++g_runs;
  MPI_Error_class(code, &g_class);
}
void on_comm(MPI_Comm*, int* code, ...) { note(*code); }
void on_win(MPI_Win*, int* code, ...) { note(*code); }
void on_file(MPI_File*, int* code, ...) { note(*code); }

#ifdef OPEN_MPI
constexpr bool kIsOpenMpi = true;
#else
constexpr bool kIsOpenMpi = false;
#endif
constexpr int kCount = 50000;
std::vector<int> out(4 * kCount, 1), in(4 * kCount);
MPI_Request request = MPI_REQUEST_NULL;

template <class Call>
void count(const std::string& what, Call call) {
  g_runs = g_class = 0;
  request = MPI_REQUEST_NULL;
  const int result = call();
  std::printf("%s: handlers ran %d times, class %d, returned %s\n", what.c_str(), g_runs, g_class,
              result == MPI_SUCCESS ? "success" : "an error");
}

void transfers(const std::string& what, int n, MPI_Datatype type, MPI_Comm comm) {
  count(what + ": Send", [&] { return MPI_Send(out.data(), n, type, 0, 0, comm); });
  count(what + ": Isend", [&] { return MPI_Isend(out.data(), n, type, 0, 0, comm, &request); });
  count(what + ": Recv", [&] { return MPI_Recv(in.data(), n, type, 0, 0, comm, MPI_STATUS_IGNORE); });
  count(what + ": Irecv", [&] { return MPI_Irecv(in.data(), n, type, 0, 0, comm, &request); });
  count(what + ": Recv_init", [&] { return MPI_Recv_init(in.data(), n, type, 0, 0, comm, &request); });
  count(what + ": Sendrecv", [&] {
    return MPI_Sendrecv(out.data(), n, type, 0, 0, in.data(), n, type, 0, 0, comm, MPI_STATUS_IGNORE);
  });
  count(what + ": Sendrecv_replace",
        [&] { return MPI_Sendrecv_replace(in.data(), n, type, 0, 0, 0, 0, comm, MPI_STATUS_IGNORE); });
}

void collectives(const std::string& what, int n, MPI_Datatype type, MPI_Comm comm) {
  int counts[1] = {n}, offsets[1] = {0};
  count(what + ": Bcast", [&] { return MPI_Bcast(in.data(), n, type, 0, comm); });
  count(what + ": Ibcast", [&] { return MPI_Ibcast(in.data(), n, type, 0, comm, &request); });
  count(what + ": Gather", [&] { return MPI_Gather(out.data(), n, type, in.data(), n, type, 0, comm); });
  count(what + ": Scatter", [&] { return MPI_Scatter(out.data(), n, type, in.data(), n, type, 0, comm); });
  count(what + ": Gatherv",
        [&] { return MPI_Gatherv(out.data(), n, type, in.data(), counts, offsets, type, 0, comm); });
  if (comm != MPI_COMM_NULL || !kIsOpenMpi)  // where 4.1 crashes
    count(what + ": Allgather", [&] { return MPI_Allgather(out.data(), n, type, in.data(), n, type, comm); });
  count(what + ": Alltoall", [&] { return MPI_Alltoall(out.data(), n, type, in.data(), n, type, comm); });
  count(what + ": Ialltoall",
        [&] { return MPI_Ialltoall(out.data(), n, type, in.data(), n, type, comm, &request); });
  count(what + ": Allreduce", [&] { return MPI_Allreduce(out.data(), in.data(), n, type, MPI_SUM, comm); });
  count(what + ": Reduce", [&] { return MPI_Reduce(out.data(), in.data(), n, type, MPI_SUM, 0, comm); });
  count(what + ": Reduce_scatter",
        [&] { return MPI_Reduce_scatter(out.data(), in.data(), counts, type, MPI_SUM, comm); });
  count(what + ": Reduce_scatter_block",
        [&] { return MPI_Reduce_scatter_block(out.data(), in.data(), n, type, MPI_SUM, comm); });
  if (n > 0)  // MPICH fails an assertion
    count(what + ": Scan", [&] { return MPI_Scan(out.data(), in.data(), n, type, MPI_SUM, comm); });
  count(what + ": Neighbor_alltoall",
        [&] { return MPI_Neighbor_alltoall(out.data(), n, type, in.data(), n, type, comm); });
  count(what + ": Alltoallw", [&] {
    MPI_Datatype types[1] = {type};
    return MPI_Alltoallw(out.data(), counts, offsets, types, in.data(), counts, offsets, types, comm);
  });
}

void one_sided(const std::string& what, int n, MPI_Datatype type, MPI_Win win) {
  count(what + ": Put", [&] { return MPI_Put(out.data(), n, type, 0, 0, n, type, win); });
  count(what + ": Get", [&] { return MPI_Get(in.data(), n, type, 0, 0, n, type, win); });
  count(what + ": Rput", [&] { return MPI_Rput(out.data(), n, type, 0, 0, n, type, win, &request); });
  count(what + ": Accumulate",
        [&] { return MPI_Accumulate(out.data(), n, type, 0, 0, n, type, MPI_SUM, win); });
}

void files(const std::string& what, int n, MPI_Datatype type, MPI_File file) {
  count(what + ": File_write_at",
        [&] { return MPI_File_write_at(file, 0, out.data(), n, type, MPI_STATUS_IGNORE); });
  count(what + ": File_read_at",
        [&] { return MPI_File_read_at(file, 0, in.data(), n, type, MPI_STATUS_IGNORE); });
  count(what + ": File_iread_at", [&] { return MPI_File_iread_at(file, 0, in.data(), n, type, &request); });
}

/// Receives that are freed under way; then come longer messages than they have room for, or none at all.
void freed(const std::string& what, int n) {
  count(what, [&] {
    MPI_Request first, second;
    MPI_Irecv(in.data(), kCount, MPI_INT, 0, 7, MPI_COMM_WORLD, &first);
    const int result = MPI_Request_free(&first);
    MPI_Isend(out.data(), n, MPI_INT, 0, 7, MPI_COMM_WORLD, &second);
    MPI_Wait(&second, MPI_STATUS_IGNORE);
    for (int i = 0; i < 5; ++i) {
      MPI_Irecv(in.data(), kCount, MPI_INT, 0, 8, MPI_COMM_WORLD, &first);
      MPI_Send(out.data(), kCount, MPI_INT, 0, 8, MPI_COMM_WORLD);
      MPI_Wait(&first, MPI_STATUS_IGNORE);
    }
    return first == MPI_REQUEST_NULL ? result : 1;
  });
}

}  // namespace

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 1 << 16);
  MPI_Init(&argc, &argv);
  MPI_Errhandler on_comms, on_windows, on_files;
  MPI_Comm_create_errhandler(on_comm, &on_comms);
  MPI_Win_create_errhandler(on_win, &on_windows);
  MPI_File_create_errhandler(on_file, &on_files);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, on_comms);
  MPI_Comm_set_errhandler(MPI_COMM_SELF, on_comms);
  MPI_File_set_errhandler(MPI_FILE_NULL, on_files);
  MPI_Win win;
  MPI_Win_create(in.data(), static_cast<MPI_Aint>(in.size() * sizeof(int)), sizeof(int), MPI_INFO_NULL,
                 MPI_COMM_WORLD, &win);
  MPI_Win_set_errhandler(win, on_windows);

  MPI_Datatype uncommitted;
  MPI_Type_contiguous(2, MPI_INT, &uncommitted);
  transfers("no communicator", kCount, MPI_INT, MPI_COMM_NULL);
  collectives("no communicator", kCount, MPI_INT, MPI_COMM_NULL);
  transfers("no datatype", kCount, MPI_DATATYPE_NULL, MPI_COMM_WORLD);
  collectives("no datatype", kCount, MPI_DATATYPE_NULL, MPI_COMM_WORLD);
  transfers("uncommitted", kCount, uncommitted, MPI_COMM_WORLD);
  transfers("negative count", -1, MPI_INT, MPI_COMM_WORLD);
  collectives("negative count", -1, MPI_INT, MPI_COMM_WORLD);
  one_sided("no window", kCount, MPI_INT, MPI_WIN_NULL);
  one_sided("no epoch", kCount, MPI_INT, win);
  one_sided("no datatype", kCount, MPI_DATATYPE_NULL, win);
  files("no file", kCount, MPI_INT, MPI_FILE_NULL);
  for (int i = 0; i < 2; ++i) {
    count("no request: Request_free", [&] { return MPI_Request_free(&request); });
    count("no request: Start", [&] { return MPI_Start(&request); });
    count("no request: Wait", [&] { return MPI_Wait(&request, MPI_STATUS_IGNORE); });
  }
  count("no type: Type_free", [] {
    MPI_Datatype type = MPI_DATATYPE_NULL;
    return MPI_Type_free(&type);
  });
  count("no communicator: Comm_free", [] {
    MPI_Comm comm = MPI_COMM_NULL;
    return MPI_Comm_free(&comm);
  });
#ifndef OPEN_MPI
  // In Open MPI, the effect of handles whose objects are gone is undefined.
  MPI_Comm comm;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  MPI_Alltoall(out.data(), kCount, MPI_INT, in.data(), kCount, MPI_INT, comm);
  const MPI_Comm gone = comm;
  MPI_Comm_free(&comm);
  transfers("a freed communicator", kCount, MPI_INT, gone);
  collectives("a freed communicator", kCount, MPI_INT, gone);
  collectives("a communicator that never was", kCount, MPI_INT, static_cast<MPI_Comm>(0x840000ff));
#else
  count("no counts: Alltoallv", [] {
    return MPI_Alltoallv(out.data(), nullptr, nullptr, MPI_INT, in.data(), nullptr, nullptr, MPI_INT,
                         MPI_COMM_WORLD);
  });
  count("no counts: Reduce_scatter",
        [] { return MPI_Reduce_scatter(out.data(), in.data(), nullptr, MPI_INT, MPI_SUM, MPI_COMM_WORLD); });
  count("no request at all: Request_free", [] { return MPI_Request_free(nullptr); });
#endif
  freed("a freed receive", kCount);
  freed("a freed receive that is too short", 2 * kCount);

  MPI_Win_free(&win);
  std::printf("verified\n");
  MPI_Finalize();
}
