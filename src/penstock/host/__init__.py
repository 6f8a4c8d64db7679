"""The host of an engine in one process: its clock, lock, journal, sessions, waiting threads and background threads."""
