"""Penstock's own commands over RESP: jobs, tubes, claims and stages."""
