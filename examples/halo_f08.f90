! Jacobi relaxation on a grid that is periodic both ways, cut into slabs of columns: the halo exchange of
! `halo` along one dimension, from Fortran through mpi_f08. A slab's neighbours get whole columns, packed in
! contiguous buffers; then follow as many sweeps as the halo is wide.
!
! A plane wave cos(kx x + ky y) is an eigenvector of the sweep with the factor (cos kx + cos ky) / 2, so the
! exact value of every cell after any number of sweeps is known.
program halo_f08
  use, intrinsic :: iso_fortran_env, only: real64, error_unit
  use mpi_f08
  implicit none

  integer, parameter :: below_tag = 1, above_tag = 2
  real(real64), parameter :: tolerance = 1e-10_real64
  real(real64), parameter :: two_pi = 2 * acos(-1.0_real64)

  integer :: tile = 1024, width = 8, steps = 60
  integer :: rank, ranks, below, above, step, exit_status
  real(real64), allocatable :: now(:, :), next(:, :)
  real(real64), allocatable, asynchronous :: to_below(:, :), to_above(:, :), from_below(:, :), from_above(:, :)
  real(real64) :: start, seconds

  call MPI_Init()
  call MPI_Comm_rank(MPI_COMM_WORLD, rank)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks)
  call parse_arguments(exit_status)
  if (exit_status >= 0) call leave(exit_status)

  below = modulo(rank - 1, ranks)
  above = modulo(rank + 1, ranks)
  allocate (now(0:tile + 1, 1 - width:tile + width), next(0:tile + 1, 1 - width:tile + width), source=0.0_real64)
  allocate (to_below(tile, width), to_above(tile, width), from_below(tile, width), from_above(tile, width))
  now(1:tile, 1:tile) = exact(0)

  call MPI_Barrier(MPI_COMM_WORLD)
  start = MPI_Wtime()
  do step = 1, steps
    call exchange()
    call sweep_all()
  end do
  seconds = MPI_Wtime() - start
  if (rank == 0) print '(a, i0, a, i0, a, i0, a, i0, a, f8.3, a)', 'halo_f08: ', steps, ' steps of ', width, &
      ' sweeps on ', ranks, ' slabs, faces of ', size(to_below) * storage_size(to_below) / 8, ' bytes:', seconds, ' s'

  call conclude(all(abs(now(1:tile, 1:tile) - exact(steps * width)) < tolerance))

contains

  subroutine exchange()
    type(MPI_Request) :: requests(4)

    to_below = now(1:tile, 1:width)
    to_above = now(1:tile, tile - width + 1:tile)
    ! A tag names the direction in which a message travels, as both neighbours may be the same rank.
    call MPI_Irecv(from_above, size(from_above), MPI_DOUBLE_PRECISION, above, below_tag, MPI_COMM_WORLD, requests(1))
    call MPI_Irecv(from_below, size(from_below), MPI_DOUBLE_PRECISION, below, above_tag, MPI_COMM_WORLD, requests(2))
    call MPI_Isend(to_below, size(to_below), MPI_DOUBLE_PRECISION, below, below_tag, MPI_COMM_WORLD, requests(3))
    call MPI_Isend(to_above, size(to_above), MPI_DOUBLE_PRECISION, above, above_tag, MPI_COMM_WORLD, requests(4))
    call MPI_Waitall(4, requests, MPI_STATUSES_IGNORE)
    now(1:tile, 1 - width:0) = from_below
    now(1:tile, tile + 1:tile + width) = from_above
  end subroutine

  ! Uses up the halo one ring of columns at a time; the rows are periodic within the slab.
  subroutine sweep_all()
    real(real64), allocatable :: swap(:, :)
    integer :: ring, column

    do ring = width - 1, 0, -1
      now(0, :) = now(tile, :)
      now(tile + 1, :) = now(1, :)
      do column = 1 - ring, tile + ring
        next(1:tile, column) = 0.25_real64 * (now(0:tile - 1, column) + now(2:tile + 1, column) &
                                              + now(1:tile, column - 1) + now(1:tile, column + 1))
      end do
      call move_alloc(now, swap)
      call move_alloc(next, now)
      call move_alloc(swap, next)
    end do
  end subroutine

  ! This rank's cells after some sweeps.
  function exact(sweeps) result(cells)
    integer, intent(in) :: sweeps
    real(real64) :: cells(tile, tile)
    integer, parameter :: modes(2, 3) = reshape([1, 2, -3, 1, 17, 29], [2, 3])
    real(real64) :: kx, ky, amplitude
    integer :: mode, row, column

    cells = 0
    do mode = 1, size(modes, 2)
      kx = two_pi * modes(1, mode) / tile
      ky = two_pi * modes(2, mode) / (tile * real(ranks, real64))
      amplitude = ((cos(kx) + cos(ky)) / 2)**sweeps
      do column = 1, tile
        do row = 1, tile
          cells(row, column) = cells(row, column) + amplitude * cos(kx * row + ky * (column + rank * tile))
        end do
      end do
    end do
  end function

  ! status < 0: go on; otherwise the program's exit status.
  subroutine parse_arguments(status)
    integer, intent(out) :: status
    character(len=64) :: name, value
    integer :: i

    status = -1
    i = 1
    do while (i <= command_argument_count() .and. status < 0)
      call get_command_argument(i, name)
      call get_command_argument(i + 1, value)
      select case (name)
      case ('--tile')
        call parse_count(name, value, tile, status)
      case ('--width')
        call parse_count(name, value, width, status)
      case ('--steps')
        call parse_count(name, value, steps, status)
      case ('--help', '-h')
        if (rank == 0) call print_help()
        status = 0
      case default
        call complain('unknown argument '//trim(name), status)
      end select
      i = i + 2
    end do
    if (status < 0 .and. width > tile) call complain('--width: larger than --tile', status)
  end subroutine

  subroutine parse_count(name, value, count, status)
    character(len=*), intent(in) :: name, value
    integer, intent(inout) :: count, status
    integer :: fault

    fault = 1
    if (value /= '' .and. verify(trim(value), '0123456789') == 0) read (value, *, iostat=fault) count
    if (fault /= 0 .or. count < 1 .or. count > 16384) &
      call complain(trim(name)//': '//trim(value)//' is not a number from 1 to 16384', status)
  end subroutine

  subroutine print_help()
    print '(a)', '2-D halo exchange around a Jacobi relaxation, in Fortran with mpi_f08.', &
      'Usage: halo_f08 [OPTIONS]', '', 'Options:', &
      '  -h,--help     Print this help message and exit', &
      '  --tile N      cells along each side of a rank''s slab (1024)', &
      '  --width N     width of the halo, and sweeps between exchanges (8)', &
      '  --steps N     exchanges, each followed by its sweeps (60)'
  end subroutine

  subroutine complain(what, status)
    character(len=*), intent(in) :: what
    integer, intent(out) :: status

    if (rank == 0) write (error_unit, '(2a)') 'halo_f08: ', what
    status = 2
  end subroutine

  subroutine conclude(right_here)
    logical, intent(in) :: right_here
    logical :: right

    call MPI_Allreduce(right_here, right, 1, MPI_LOGICAL, MPI_LAND, MPI_COMM_WORLD)
    if (rank == 0 .and. right) print '(a)', 'halo_f08: verified'
    if (rank == 0 .and. .not. right) print '(a)', 'halo_f08: FAILED'
    call leave(merge(0, 1, right))
  end subroutine

  subroutine leave(status)
    integer, intent(in) :: status

    call MPI_Finalize()
    stop status, quiet=.true.
  end subroutine

end program
