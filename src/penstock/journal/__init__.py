"""The log of a node. One append-only file format serves recovery, bodies on disk, and the public history.

`frame.py` defines the format and is pure. `disk.py` is the only file that writes and syncs. `log.py` connects the two.
`recovery/` reads a log back into an engine. docs/explanation/journal.md describes the format for other languages.
"""
