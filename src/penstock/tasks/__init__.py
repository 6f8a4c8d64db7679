"""Tasks: Python functions that run as jobs, and the worker that runs them.

`app.py` is the entry point: an `App` has a queue and the tasks that were registered with its decorator `task`.
`task.py` puts calls of a task as jobs. `message.py` defines what such a job contains. `execution.py` calls the function
for one attempt, and decides how the job ends. The folder `workers/` has the worker.
"""
