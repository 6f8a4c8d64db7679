"""The configuration of a server: settings, their values, files, flags and users."""
