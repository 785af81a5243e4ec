! The same number of large transfers, 80 a rank, through mpi_f08 (and, with USE_MPI defined, through `use mpi`).
! A round: send or receive, one each without blocking, a start, broadcast, reduction in place, all-to-all (two
! buffers). Two ranks.
#ifdef USE_MPI
#define REQUEST integer
#define MODULE mpi
#else
#define REQUEST type(MPI_Request)
#define MODULE mpi_f08
#endif
program counted
  use MODULE
  implicit none
  integer, parameter :: count = 100000
  integer :: out(count), in(count), me, other, ierr, i, round, bad, all
  REQUEST :: requests(2), kept
  call MPI_Init(ierr)
  call MPI_Comm_rank(MPI_COMM_WORLD, me, ierr)
  other = 1 - me
  bad = 0
  out = [(1000 * i + me, i = 1, count)]
  if (me == 0) then
    call MPI_Send_init(out, count, MPI_INTEGER, other, 3, MPI_COMM_WORLD, kept, ierr)
  else
    call MPI_Recv_init(in, count, MPI_INTEGER, other, 3, MPI_COMM_WORLD, kept, ierr)
  end if
  do round = 1, 10
    if (me == 0) then
      call MPI_Send(out, count, MPI_INTEGER, other, 1, MPI_COMM_WORLD, ierr)
    else
      call MPI_Recv(in, count, MPI_INTEGER, other, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE, ierr)
    end if
    in = 0
    call MPI_Irecv(in, count, MPI_INTEGER, other, 2, MPI_COMM_WORLD, requests(1), ierr)
    call MPI_Isend(out, count, MPI_INTEGER, other, 2, MPI_COMM_WORLD, requests(2), ierr)
    call MPI_Waitall(2, requests, MPI_STATUSES_IGNORE, ierr)
    bad = bad + sum(merge(0, 1, in == [(1000 * i + other, i = 1, size(in))]))
    call MPI_Start(kept, ierr)
    call MPI_Wait(kept, MPI_STATUS_IGNORE, ierr)
    call MPI_Bcast(in, count, MPI_INTEGER, 0, MPI_COMM_WORLD, ierr)
    in = [(i + me, i = 1, count)]
    call MPI_Allreduce(MPI_IN_PLACE, in, count, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, ierr)
    bad = bad + sum(merge(0, 1, in == [(2 * i + 1, i = 1, size(in))]))
    call MPI_Alltoall(out, count / 2, MPI_INTEGER, in, count / 2, MPI_INTEGER, MPI_COMM_WORLD, ierr)
    bad = bad + sum(merge(0, 1, in(:count / 2) == [(1000 * (i + me * (count / 2)), i = 1, count / 2)]))
  end do
  call MPI_Request_free(kept, ierr)
  call MPI_Allreduce(bad, all, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, ierr)
  if (me == 0) print '(a)', merge('verified', 'FAILED  ', all == 0)
  call MPI_Finalize(ierr)
end program counted
