"""Codecs of the protocols: bytes to commands and replies, and back. Pure: no socket, no clock."""
