"""The commands of a server over RESP: the command table, and one file per family of commands."""
