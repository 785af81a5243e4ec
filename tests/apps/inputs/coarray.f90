! A ring of images: each puts 8 MiB into its neighbour's coarray, and checks what came.
program ring
  implicit none
  integer, parameter :: n = 1048576
  real(8), allocatable :: there(:)[:], mine(:)
  integer :: turn, to, from
  allocate(there(n)[*], mine(n))
  to = mod(this_image(), num_images()) + 1
  from = mod(this_image() + num_images() - 2, num_images()) + 1
  do turn = 1, 6
    mine = this_image() * 100 + turn
    there(:)[to] = mine
    sync all
    if (any(there /= from * 100 + turn)) error stop 'other bytes'
    sync all
  end do
  if (this_image() == 1) print *, 'ring of', num_images(), 'verified'
end program
