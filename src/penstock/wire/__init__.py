"""Codecs of the protocols: they parse bytes into commands and replies, and encode both. Pure: no socket, no clock."""
