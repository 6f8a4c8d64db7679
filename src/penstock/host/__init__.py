"""The engine at work in one process: its clock and lock, its log, those who call it and those who sleep."""
