"""The server: the engine and its journal behind sockets, and how it is configured."""
