"""The engine at work in one process: its clock, lock, journal, sessions, waiting threads and background threads."""
