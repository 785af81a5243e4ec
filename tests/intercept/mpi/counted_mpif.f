C     The same number of large transfers, 80 a rank, through mpif.h: the
C     bindings that most old programs have. Fixed form; two ranks. A
C     round: send or receive, one each without blocking, a start,
C     broadcast, reduction in place, all-to-all (two buffers).
      program counted
      implicit none
      include 'mpif.h'
      integer count
      parameter (count = 100000)
      integer out(count), in(count), requests(2), kept
      integer status(MPI_STATUS_SIZE), statuses(MPI_STATUS_SIZE, 2)
      integer me, other, ierr, i, round, bad(1), all(1)
      call mpi_init(ierr)
      call mpi_comm_rank(MPI_COMM_WORLD, me, ierr)
      other = 1 - me
      bad(1) = 0
      do i = 1, count
        out(i) = 1000 * i + me
      end do
      if (me .eq. 0) then
        call mpi_send_init(out, count, MPI_INTEGER, other, 3,
     &                     MPI_COMM_WORLD, kept, ierr)
      else
        call mpi_recv_init(in, count, MPI_INTEGER, other, 3,
     &                     MPI_COMM_WORLD, kept, ierr)
      end if
      do round = 1, 10
        if (me .eq. 0) then
          call mpi_send(out, count, MPI_INTEGER, other, 1,
     &                  MPI_COMM_WORLD, ierr)
        else
          call mpi_recv(in, count, MPI_INTEGER, other, 1,
     &                  MPI_COMM_WORLD, status, ierr)
        end if
        do i = 1, count
          in(i) = 0
        end do
        call mpi_irecv(in, count, MPI_INTEGER, other, 2,
     &                 MPI_COMM_WORLD, requests(1), ierr)
        call mpi_isend(out, count, MPI_INTEGER, other, 2,
     &                 MPI_COMM_WORLD, requests(2), ierr)
        call mpi_waitall(2, requests, statuses, ierr)
        do i = 1, count
          if (in(i) .ne. 1000 * i + other) bad(1) = bad(1) + 1
        end do
        call mpi_start(kept, ierr)
        call mpi_wait(kept, MPI_STATUS_IGNORE, ierr)
        call mpi_bcast(in, count, MPI_INTEGER, 0, MPI_COMM_WORLD, ierr)
C       In place: one buffer a call.
        do i = 1, count
          in(i) = i + me
        end do
        call mpi_allreduce(MPI_IN_PLACE, in, count, MPI_INTEGER,
     &                     MPI_SUM, MPI_COMM_WORLD, ierr)
        do i = 1, count
          if (in(i) .ne. 2 * i + 1) bad(1) = bad(1) + 1
        end do
        call mpi_alltoall(out, count / 2, MPI_INTEGER, in, count / 2,
     &                    MPI_INTEGER, MPI_COMM_WORLD, ierr)
        do i = 1, count / 2
          if (in(i) .ne. 1000 * (i + me * (count / 2)))
     &      bad(1) = bad(1) + 1
        end do
      end do
      call mpi_request_free(kept, ierr)
      call mpi_allreduce(bad, all, 1, MPI_INTEGER, MPI_SUM,
     &                   MPI_COMM_WORLD, ierr)
      if (me .eq. 0) then
        if (all(1) .eq. 0) then
          print '(a)', 'verified'
        else
          print *, 'FAILED', all(1)
        end if
      end if
      call mpi_finalize(ierr)
      end
