"""Bytes to commands and back. Pure: no socket, no clock."""
