"""A waveguide of dielectric in three dimensions: the domains exchange their faces at each step."""
import meep as mp

simulation = mp.Simulation(
    cell_size=mp.Vector3(8, 8, 8),
    boundary_layers=[mp.PML(1.0)],
    geometry=[mp.Block(mp.Vector3(mp.inf, 1, 1), material=mp.Medium(epsilon=12))],
    sources=[mp.Source(mp.ContinuousSource(frequency=0.15), component=mp.Ez, center=mp.Vector3(-3, 0))],
    resolution=10)
simulation.run(until=1.5)
field = simulation.get_field_point(mp.Ez, mp.Vector3(1, 0, 0))
if mp.am_master():
    print("field", f"{field.real:.9f}")
