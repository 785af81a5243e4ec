"""Two ranks send each of COUNT buffers of BYTES there and back, TURNS times, and check what they get.

    mpirun -n 2 python3 scarce_program.py COUNT BYTES TURNS
"""
import sys
import time

import numpy
from mpi4py import MPI

count, size, turns = map(int, sys.argv[1:])
comm = MPI.COMM_WORLD
buffers = [numpy.zeros(size, numpy.uint8) for _ in range(count)]
for turn in range(turns):
    for i, buffer in enumerate(buffers):
        value = (turn + i) % 200
        if comm.rank == 0:
            buffer[:] = value
            comm.Send(buffer, 1)
            comm.Recv(buffer, 1)
            assert (buffer == value + 1).all(), "other contents arrived"
        else:
            comm.Recv(buffer, 0)
            buffer += 1
            comm.Send(buffer, 0)
        time.sleep(0.01)  # a transfer is as seldom as where a processor is no program
if comm.rank == 0:
    print("verified")
