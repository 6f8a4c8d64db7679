"""What a queue is: a pure, deterministic engine that knows no clock, socket, disk or randomness.

Everything here is compiled by mypyc where a C compiler is at hand, and runs unchanged where none is.
`engine.py` is the way in; read `states.py` and `job.py` first.
"""
