"""slepc4py: the smallest singular values of dense columns; its basis is reduced over the ranks."""
import sys

import slepc4py
slepc4py.init(sys.argv)
from petsc4py import PETSc
from slepc4py import SLEPc

n, m = 40000, 64
A = PETSc.Mat().createDense([n, m])
A.setUp()
first, last = A.getOwnershipRange()
for i in range(first, last):
    for j in range(i % 8, m, 8):
        A.setValue(i, j, ((i * 37 + j * 101) % 211) / 211.0)
A.assemble()
svd = SLEPc.SVD().create()
svd.setOperator(A)
svd.setType("lanczos")
svd.setDimensions(4)
svd.solve()
PETSc.Sys.Print("values " + " ".join(f"{svd.getValue(i):.6f}" for i in range(min(4, svd.getConverged()))))
