"""GPAW: a water molecule on a grid; domains exchange their halos."""
from ase.build import molecule
from gpaw import GPAW

atoms = molecule("H2O")
atoms.center(vacuum=3.5)
atoms.calc = GPAW(mode="fd", h=0.2, txt=None, maxiter=12, convergence={"energy": 1, "density": 1, "eigenstates": 1})
from gpaw.mpi import rank
energy = atoms.get_potential_energy()
if rank == 0:
    print(f"energy {energy:.6f}")
