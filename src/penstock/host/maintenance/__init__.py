"""Background maintenance of a queue directory. One service per file; `runner.py` runs them in one thread."""
