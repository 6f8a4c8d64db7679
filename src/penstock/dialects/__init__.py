"""The commands of each client family: Disque, our own, Tarantool and xqueue. Pure: no sockets, no clock."""
