"""Tasks: Python functions that run as jobs, and the worker that runs them.

`app.py` is the entry point: an `App` has a queue and the tasks that were registered with its decorator `task`.
`task.py` puts calls of a task as jobs. `message.py` defines what such a job contains. `worker.py` takes jobs from the
queue and passes them to `execution.py`, which calls the function and decides how the job ends. `settling.py` reports
the ends to the queue, many with one command.
"""
