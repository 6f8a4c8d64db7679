"""Reading a directory back into an engine, and checking and repairing directories."""
