"""h5py over MPI-IO: collective writes of interleaved blocks of rows, read by the other rank, and gathered."""
import h5py
import numpy as np
from mpi4py import MPI

comm = MPI.COMM_WORLD
blocks, block = 16, (64, 2048)
mine = np.random.default_rng(comm.rank).random((blocks, *block))
with h5py.File("grid.h5", "w", driver="mpio", comm=comm) as file:
    grid = file.create_dataset("grid", (blocks * comm.size, *block), dtype="f8")
    with grid.collective:
        grid[comm.rank::comm.size] = mine
comm.Barrier()
other = (comm.rank + 1) % comm.size
with h5py.File("grid.h5", "r", driver="mpio", comm=comm) as file:
    with file["grid"].collective:
        part = file["grid"][other::comm.size]
assert np.array_equal(part, np.random.default_rng(other).random(part.shape))
everything = np.empty((comm.size, *part.shape)) if comm.rank == 0 else None
comm.Gather(part, everything)
if comm.rank == 0:
    print(f"sum {everything.sum():.9f}")
