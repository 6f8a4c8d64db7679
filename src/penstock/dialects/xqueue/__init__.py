"""The functions of xqueue, which shows a tube as a Tarantool space and its jobs as the tuples of this space."""
