"""The steps of a chain as a handle follows them: which one it has reached, and where the job of the next one is.

The job of a later step has the name `ID/NUMBER`: the id of the job of the first step, and the number of the step. It is
in the tube of its task, or in a parking tube while no worker knows its task or the next one. The job of a step that has
succeeded is kept with its result. So a handle that starts late still finds the step that the chain has reached.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from penstock.options import JobOutcome
from penstock.tasks import message
from penstock.tasks.declaration import TaskDeclaration
from penstock.tasks.failures import BadTask
from penstock.tasks.workers.parking import parking_name


def name_of_step(first: str, number: int) -> str:
    """Return the name of the job of a later step. `first` is the id of the job of the first step."""
    return f"{first}/{number}"


def place_of(id: str, headers: Mapping[str, str]) -> tuple[str, int, int]:
    """Return the place of a job in its chain: the id of the first job, the number of the step, and of all steps."""
    number, _, count = headers.get(message.STEP, "").partition("/")
    if not (number.isdigit() and count.isdigit()):
        return id, 1, 1
    return headers.get(message.CHAIN, id), int(number), int(count)


class Steps:
    """The step of a chain that a handle has reached, and the later ones. A single task is a chain of one step."""

    __slots__ = ("_first", "_number", "_tasks", "count")

    def __init__(self, first: str, number: int, tasks: Sequence[TaskDeclaration[Any] | None]) -> None:
        self._first = first  # The id of the first job.
        self._number = number
        self._tasks = tasks  # Those of this step and of the later ones.
        self.count = number + len(tasks) - 1

    @property
    def last_task(self) -> TaskDeclaration[Any] | None:
        """The task whose result is that of the chain."""
        return self._tasks[-1]

    @property
    def is_last(self) -> bool:
        """Whether no step follows."""
        return len(self._tasks) == 1

    def later_places(self) -> Iterator[tuple[int, str, str]]:
        """Return where the jobs of later steps can be: the number of the step, a tube, and the name of the job."""
        for number, task in enumerate(self._tasks[1:], self._number + 1):
            if task is None:
                raise BadTask(f"this app does not have the task of step {number} of {self.count} of this chain")
            at = number - self._number
            name, tube = name_of_step(self._first, number), task.options.tube
            yield number, tube, name
            for each in self._tasks[at : at + 2]:
                if each is not None:
                    yield number, parking_name(tube, each.name), name

    def advance(self, number: int) -> None:
        """Go to a later step."""
        self._tasks = self._tasks[number - self._number :]
        self._number = number

    def located(self, outcome: JobOutcome) -> JobOutcome:
        """Return the outcome of the present step as that of the chain: the reason says which step it was."""
        if self.count == 1 or outcome or outcome.outcome in ("timeout", "gone"):
            return outcome
        task = self._tasks[0]
        step = f"step {self._number} of {self.count}" + (f" ({task.name})" if task is not None else "")
        return JobOutcome(outcome.outcome, f"{step}: {outcome.reason}" if outcome.reason else step)
