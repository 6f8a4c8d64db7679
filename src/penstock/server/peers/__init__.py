"""The connections to other nodes of the cluster: the bus, membership, and forwarded commands."""
