"""petsc4py: a Poisson equation by conjugate gradients, and its solution gathered on each rank."""
import sys

import petsc4py
petsc4py.init(sys.argv)
from petsc4py import PETSc

n = 600
da = PETSc.DMDA().create([n, n], stencil_width=1)
A = da.createMatrix()
row, col = PETSc.Mat.Stencil(), PETSc.Mat.Stencil()
(xs, xe), (ys, ye) = da.getRanges()
for j in range(ys, ye):
    for i in range(xs, xe):
        row.index = (i, j)
        for index, value in (((i, j), 4.0), ((i - 1, j), -1.0), ((i + 1, j), -1.0), ((i, j - 1), -1.0), ((i, j + 1), -1.0)):
            if 0 <= index[0] < n and 0 <= index[1] < n:
                col.index = index
                A.setValueStencil(row, col, value)
A.assemble()
b, x = A.createVecs()
b.set(1.0)
solver = PETSc.KSP().create()
solver.setOperators(A)
solver.setType("cg")
solver.getPC().setType("none")
solver.setTolerances(rtol=1e-6, max_it=200)
solver.solve(b, x)
for _ in range(10):
    scatter, whole = PETSc.Scatter.toAll(x)
    scatter.scatter(x, whole, False, PETSc.Scatter.Mode.FORWARD)
PETSc.Sys.Print(f"iterations {solver.getIterationNumber()} sum {whole.sum():.6f}")
