"""The Python APIs for users of tarantool/queue, of its version for Tarantool 1.5, and of xqueue."""
