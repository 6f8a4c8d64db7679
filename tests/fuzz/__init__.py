"""Fuzzing: run `make fuzz SECONDS=60`. The tests also fuzz for some seconds."""
