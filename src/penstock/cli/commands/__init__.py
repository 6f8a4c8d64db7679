"""The subcommands of `penstock`, one file each."""
