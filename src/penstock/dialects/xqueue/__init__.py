"""The functions of xqueue: spaces whose rows are jobs."""
