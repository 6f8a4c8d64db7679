"""The commands of each client family: Disque, our own, Tarantool and xqueue. Pure: no sockets, no clock.

RESP clients use `disque.py` and `native/`. IPROTO clients use `tarantool/`, `xqueue/` and `spaces/`. The
dispatcher is in `node/dispatch.py`, and the objects that commands work on are in `node/context.py`.
"""
