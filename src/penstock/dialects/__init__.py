"""The commands of each client family: Disque, our own, Tarantool and xqueue. Pure: no sockets, no clock.

RESP clients use `disque.py` and `native/`. IPROTO clients use `tarantool/`, `xqueue/` and `spaces/`. `command.py` has
the dispatcher and the parts that all families share. `context.py` has the objects that commands work on.
"""
