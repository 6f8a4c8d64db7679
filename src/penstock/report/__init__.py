"""The report on a lake: an HTML page and the same tables as text. It needs pyarrow, but neither Spark nor a server.

source.py defines the input. charts/ has the SVG charts, which need only Python's standard library.
"""
