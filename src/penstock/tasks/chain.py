"""Chains: the next step of a chain, from the steps that are stored in the body of a job.

Each step is a map. The first one is the next step:

    task        the name of the task
    arguments   its arguments, by name
    result      the parameter that gets the result of the step before it; only if there is one
    options     the options of its put; only if there are any

A worker needs to know the task of the next step, because its tube, its key and its retry policy are those of the task.
A later delivery of a step cannot repeat the put of the next one, because the put is in the same commit as the ack.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, cast

from penstock import api_async
from penstock.options import PutOptions
from penstock.tasks import message
from penstock.tasks.call import TaskCall
from penstock.tasks.declaration import TaskDeclaration
from penstock.tasks.steps import name_of_step, place_of


class BadStep(Exception):
    """The next step of a chain cannot be put, however often this one is repeated."""


def next_step(
    job: api_async.AsyncJob, steps: Any, result: Any, tasks: Mapping[str, TaskDeclaration[Any]]
) -> TaskCall[Any]:
    """Return the call of the next step. `steps` are the stored ones, and `result` is the plain result of this step."""
    try:
        step = steps[0]
        task = tasks[step["task"]]
        passed = {step["result"]: result} if "result" in step else {}
        arguments = task.signature.from_plain({**step["arguments"], **passed})
        options = _put_options(step.get("options", {}))
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise BadStep(f"the next step of its chain cannot be put: {error}") from None
    first, number, count = place_of(job.id, job.headers)
    headers = {**options.get("headers", {}), message.CHAIN: first, message.STEP: f"{number + 1}/{count}"}
    options = {**options, "name": name_of_step(first, number + 1), "headers": headers}
    return TaskCall(task, arguments, options, tuple(steps[1:]))


def _put_options(stored: dict[str, Any]) -> PutOptions:
    return cast(PutOptions, stored | ({"at": datetime.fromisoformat(stored["at"])} if "at" in stored else {}))
