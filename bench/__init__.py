"""Benchmarks of the engine, as ratios within one run. See `python -m bench --help`.

Each family of rows is a file that defines its rows and how to take one sample of them. The runner (runner.py) is
independent of the families. Everything is called from interpreted code, as clients do.
"""
