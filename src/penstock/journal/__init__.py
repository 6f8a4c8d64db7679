"""The log of a node. One append-only file format serves recovery, bodies on disk, and the public history.

Read in this order: `frame.py` defines rows and frames and is pure. `segment.py` defines the files that contain frames.
`disk.py` is the only file that writes and syncs. `room.py` counts the space that is left. `log.py` connects them and
appends. `recovery/` reads a log back into an engine, `history/` reads it for users, and `maintenance/` keeps it short.
docs/explanation/journal.md describes the format for other languages.
"""
