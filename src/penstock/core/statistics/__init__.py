"""Statistics that the engine and the server count with."""
