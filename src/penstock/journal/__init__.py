"""The log of a node: recovery, the store of bodies, and the public history, in one append-only file format.

`frame.py` is the format and pure; `disk.py` is the only file that writes and syncs; `log.py` puts the two together;
`recovery.py` reads a log back into an engine. docs/explanation/journal.md describes the format for readers in other
languages.
"""
