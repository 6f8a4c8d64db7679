"""The programs that `penstock demo` runs."""
