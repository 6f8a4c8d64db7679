"""The cluster protocol, by which nodes hold copies of each other's jobs. It is pure code: no clock, socket or disk."""
