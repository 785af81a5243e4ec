! Two ranks with four phases each turn: computation, then an exchange from and into buffers of the phase's own. One pair
! of buffers is in use at a time.
program phases
  use mpi
  implicit none
  integer, parameter :: count = 2 * 1024 * 1024  ! doubles: 16 MiB
  double precision, allocatable :: out(:, :), in(:, :)
  integer :: rank, turn, phase, pass, error
  allocate (out(count, 4), in(count, 4))
  out = 0
  in = 0
  call MPI_Init(error)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, error)
  do turn = 1, 20
    do phase = 1, 4
      do pass = 1, 10
        out(:, phase) = 0.5 * out(:, phase) + 1
      end do
      call exchange(out(:, phase), in(:, phase), 1 - rank)
    end do
  end do
  if (rank == 0) print '(a)', merge('phases: verified', 'phases: FAILED  ', in(count, 4) == out(count, 4))
  call MPI_Finalize(error)
contains
  subroutine exchange(from, into, peer)
    double precision, intent(in) :: from(*)
    double precision, intent(inout) :: into(*)
    integer, intent(in) :: peer
    call MPI_Sendrecv(from, count, MPI_DOUBLE_PRECISION, peer, 0, into, count, MPI_DOUBLE_PRECISION, peer, 0, &
                      MPI_COMM_WORLD, MPI_STATUS_IGNORE, error)
  end subroutine exchange
end program phases
