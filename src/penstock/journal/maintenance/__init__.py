"""Snapshots, retention, backups and copies of a log."""
