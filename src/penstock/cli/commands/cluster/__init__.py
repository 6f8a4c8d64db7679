"""The commands of `penstock cluster`."""
