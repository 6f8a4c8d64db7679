"""What an assistant can do with a queue over the Model Context Protocol.

Each public method of `Tools` is a tool: its docstring and its annotations are what the assistant sees. All tools but
`redrive` only read. An error of the queue is the answer to the call, so that the assistant can correct it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeVar

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import ToolAnnotations

from penstock._version import __version__
from penstock.cli.errors import message_of
from penstock.cli.output import Record
from penstock.cli.records import State, job_record, job_records
from penstock.core.errors import PenstockError
from penstock.report.job_history import describe, text_lines
from penstock.search.causes import cause_of

if TYPE_CHECKING:
    from penstock.api import Job, Queue

Returned = TypeVar("Returned")

# The most jobs in one answer. An assistant reads all of it.
_JOBS_MAX: Final = 100
# Longer bodies are cut, because an assistant pays for each character.
_BODY_CHARACTERS_MAX: Final = 2_000
# The most jobs that one call redrives.
_REDRIVE_MAX: Final = 10_000

_INSTRUCTIONS: Final = """Penstock is a job queue. A tube is a named queue of jobs. A job is ready, delayed, taken by a
consumer, or buried: set aside because it failed too often. To find out why jobs fail, call failed_jobs for the tube and
then job_history for one of the examples."""


class Tools:
    """The tools, for one queue."""

    def __init__(self, queue: Queue, hide_bodies: bool) -> None:
        self._queue = queue
        self._hide_bodies = hide_bodies

    def list_tubes(self) -> list[Record]:
        """List all tubes with their type and the number of jobs in each state.

        `oldest` is the age in seconds of the next ready job, and `waiting` the number of consumers that wait for a job.
        """
        return self._queue.overview()

    def find_jobs(
        self, tube: str, states: list[State] | None = None, where: str | None = None, limit: int = 20
    ) -> list[Record]:
        """Find jobs of a tube.

        `states` are some of ready, taken, delayed, buried, done, zombie, staged. `where` is a condition such as:
        body.user == 42 and nacks > 3 and age > 3600. At most 100 jobs are returned.
        """
        found = islice(self._matching(tube, states or [], where), min(max(limit, 1), _JOBS_MAX))
        return [self._shown(record) for record, _ in found]

    def show_job(self, id: str) -> Record:
        """Show a job that still exists: its state, times, counters, headers and body."""
        return self._shown(job_record(self._queue.job(id)))

    def job_history(self, id: str) -> str:
        """Explain what happened to a job, even if it no longer exists.

        The lines say when it was put, how long it waited and ran, who had it, and why it failed.
        """
        events = self._queue.history(id)
        return "\n".join(text_lines(describe(events))) or "The journal has no events of this job."

    def failed_jobs(self, tube: str) -> list[Record]:
        """Group the buried jobs of a tube by the cause of their failure, the most frequent first.

        Each group has the id of an example. At most 10,000 jobs are counted.
        """
        groups: dict[str, Record] = {}
        for record, _ in islice(self._matching(tube, [State.BURIED], None), _REDRIVE_MAX):
            cause = cause_of(record["reason"])
            group = groups.setdefault(cause, {"cause": cause, "jobs": 0, "oldest_s": 0.0, "example": record["id"]})
            group["jobs"] += 1
            group["oldest_s"] = max(group["oldest_s"], record["age"])
        return sorted(groups.values(), key=lambda group: -int(group["jobs"]))[:_JOBS_MAX]

    def redrive(self, tube: str, where: str | None = None, limit: int = 100, dry_run: bool = True) -> Record:
        """Return buried jobs to their tube, so that they are tried again.

        With dry_run, which is the default, the jobs are only counted. Ask the user before you set dry_run to false.
        """
        found = islice(self._matching(tube, [State.BURIED], where), min(max(limit, 1), _REDRIVE_MAX))
        jobs = [job for _, job in found]
        if dry_run:
            return {"tube": tube, "would_redrive": len(jobs)}
        refused: list[str] = []
        for job in jobs:
            try:
                job.dig()
            except PenstockError as error:
                refused.append(f"{job.id}: {message_of(error)}")
        return {"tube": tube, "redriven": len(jobs) - len(refused), "refused": refused[:_JOBS_MAX]}

    def _matching(self, tube: str, states: list[State], where: str | None) -> Iterator[tuple[Record, Job]]:
        place = self._queue.find_tube(tube)
        cursor = 0
        while True:
            jobs, cursor = self._queue.scan(cursor, tube=place, states=[state.value for state in states], where=where)
            yield from job_records(self._queue, jobs)
            if cursor == 0:
                return

    def _shown(self, record: Record) -> Record:
        """Return a record for an assistant: without its body if bodies are hidden, else with a short one."""
        if self._hide_bodies:
            hidden = ("body", "body_base64", "headers")
            return {name: value for name, value in record.items() if name not in hidden}
        for name in ("body", "body_base64"):
            if len(str(record.get(name) or "")) > _BODY_CHARACTERS_MAX:
                record[name] = str(record[name])[:_BODY_CHARACTERS_MAX] + " … (cut)"
        return record


def server(queue: Queue, allow_redrive: bool, hide_bodies: bool) -> MCPServer[Any]:
    """Return the MCP server of a queue. Without `allow_redrive` it has only tools that read."""
    made: MCPServer[Any] = MCPServer("penstock", version=__version__, instructions=" ".join(_INSTRUCTIONS.split()))
    tools = Tools(queue, hide_bodies)
    reading = ToolAnnotations(read_only_hint=True, open_world_hint=False)
    for tool in (tools.list_tubes, tools.find_jobs, tools.show_job, tools.job_history, tools.failed_jobs):
        made.tool(annotations=reading)(_reporting(tool))
    if allow_redrive:
        changing = ToolAnnotations(read_only_hint=False, destructive_hint=False, open_world_hint=False)
        made.tool(annotations=changing)(_reporting(tools.redrive))
    return made


def _reporting(tool: Callable[..., Returned]) -> Callable[..., Returned]:
    """Return the tool with errors of the queue as answers."""

    @functools.wraps(tool)
    def call(*words: Any, **options: Any) -> Returned:
        try:
            return tool(*words, **options)
        except (PenstockError, OSError) as error:
            raise ToolError(message_of(error)) from error

    return call
