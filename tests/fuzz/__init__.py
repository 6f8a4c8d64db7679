"""Fuzzing: `make fuzz SECONDS=60`, and some seconds of it in the tests."""
