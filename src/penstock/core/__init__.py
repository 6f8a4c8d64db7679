"""The queue itself: a pure, deterministic engine without clock, sockets, disk or randomness.

The modules are compiled by mypyc if a C compiler is available, and run unchanged otherwise. `engine.py` is the entry
point. Read `states.py` and `job.py` first.
"""
