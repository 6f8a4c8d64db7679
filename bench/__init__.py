"""How fast the engine is, as ratios within one run. `python -m bench --help` says how to ask.

The runner (runner.py) knows nothing of what is measured; each family of rows is a file of its own that says what its
rows are and how to take one sample of them. Everything is measured from interpreted code, as clients call it.
"""
