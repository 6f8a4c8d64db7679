"""The originals' own APIs in Python, over a queue in this process."""
