"""A deterministic simulation of a cluster in one thread: real nodes with simulated network, clocks, disks and clients.

`simulate(seed)` runs one simulation and reports violated guarantees. `penstock sim` does so from the command line
(docs/explanation/simulation.md). The same seed gives the same history to the last byte, on every machine.
"""

from penstock.testing.sim.options import Options, draw
from penstock.testing.sim.simulation import Report
from penstock.testing.sim.swarm import simulate

__all__ = ["Options", "Report", "draw", "simulate"]
