"""Questions to all nodes about a queue, and the sum of their answers.

The jobs of a queue are spread over nodes, and each node can only answer for its own jobs. ASK is sent to all nodes that
can be reached, and each of them answers immediately (TOLD). The caller learns how many nodes did not answer in time.
"""

from __future__ import annotations

from itertools import islice
from typing import Final

from mypy_extensions import i64

from penstock.cluster.copy_states import FRESH
from penstock.cluster.images import image_of, outline_of
from penstock.cluster.messages import (
    ASK,
    CONSUMER,
    EMPTY,
    LENGTHS,
    MERE_COPY,
    NEXT_JOBS,
    STAGE,
    TOLD,
    Answer,
    JobImage,
    Question,
)
from penstock.cluster.state import ClusterState
from penstock.core import states as s
from penstock.core import waits as w
from penstock.core.copy_commands import begin_wait, end_wait, is_shared
from penstock.core.errors import CommandError
from penstock.core.job import Job
from penstock.core.limits import SCAN_EXAMINED_MAX
from penstock.core.tube import Tube
from penstock.core.waits import Connection, PeerWait

# Limit the jobs, and the bytes of their bodies, that a node returns.
SHOWN_MAX: Final = 100
_SHOWN_BYTES_MAX: Final = 1024 * 1024

# Limits the jobs, without their bodies, in an answer to a scan.
SCANNED_MAX: Final = 1_000

# Limits the jobs that one question deletes. The caller asks again until none are left.
EMPTIED_MAX: Final = 1_000


class QuestionWait(PeerWait):
    """A command that waits until other nodes have answered a question."""

    question: i64  # The number of the question.
    about: i64  # The subject of the question.
    name: bytes  # The queue, stage or consumer that it is about.
    asked: list[bytes]  # Nodes that have not answered.
    answered: list[bytes]  # Other nodes that have answered.
    answers: i64  # How many nodes have answered, including this one.
    figures: list[int]  # Sums of the figures in the answers.
    jobs: list[JobImage]
    where: bytes  # The node that has the consumer or stage that was searched for; empty if none has it.

    def __init__(self, question: Question, connection: Connection, asked: list[bytes], tag: object) -> None:
        super().__init__(question.number, connection, tag)
        self.question = question.number
        self.about = question.about
        self.name = question.queue
        self.asked = asked
        self.answered = []
        self.answers = 0
        self.figures = []
        self.jobs = []
        self.where = b""

    def add_answer(self, answer: Answer) -> None:
        self.answers += 1
        while len(self.figures) < len(answer.figures):
            self.figures.append(0)
        for at in range(len(answer.figures)):
            self.figures[at] += answer.figures[at]
        self.jobs.extend(answer.jobs)


class Questions:
    """The unanswered questions of this node, and the answers that it gives to other nodes."""

    def __init__(self, place: ClusterState) -> None:
        self._open: dict[int, QuestionWait] = {}
        self._place = place

    def ask(
        self,
        connection: Connection,
        about: i64,
        queue: bytes,
        count: i64,
        timeout_ms: int,
        tag: object,
        now: i64,
    ) -> QuestionWait:
        """Ask every node that can be reached, including this one, about a queue. Return the wait for the answers."""
        place = self._place
        question = Question(ASK, place.engine.new_number(), about, queue, count)
        return self._ask(connection, question, [place.myself, *place.members.linked()], timeout_ms, tag, now)

    def ask_one(
        self,
        connection: Connection,
        node: bytes,
        queue: bytes,
        count: i64,
        cursor: i64,
        states: i64,
        timeout_ms: int,
        tag: object,
        now: i64,
    ) -> QuestionWait:
        """Ask one node, which may be this one, for a page of its jobs that starts at `cursor`.

        If the node cannot be reached, the wait ends without an answer.
        """
        place = self._place
        question = Question(ASK, place.engine.new_number(), NEXT_JOBS, queue, count)
        question.cursor = cursor
        question.states = states
        asked = [node] if node == place.myself or node in place.members.linked() else []
        return self._ask(connection, question, asked, timeout_ms, tag, now)

    def _ask(
        self, connection: Connection, question: Question, nodes: list[bytes], timeout_ms: int, tag: object, now: i64
    ) -> QuestionWait:
        place = self._place
        others = [node for node in nodes if node != place.myself]
        wait = QuestionWait(question, connection, others, tag)
        begin_wait(place.engine, wait, timeout_ms, now)
        if len(others) < len(nodes):
            wait.add_answer(self._answer(question, now))
        if not others:
            end_wait(place.engine, wait, w.SERVED)
            return wait
        self._open[wait.number] = wait
        for node in others:
            place.outbox.send(node, question)
        return wait

    def wait_ended(self, wait: QuestionWait) -> None:
        self._open.pop(wait.number, None)

    def receive_ask(self, sender: bytes, question: Question, now: i64) -> None:
        self._place.outbox.send(sender, self._answer(question, now))

    def receive_answer(self, sender: bytes, answer: Answer) -> None:
        """Process TOLD: add the answer of another node to the question that it belongs to."""
        wait = self._open.get(answer.number)
        if wait is None or sender not in wait.asked:
            return
        wait.asked.remove(sender)
        wait.answered.append(sender)
        wait.add_answer(answer)
        if wait.about in (CONSUMER, STAGE) and wait.figures[0]:
            wait.where = sender
        if not wait.asked or wait.where:
            end_wait(self._place.engine, wait, w.SERVED)

    def _answer(self, question: Question, now: i64) -> Answer:
        engine = self._place.engine
        answer = Answer(TOLD, question.number, [], [])
        if question.about in (CONSUMER, STAGE):
            is_stage = question.about == STAGE
            is_there = question.queue in engine.stages.by_name if is_stage else question.queue in engine.consumers
            answer.figures = [1 if is_there else 0]
            return answer
        tube = engine.tubes.get(question.queue)
        if question.about == NEXT_JOBS:
            self._answer_next(tube, question, answer, now)
            return answer
        if tube is None:
            return answer
        if question.about == LENGTHS:
            answer.figures = _lengths(tube)
        elif question.about == EMPTY:
            answer.figures = [self._empty(tube, now), tube.total()]
        else:
            answer.jobs = self._some(tube, question, now)
        return answer

    def _answer_next(self, tube: Tube | None, question: Question, answer: Answer, now: i64) -> None:
        place = self._place
        if tube is None and question.queue:
            answer.figures = [0]
            return
        count = max(1, min(question.count, SCANNED_MAX))
        states = question.states
        if states == 0:
            states = -1
        jobs, cursor = place.engine.scan(question.cursor, count, tube, states)
        for job in jobs:
            image = outline_of(place, job, now)
            if is_mere_copy(job):
                image.state = MERE_COPY
            answer.jobs.append(image)
        answer.figures = [cursor]

    def _some(self, tube: Tube, question: Question, now: i64) -> list[JobImage]:
        images: list[JobImage] = []
        body_bytes = 0
        count = max(0, min(question.count, SHOWN_MAX))
        if tube.keys is not None and tube.count_in(s.READY) > SCAN_EXAMINED_MAX:
            # Finding several jobs would require a scan of all of them. The first one is known.
            first = tube.first_ready(None)
            jobs = [first] if first is not None and count > 0 else []
        else:
            jobs = tube.first_jobs(s.READY, count)
        for job in jobs:
            body_bytes += job.body_length()
            if images and body_bytes > _SHOWN_BYTES_MAX:
                break
            try:
                images.append(image_of(self._place, job, now))
            except CommandError:
                continue
        return images

    def _empty(self, tube: Tube, now: i64) -> int:
        return self._place.engine.truncate(tube, now, EMPTIED_MAX) if is_shared(tube) else 0


def is_mere_copy(job: Job) -> bool:
    """Return whether a job on this node is only a copy of a job that another node has queued or delivered."""
    copy = job.copy()
    return copy is not None and copy.state != FRESH and job.state == s.DELAYED and not job.once


def _lengths(tube: Tube) -> list[int]:
    """Return how many jobs are ready, taken, delayed and buried, and how many are only copies (`is_mere_copy`)."""
    copies = 0
    for job in islice(tube.delayed.items, SCAN_EXAMINED_MAX):
        if is_mere_copy(job):
            copies += 1
    delayed = tube.count_in(s.DELAYED) - copies
    return [tube.count_in(s.READY), tube.count_in(s.TAKEN), delayed, tube.count_in(s.BURIED), copies]
