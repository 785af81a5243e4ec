"""Transforms of mpi4py-fft there and back: each transposes a grid of 128^3 among the ranks."""
import numpy as np
from mpi4py import MPI
from mpi4py_fft import PFFT, newDistArray

fft = PFFT(MPI.COMM_WORLD, [128, 128, 128], dtype=float)
u = newDistArray(fft, False)
u[:] = np.random.default_rng(MPI.COMM_WORLD.rank).random(u.shape)
for _ in range(4):
    hat = fft.forward(u)
    back = fft.backward(hat)
    assert np.allclose(back, u)
energy = MPI.COMM_WORLD.allreduce(float(np.abs(hat).sum()))
if MPI.COMM_WORLD.rank == 0:
    print(f"sum of amplitudes {energy:.6f}")
