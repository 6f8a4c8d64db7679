"""A driver whose tasks have five fields: (id, state, priority, times taken, data). Its ids are texts, used only once.

It imports nothing of Penstock, because a server loads it from a directory of its own.
"""

import time

COUNTER = "counter"  # The task that keeps the number of the last id. It is done, so it is never served.


class FiveTube:
    """The tube object."""

    def __init__(self, tasks, changed, options):
        self.tasks = tasks
        self.changed = changed
        self.default = options.get("default", 10)

    def normalize_task(self, task):
        return task[0], task[1], task[4]

    def put(self, data, options):
        if options.get("fails"):
            self.tasks["half"] = ("half", "r", 0, 0, data)
            raise RuntimeError("told to fail")
        if options.get("slow"):
            time.sleep(0.15)
        number = self.tasks[COUNTER][2] + 1 if COUNTER in self.tasks else 1
        self.tasks[COUNTER] = (COUNTER, "-", number, 0, None)
        return self._store((f"t{number}", "r", options.get("pri", self.default), 0, data), "put")

    def take(self):
        ready = [task for task in self.tasks.values() if task[1] == "r"]
        if not ready:
            return None
        id, _, priority, taken, data = min(ready, key=lambda task: (task[2], int(task[0][1:])))
        return self._store((id, "t", priority, taken + 1, data), "take")

    def delete(self, id):
        task = self.tasks.pop(id, None)
        if task is None:
            return None
        gone = (id, "-", *task[2:])
        self.changed(gone, "delete")
        return gone

    def release(self, id, options):
        return self._set(id, "r", "release", options.get("pri"))

    def bury(self, id):
        return self._set(id, "!", "bury")

    def kick(self, count):
        buried = [id for id, task in self.tasks.items() if task[1] == "!"][:count]
        for id in buried:
            self._set(id, "r", "kick")
        return len(buried)

    def peek(self, id):
        return self.tasks.get(id)

    def _set(self, id, state, event, priority=None):
        task = self.tasks.get(id)
        if task is None:
            return None
        return self._store((id, state, task[2] if priority is None else priority, *task[3:]), event)

    def _store(self, task, event):
        self.tasks[task[0]] = task
        self.changed(task, event)
        return task


class FiveFields:
    """The driver."""

    @staticmethod
    def create_space(name, options):
        if not isinstance(options.get("default", 0), int):
            raise ValueError("default must be a whole number")
        return {}

    @staticmethod
    def new(space, on_task_change, options):
        return FiveTube(space, on_task_change, options)
