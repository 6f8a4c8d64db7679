"""The worker: `worker.py` takes jobs, `runner.py` runs their tasks, and `settling.py` reports how they end.

`supervisor.py` and `worker_process.py` are the two programs that `penstock worker` starts.
"""
