"""The commands of `penstock pipeline`."""
