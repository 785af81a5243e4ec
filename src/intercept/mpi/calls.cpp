// Every intercepted MPI call that carries buffers, one entry each: point-to-point and collectives.
#include "intercept/mpi/wrap.h"

using pinion::mpi::group_size;
using pinion::mpi::is_root;
using pinion::mpi::local_size;
using pinion::mpi::own_rank;
using pinion::mpi::sum_of;

// ---- point-to-point, blocking ----

#define SEND_PARAMETERS (const void* buf, int count, MPI_Datatype type, int dest, int tag, MPI_Comm comm)
#define SEND_ARGUMENTS (buf, count, type, dest, tag, comm)
PINION_MPI_BLOCKING(Send, SEND_PARAMETERS, SEND_ARGUMENTS, send, dest, use.reads(buf, count, type))
PINION_MPI_BLOCKING(Ssend, SEND_PARAMETERS, SEND_ARGUMENTS, send, dest, use.reads(buf, count, type))
PINION_MPI_BLOCKING(Rsend, SEND_PARAMETERS, SEND_ARGUMENTS, send, dest, use.reads(buf, count, type))
PINION_MPI_BLOCKING(
    Recv, (void* buf, int count, MPI_Datatype type, int source, int tag, MPI_Comm comm, MPI_Status* status),
    (buf, count, type, source, tag, comm, status), receive, source, use.writes(buf, count, type))
PINION_MPI_BLOCKING(Mrecv,
                    (void* buf, int count, MPI_Datatype type, MPI_Message* message, MPI_Status* status),
                    (buf, count, type, message, status), receive, -1, use.writes(buf, count, type))
PINION_MPI_BLOCKING(Sendrecv,
                    (const void* sendbuf, int sendcount, MPI_Datatype sendtype, int dest, int sendtag,
                     void* recvbuf, int recvcount, MPI_Datatype recvtype, int source, int recvtag,
                     MPI_Comm comm, MPI_Status* status),
                    (sendbuf, sendcount, sendtype, dest, sendtag, recvbuf, recvcount, recvtype, source,
                     recvtag, comm, status),
                    sendrecv, -1, if (dest != MPI_PROC_NULL) use.reads(sendbuf, sendcount, sendtype);
                    if (source != MPI_PROC_NULL) use.writes(recvbuf, recvcount, recvtype))
PINION_MPI_BLOCKING(Sendrecv_replace,
                    (void* buf, int count, MPI_Datatype type, int dest, int sendtag, int source, int recvtag,
                     MPI_Comm comm, MPI_Status* status),
                    (buf, count, type, dest, sendtag, source, recvtag, comm, status), sendrecv, -1,
                    use.writes(buf, count, type))

// ---- point-to-point, nonblocking and persistent ----

#define ISEND_PARAMETERS \
  (const void* buf, int count, MPI_Datatype type, int dest, int tag, MPI_Comm comm, MPI_Request* request)
#define ISEND_ARGUMENTS (buf, count, type, dest, tag, comm, request)
#define IRECV_PARAMETERS \
  (void* buf, int count, MPI_Datatype type, int source, int tag, MPI_Comm comm, MPI_Request* request)
#define IRECV_ARGUMENTS (buf, count, type, source, tag, comm, request)
PINION_MPI_NONBLOCKING(Isend, ISEND_PARAMETERS, ISEND_ARGUMENTS, send_nonblocking, dest,
                       use.reads(buf, count, type))
PINION_MPI_NONBLOCKING(Issend, ISEND_PARAMETERS, ISEND_ARGUMENTS, send_nonblocking, dest,
                       use.reads(buf, count, type))
PINION_MPI_NONBLOCKING(Irsend, ISEND_PARAMETERS, ISEND_ARGUMENTS, send_nonblocking, dest,
                       use.reads(buf, count, type))
PINION_MPI_NONBLOCKING(Irecv, IRECV_PARAMETERS, IRECV_ARGUMENTS, receive_nonblocking, source,
                       use.writes(buf, count, type))
PINION_MPI_NONBLOCKING(Imrecv,
                       (void* buf, int count, MPI_Datatype type, MPI_Message* message, MPI_Request* request),
                       (buf, count, type, message, request), receive_nonblocking, -1,
                       use.writes(buf, count, type))
PINION_MPI_PERSISTENT(Send_init, ISEND_PARAMETERS, ISEND_ARGUMENTS, send_persistent, dest, read)
PINION_MPI_PERSISTENT(Ssend_init, ISEND_PARAMETERS, ISEND_ARGUMENTS, send_persistent, dest, read)
PINION_MPI_PERSISTENT(Rsend_init, ISEND_PARAMETERS, ISEND_ARGUMENTS, send_persistent, dest, read)
PINION_MPI_PERSISTENT(Recv_init, IRECV_PARAMETERS, IRECV_ARGUMENTS, receive_persistent, source, write)

// ---- collectives ----

PINION_MPI_BLOCKING(
    Bcast, (void* buf, int count, MPI_Datatype type, int root, MPI_Comm comm), (buf, count, type, root, comm),
    broadcast, root, if (root != MPI_PROC_NULL) {
      if (is_root(comm, root)) {
        use.reads(buf, count, type);
      } else {
        use.writes(buf, count, type);
      }
    })
PINION_MPI_BLOCKING(Gather,
                    (const void* sendbuf, int sendcount, MPI_Datatype sendtype, void* recvbuf, int recvcount,
                     MPI_Datatype recvtype, int root, MPI_Comm comm),
                    (sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, root, comm), gather, root,
                    if (root != MPI_ROOT) use.reads(sendbuf, sendcount, sendtype);
                    if (is_root(comm, root))
                        use.writes(recvbuf, MPI_Aint{recvcount} * group_size(comm), recvtype))
PINION_MPI_BLOCKING(Gatherv,
                    (const void* sendbuf, int sendcount, MPI_Datatype sendtype, void* recvbuf,
                     const int* recvcounts, const int* displs, MPI_Datatype recvtype, int root,
                     MPI_Comm comm),
                    (sendbuf, sendcount, sendtype, recvbuf, recvcounts, displs, recvtype, root, comm), gather,
                    root, if (root != MPI_ROOT) use.reads(sendbuf, sendcount, sendtype);
                    if (is_root(comm, root))
                        use.writes_blocks(recvbuf, recvcounts, displs, group_size(comm), recvtype))
PINION_MPI_BLOCKING(Scatter,
                    (const void* sendbuf, int sendcount, MPI_Datatype sendtype, void* recvbuf, int recvcount,
                     MPI_Datatype recvtype, int root, MPI_Comm comm),
                    (sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, root, comm), scatter, root,
                    if (is_root(comm, root))
                        use.reads(sendbuf, MPI_Aint{sendcount} * group_size(comm), sendtype);
                    if (root != MPI_ROOT) use.writes(recvbuf, recvcount, recvtype))
PINION_MPI_BLOCKING(Scatterv,
                    (const void* sendbuf, const int* sendcounts, const int* displs, MPI_Datatype sendtype,
                     void* recvbuf, int recvcount, MPI_Datatype recvtype, int root, MPI_Comm comm),
                    (sendbuf, sendcounts, displs, sendtype, recvbuf, recvcount, recvtype, root, comm),
                    scatter, root,
                    if (is_root(comm, root))
                        use.reads_blocks(sendbuf, sendcounts, displs, group_size(comm), sendtype);
                    if (root != MPI_ROOT) use.writes(recvbuf, recvcount, recvtype))
PINION_MPI_BLOCKING(Allgather,
                    (const void* sendbuf, int sendcount, MPI_Datatype sendtype, void* recvbuf, int recvcount,
                     MPI_Datatype recvtype, MPI_Comm comm),
                    (sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm), allgather, -1,
                    use.reads(sendbuf, sendcount, sendtype);
                    use.writes(recvbuf, MPI_Aint{recvcount} * group_size(comm), recvtype))
PINION_MPI_BLOCKING(Allgatherv,
                    (const void* sendbuf, int sendcount, MPI_Datatype sendtype, void* recvbuf,
                     const int* recvcounts, const int* displs, MPI_Datatype recvtype, MPI_Comm comm),
                    (sendbuf, sendcount, sendtype, recvbuf, recvcounts, displs, recvtype, comm), allgather,
                    -1, use.reads(sendbuf, sendcount, sendtype);
                    use.writes_blocks(recvbuf, recvcounts, displs, group_size(comm), recvtype))
PINION_MPI_BLOCKING(Alltoall,
                    (const void* sendbuf, int sendcount, MPI_Datatype sendtype, void* recvbuf, int recvcount,
                     MPI_Datatype recvtype, MPI_Comm comm),
                    (sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm), alltoall, -1,
                    use.reads(sendbuf, MPI_Aint{sendcount} * group_size(comm), sendtype);
                    use.writes(recvbuf, MPI_Aint{recvcount} * group_size(comm), recvtype))
PINION_MPI_BLOCKING(
    Alltoallv,
    (const void* sendbuf, const int* sendcounts, const int* sdispls, MPI_Datatype sendtype, void* recvbuf,
     const int* recvcounts, const int* rdispls, MPI_Datatype recvtype, MPI_Comm comm),
    (sendbuf, sendcounts, sdispls, sendtype, recvbuf, recvcounts, rdispls, recvtype, comm), alltoall, -1,
    if (sendbuf != MPI_IN_PLACE) use.reads_blocks(sendbuf, sendcounts, sdispls, group_size(comm), sendtype);
    use.writes_blocks(recvbuf, recvcounts, rdispls, group_size(comm), recvtype))
PINION_MPI_BLOCKING(Reduce,
                    (const void* sendbuf, void* recvbuf, int count, MPI_Datatype type, MPI_Op op, int root,
                     MPI_Comm comm),
                    (sendbuf, recvbuf, count, type, op, root, comm), reduce, root,
                    if (root != MPI_ROOT) use.reads(sendbuf, count, type);
                    if (is_root(comm, root)) use.writes(recvbuf, count, type))
PINION_MPI_BLOCKING(Allreduce,
                    (const void* sendbuf, void* recvbuf, int count, MPI_Datatype type, MPI_Op op,
                     MPI_Comm comm),
                    (sendbuf, recvbuf, count, type, op, comm), allreduce, -1, use.reads(sendbuf, count, type);
                    use.writes(recvbuf, count, type))
PINION_MPI_BLOCKING(Reduce_scatter,
                    (const void* sendbuf, void* recvbuf, const int* recvcounts, MPI_Datatype type, MPI_Op op,
                     MPI_Comm comm),
                    (sendbuf, recvbuf, recvcounts, type, op, comm), reduce_scatter, -1,
                    const MPI_Aint total = sum_of(recvcounts, local_size(comm));
                    use.reads(sendbuf, total, type);
                    use.writes(recvbuf, sendbuf == MPI_IN_PLACE ? total : recvcounts[own_rank(comm)], type))
PINION_MPI_BLOCKING(Reduce_scatter_block,
                    (const void* sendbuf, void* recvbuf, int recvcount, MPI_Datatype type, MPI_Op op,
                     MPI_Comm comm),
                    (sendbuf, recvbuf, recvcount, type, op, comm), reduce_scatter, -1,
                    const MPI_Aint total = MPI_Aint{recvcount} * local_size(comm);
                    use.reads(sendbuf, total, type);
                    use.writes(recvbuf, sendbuf == MPI_IN_PLACE ? total : recvcount, type))
PINION_MPI_BLOCKING(Scan,
                    (const void* sendbuf, void* recvbuf, int count, MPI_Datatype type, MPI_Op op,
                     MPI_Comm comm),
                    (sendbuf, recvbuf, count, type, op, comm), scan, -1, use.reads(sendbuf, count, type);
                    use.writes(recvbuf, count, type))
PINION_MPI_BLOCKING(Exscan,
                    (const void* sendbuf, void* recvbuf, int count, MPI_Datatype type, MPI_Op op,
                     MPI_Comm comm),
                    (sendbuf, recvbuf, count, type, op, comm), scan, -1, use.reads(sendbuf, count, type);
                    use.writes(recvbuf, count, type))
