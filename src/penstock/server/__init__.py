"""The server: the engine and its journal behind sockets, and its configuration."""
