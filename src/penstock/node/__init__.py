"""The node: its turn, its commands and their callers. Pure: no clock, socket, disk or randomness."""
