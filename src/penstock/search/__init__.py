"""Searching jobs: conditions like `body.user == 42 and nacks > 3`, and the causes of failures. Pure."""
