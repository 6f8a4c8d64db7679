"""A cluster in one thread: real nodes, and a network, clocks, disks and clients that a seed decides.

`simulate(seed)` runs one and reports what was broken, `penstock sim` does so from the command line
(docs/explanation/simulation.md). The same seed gives the same history to the last byte, on every machine.
"""

from penstock.testing.sim.options import Options, draw
from penstock.testing.sim.simulation import Report, simulate

__all__ = ["Options", "Report", "draw", "simulate"]
