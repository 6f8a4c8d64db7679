"""Every command of a client: the words to send and the meaning of the reply.

Each function below returns a `Call`, which the blocking and the asyncio client send. This module does no I/O.

A `Call` also states whether the client can repeat it if its reply was lost. This is safe if two executions, with
commands of other clients in between, have the same effect as one:
- Queries are repeated.
- Settings are repeated, because the last writer wins anyway.
- Commands with a number or id of their own are repeated: claims, stages, and puts with a dedup id.
- Commands that only the session that holds the job can send are repeated. If the repetition is refused,
  `ExecutionCheck` (below) finds out from the state of the job whether the first command was executed.
- Commands on a set of jobs, such as `kick`, are not repeated, because the set may have changed.
- Commands that any client can send for a job are not repeated, because a repetition could undo a later command of
  another client.
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable, Iterable
from types import EllipsisType
from typing import Any, Final, Generic, TypeVar, cast

from penstock.changes import Change
from penstock.client.facts import JobFacts
from penstock.core import states as s
from penstock.core.errors import (
    BadAnswer,
    CommandError,
    NotOwner,
    NotTaken,
    OutOfRange,
    PenstockError,
    UnknownSession,
    WrongType,
)
from penstock.core.ids import is_long
from penstock.core.job import BODY_BYTES, BODY_JSON, BODY_MSGPACK, BODY_TEXT, Draft
from penstock.core.limits import (
    BATCH_BYTES_MAX,
    BATCH_JOBS_MAX,
    NEVER,
    PRIORITY_UNSET,
    UNSET,
    check_count,
    check_priority,
)
from penstock.core.policy import PRESETS, TubePolicy
from penstock.core.tasks.batch import BATCH_STATES
from penstock.core.tasks.signals import SIGNAL_NAMES
from penstock.core.waits import END_NAMES
from penstock.durations import Durations, durations_from
from penstock.journal.history.block import BlockDigest
from penstock.journal.history.reader import EVENT_FIELDS, Event
from penstock.keywords import check_keywords
from penstock.options import (
    DEFAULT_TYPE,
    PUT_KEYWORDS,
    RELEASE_KEYWORDS,
    TUBE_KEYWORDS,
    BatchInfo,
    BatchState,
    Body,
    ClaimInfo,
    Duration,
    JobOutcome,
    JobProgress,
    NewJob,
    Outcome,
    ProgressValue,
    PutOptions,
    ReleaseOptions,
    Seconds,
    SessionEvent,
    SessionEvents,
    SignalName,
    altered,
    boolean,
    check_shard,
    decode_body,
    duration_ms,
    each_put,
    encode_body,
    header_text,
    headers_from_bytes,
    integer,
    mapping,
    outcome_in,
    policy_from,
    put_draft,
    text,
    to_bytes,
    to_text,
)
from penstock.wire.headers import decode_headers

T = TypeVar("T")

# Whether a call is repeated if its reply was lost.
REPEAT: Final = 0  # Repeat it.
# Repeat it. If it is refused then, `ExecutionCheck` decides whether the first attempt was executed.
REPEAT_AND_CHECK: Final = 1
NO_REPEAT: Final = 2  # Do not repeat it. It is unknown whether it was executed.

# The maximum number of jobs in the reply to a take. A greater count needs several takes.
TAKE_JOBS_MAX: Final = 1_000
# A server may shorten a reply whose bodies and headers have more bytes than this.
_TAKE_BYTES: Final = 1024 * 1024

# The number of events that are asked for at a time.
EVENTS_COUNT: Final = 1_000
# How long a subscriber waits for more events.
EVENTS_WAIT_MS: Final = 30_000

# The bytes that a job of an MPUT needs besides its body. The whole command has to fit into the server's input buffer of
# a client, by default 1 GB.
_JOB_WORDS_BYTES: Final = 64

_TOKEN_BYTES: Final = 16

_KIND_WORDS: Final = {BODY_BYTES: b"bytes", BODY_TEXT: b"text", BODY_JSON: b"json", BODY_MSGPACK: b"msgpack"}
_KINDS: Final = {word: kind for kind, word in _KIND_WORDS.items()}

Reply = Any


class Call(Generic[T]):
    """One command and the meaning of its reply."""

    __slots__ = (
        "_read",
        "delivered",
        "empty",
        "execution_check",
        "largest",
        "repeat",
        "timeout_at",
        "wait_ms",
        "words",
    )

    def __init__(
        self,
        words: list[bytes],
        read: Callable[[Reply], T],
        repeat: int,
        wait_ms: int = 0,
        timeout_at: int = 0,
        taken: Callable[[T], dict[str, int]] | None = None,
        happened: ExecutionCheck | None = None,
    ) -> None:
        self.words = words
        self._read = read
        self.repeat = repeat
        self.wait_ms = wait_ms  # How long the command may wait on the server; NEVER: no limit.
        self.timeout_at = timeout_at  # The index of the word that contains this time.
        # For a take: returns the ids of the jobs in the result, which the session then holds, with delivery numbers.
        self.delivered = taken
        self.execution_check = happened
        self.largest = 0  # The length of its longest body in bytes.
        # The reply that means that the timeout is over. If the server is not reachable then, the call returns the same
        # result. None: there is no such reply, and an error is raised.
        self.empty: Reply = None

    def read(self, answer: Reply) -> T:
        """Return the result in a reply. Raise BadAnswer if this command cannot have such a reply."""
        try:
            return self._read(answer)
        except PenstockError:
            raise
        except Exception as error:
            # The server's reply was the only input, so every error means that it is malformed.
            raise BadAnswer() from error

    def wait_at_most(self, ms: int) -> None:
        """Let the command wait on the server for at most `ms` milliseconds."""
        if self.timeout_at and self.wait_ms != NEVER:
            self.wait_ms = max(0, min(self.wait_ms, ms))
            self.words[self.timeout_at] = self.wait_word()

    def hold(self) -> int:
        """Return the number of the delivery to which the call applies, or 0 if it applies to any delivery."""
        return 0 if self.execution_check is None else self.execution_check.hold

    def wait_word(self) -> bytes:
        return duration(self.wait_ms)


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class ExecutionCheck:
    """Finds out whether a command on a taken job was executed, if its reply was lost."""

    ask: list[bytes]  # A command whose reply describes the job.
    hold: int  # The number of this session's delivery; 0: unknown, or not relevant because the command ends the job.
    states_after: tuple[str, ...]  # The job is in one of these states after the call.
    gives_back: bool  # The call returns the job, so the job may be in any other state by now.

    def error_if_ended(self, there: JobFacts) -> CommandError | None:
        """Return an error if the delivery `hold` has ended, otherwise None.

        After the end of the delivery, the call must not be repeated, even if the session has taken the job again.
        """
        if there.state != "taken":
            return NotTaken()
        return NotOwner() if there.deliveries > self.hold else None

    def judge(self, refused: CommandError, there: JobFacts | None) -> None:
        """Raise `refused`, unless the state of the job shows that the first attempt was executed.

        `there` describes the job as it is now. It is None if the job no longer exists.
        """
        state = "gone" if there is None else there.state
        if self.gives_back and (
            isinstance(refused, NotOwner)
            # The job was ready when the call was refused, and has been taken since.
            or (isinstance(refused, NotTaken) and state == "taken")
        ):
            return
        if state not in self.states_after:
            raise refused


# ---- Words -----------------------------------------------------------------------------------------------------------


def duration(ms: int) -> bytes:
    """Return a time in milliseconds as a word of a command."""
    return b"forever" if ms == NEVER else b"%dms" % ms


def _id(id: str) -> bytes:
    if not isinstance(id, str):
        raise WrongType(f"a job's id is text, not {type(id).__name__}")
    return id.encode("utf-8", "replace")


def _state(state: str) -> bytes:
    if state not in s.STATE_NAMES[1:]:
        raise OutOfRange(f"a state is one of {', '.join(s.STATE_NAMES[1:])}, not {state!r}")
    return state.encode()


def _put_words(asked: Draft) -> list[bytes]:
    """Return the words of the options of a put, without the kind of the body."""
    words = [word for word, wanted in ((b"URGENT", asked.urgent), (b"ONCE", asked.once), (b"NEW", asked.new)) if wanted]
    if asked.delay_ms:
        words += [b"DELAY", duration(asked.delay_ms)]
    for word, ms in ((b"AT", asked.at_ms), (b"TTL", asked.ttl_ms), (b"TTR", asked.ttr_ms)):
        if ms != UNSET:
            words += [word, duration(ms)]
    numbers = ((b"PRIORITY", asked.priority, PRIORITY_UNSET), (b"NACKS", asked.nacks, 0))
    for word, number, unset in (*numbers, (b"NUMBER", asked.number, UNSET)):
        if number != unset:
            words += [word, b"%d" % number]
    if asked.initial_state != s.READY:
        words += [b"STATE", s.STATE_NAMES[asked.initial_state].encode()]
    if asked.retry is not None:
        words += [b"RETRY", asked.retry.text.encode()]
    labels = ((b"KEY", asked.key), (b"NAME", asked.name), (b"UNIQUE", asked.unique), (b"DEDUP", asked.dedup))
    for word, label in labels:
        if label is not None:
            words += [word, label]
    if asked.batch is not None:
        words += [b"BATCH", asked.batch]
    if asked.headers:
        for name, value in decode_headers(asked.headers).items():
            words += [b"HEADER", name.encode(), value]
    return words + _for_driver(asked.options)


def _for_driver(options: dict[str, Any] | None) -> list[bytes]:
    if options is None:
        return []
    try:
        return [b"OPTIONS", json.dumps(mapping(options, "options"), allow_nan=False).encode()]
    except (TypeError, ValueError, RecursionError) as error:
        raise WrongType(f"the options for a driver are values that JSON can hold: {error}") from None


def put_options(policy: TubePolicy, options: PutOptions) -> PutOptions:
    """Return the options of a put. If the tube has a driver, `options` contains all of them except the headers."""
    if not policy.driven or not options:
        return options
    given: dict[str, Any] = dict(options)
    kept: PutOptions = {"headers": given.pop("headers")} if "headers" in given else {}
    return {**kept, "options": {**mapping(given.pop("options", {}), "options"), **given}}


_TIME, _NUMBER, _TEXT, _YES_NO = range(4)
_TUBE_OPTIONS: Final = {
    "ttl": _TIME,
    "ttr": _TIME,
    "priority": _NUMBER,
    "ttl_while_taken": _TEXT,
    "key_limit": _NUMBER,
    "fair": _YES_NO,
    "capacity": _NUMBER,
    "capacity_bytes": _NUMBER,
    "retry": _TEXT,
    "max_deliveries": _NUMBER,
    "dead_letter": _TEXT,
    "keep": _YES_NO,
    "zombie": _TIME,
    "dedup_window": _TIME,
    "dedup_count": _NUMBER,
    "temporary": _YES_NO,
}


def _tube_words(options: dict[str, Any]) -> list[bytes]:
    """Return the words of the options of a tube. A time that is None means forever. Other Nones are left out."""
    words: list[bytes] = []
    for name, value in options.items():
        kind = _TUBE_OPTIONS[name]
        if value is None and kind != _TIME:
            continue
        if kind == _TIME:
            word = duration(duration_ms(value, name))
        elif kind == _YES_NO:
            word = b"yes" if value else b"no"
        else:
            word = str(value).encode()
        words += [name.upper().replace("_", "-").encode(), word]
    return words


# ---- Meaning of replies ----------------------------------------------------------------------------------------------


# The reply of a server that has executed a command without a result.
DONE: Final = b"OK"


def nothing(answer: Reply) -> None:
    """Check a reply that only confirms a command: OK, or the number of jobs."""
    if answer != DONE:
        number(answer)


def ignored(answer: Reply) -> None:
    """Accept any reply except an error."""


def number(answer: Reply) -> int:
    """Return a reply that is a number. Raise BadAnswer otherwise."""
    if type(answer) is not int:
        raise BadAnswer(f"the server answers with {_kind(answer)} instead of a number")
    return answer


def octets(answer: Reply) -> bytes:
    """Return a reply that is bytes. Raise BadAnswer otherwise."""
    if type(answer) is not bytes:
        raise BadAnswer(f"the server answers with {_kind(answer)} instead of text")
    return answer


def items(answer: Reply) -> list[Reply]:
    """Return a reply that is a list. Raise BadAnswer otherwise."""
    if type(answer) is not list:
        raise BadAnswer(f"the server answers with {_kind(answer)} instead of a list")
    return answer


def _kind(answer: Reply) -> str:
    kinds = {int: "a number", bytes: "text", list: "a list", dict: "a map", type(None): "nothing", bool: "yes or no"}
    return kinds.get(type(answer), "something else")


def _optional(read: Callable[[Reply], T], answer: Reply) -> T | None:
    return None if answer is None else read(answer)


def _job_id(answer: Reply) -> str:
    """Return the id of a job in its form of 40 characters."""
    if not is_long(octets(answer)):
        raise BadAnswer("the server answers with something that is not a job id")
    return octets(answer).decode("ascii")


def job(answer: Reply) -> JobFacts:
    """Return the description of a job in a reply."""
    state = answer.get(b"state")
    headers = answer.get(b"headers")
    return JobFacts(
        _job_id(answer[b"id"]),
        octets(answer[b"tube"]),
        # None if the body is damaged on the disk of the server.
        _optional(octets, answer[b"body"]),  # type: ignore[arg-type]
        _KINDS.get(octets(answer[b"as"]), BODY_BYTES),
        number(answer[b"deliveries"]),
        number(answer[b"nacks"]),
        number(answer[b"once"]) == 1,
        "taken" if state is None else octets(state).decode(),
        None if headers is None else _headers(headers),
    )


def _headers(answer: Reply) -> dict[str, str]:
    """Return the headers in a reply about a job or a put."""
    return {octets(name).decode(): header_text(octets(value)) for name, value in answer.items()}


def jobs(answer: Reply) -> list[JobFacts]:
    return [job(each) for each in items(answer)]


def _up_to(count: int, answer: Reply) -> list[JobFacts]:
    """Return the descriptions of the jobs in a reply. Raise BadAnswer if there are more than `count`."""
    found = jobs(answer)
    if len(found) > count:
        raise BadAnswer(f"the server answers with {len(found)} jobs instead of {count} at most")
    return found


def _after(cursor: int, answer: Reply) -> int:
    """Return the next cursor of a scan, or 0 if this was the last page.

    Raise BadAnswer if it is neither 0 nor greater than `cursor`, because the scan might never end.
    """
    following = octets(answer)
    if not following.isdigit() or not (int(following) == 0 or cursor < int(following) < 1 << 63):
        raise BadAnswer("the server answers with a cursor that goes back")
    return int(following)


def page(cursor: bytes, answer: Reply) -> tuple[bytes, list[Reply]]:
    """Return the next cursor of a scan and the items of this page."""
    after, found = items(answer)
    return b"%d" % _after(int(cursor), after), items(found)


def name(answer: Reply) -> str:
    return to_text(octets(answer[b"name"]))


def names(answer: Reply) -> list[str]:
    return [to_text(octets(name)) for name in items(answer)]


_YES_NO_FIELDS: Final = frozenset(
    field.name for field in dataclasses.fields(TubePolicy) if isinstance(field.default, bool)
)


def policy(answer: Reply) -> TubePolicy:
    """Return the policy of a tube, from the reply to TUBE INFO."""
    fields: dict[str, Any] = {}
    for word, value in answer[b"policy"].items():
        name = octets(word).decode()
        if isinstance(value, bytes):
            value = value.decode()
        elif isinstance(value, list):
            value = [octets(each).decode() for each in value]
        elif name in _YES_NO_FIELDS:
            value = value == 1
        fields[name] = value
    return policy_from(fields)


def states(answer: Reply) -> dict[str, int]:
    return {name: number(answer[name.encode()]) for name in s.STATE_NAMES[1:]}


def info(answer: Reply) -> dict[str, Any]:
    """Return the state of a tube, in the form of `tube.info`."""
    oldest_ms = _optional(number, answer[b"oldest-ms"])
    return {
        "name": name(answer),
        "type": to_text(octets(answer[b"type"])),
        **states(answer),
        "oldest": None if oldest_ms is None else oldest_ms / 1000,
        "waiting": number(answer[b"waiting"]),
        "keys": number(answer[b"keys"]),
        "paused_in": number(answer[b"paused-in"]) == 1,
        "paused_out": number(answer[b"paused-out"]) == 1,
    }


def counts(answer: Reply) -> dict[str, int]:
    return {octets(name).decode(): number(count) for name, count in answer.items()}


def durations(answer: Reply) -> dict[str, Durations]:
    """Return how long jobs waited and how long work on them took, in the form of `tube.durations`."""
    found = {}
    for word in ("waits", "runs"):
        fields = answer[word.encode()]
        found[word] = durations_from([number(count) for count in fields[b"buckets"]], number(fields[b"total-ms"]))
    return found


_MOMENTS: Final = ("created", "expires", "wakes", "next_event", "ttl", "ttr", "now")


def meta(answer: Reply) -> dict[str, Any]:
    """Return all properties of a job, in the form of `job.meta`."""
    told: dict[str, Any] = {}
    for word, value in answer.items():
        name = octets(word).decode()
        if isinstance(value, bytes):
            told[name] = to_text(value)
        else:
            figure = _optional(number, value)
            told[name] = figure / 1000 if name in _MOMENTS and figure is not None else figure
    return told


_EVENT_TEXTS: Final = ("event", "tube", "job", "before", "after", "actor_name", "actor_user", "key", "reason")


def event(answer: Reply) -> Event:
    """Return one event of the journal."""
    fields: dict[str, Any] = {}
    for word, value in answer.items():
        name = octets(word).decode().replace("-", "_")
        if name not in EVENT_FIELDS or value is None:  # A newer server may send more fields.
            continue
        if name in _EVENT_TEXTS:
            fields[name] = to_text(octets(value))
        elif name == "headers":
            fields[name] = _headers(value)
        else:
            fields[name] = octets(value) if name == "body" else number(value)
    return Event(**fields)


def events(answer: Reply) -> tuple[int, list[Event]]:
    position, found = items(answer)
    return number(position), [event(each) for each in items(found)]


def block_digest(answer: Reply) -> BlockDigest:
    first, end, rows, rows_sha256, bodies_sha256 = items(answer)
    bodies = None if bodies_sha256 is None else bytes.fromhex(octets(bodies_sha256).decode())
    return BlockDigest(number(first), number(end), number(rows), bytes.fromhex(octets(rows_sha256).decode()), bodies)


def change(event: Event) -> Change | None:
    """Return the change that subscribers receive for an event; None if the event is not about a job."""
    if event.job is None:
        return None
    return Change(
        event.job,
        event.tube or "",
        event.event,
        event.before or "",
        event.after or "",
        event.time_ms / 1000,
        event.number,
    )


# ---- The session -----------------------------------------------------------------------------------------------------


def identify(token: str | None, grace: Seconds | None) -> Call[tuple[str, int]]:
    """Build the call that joins the session of a token, or stays in this one if the token is None.

    It also sets the grace time of the session, unless `grace` is None. The result is the token and the grace time.
    """
    words = [b"IDENTIFY"]
    if token is not None:
        try:
            raw = bytes.fromhex(token)
        except (TypeError, ValueError):
            raise WrongType("a session's token is 32 hexadecimal digits") from None
        if len(raw) != _TOKEN_BYTES:
            raise UnknownSession()
        words.append(raw.hex().encode())
    if grace is not None:
        words += [b"GRACE", duration(duration_ms(grace, "grace"))]
    return Call(words, lambda answer: (token_of(answer), number(answer[b"grace"])), REPEAT)


def max_body() -> Call[int]:
    return Call([b"IDENTIFY"], lambda answer: number(answer[b"max-body"]), REPEAT)


def token_of(answer: Reply) -> str:
    """Return the token of a session: hexadecimal digits."""
    return bytes.fromhex(octets(answer[b"token"]).decode("ascii")).hex()


def leave_session(left: str, joined: str) -> list[list[bytes]]:
    """Return the commands that leave the session `left` and then join the session `joined` again.

    If no other connection has joined `left`, that session ends, and its jobs return to their tubes immediately.
    """
    return [[b"IDENTIFY", left.encode(), b"GRACE", b"0"], [b"IDENTIFY", joined.encode()]]


def end_session() -> list[bytes]:
    """Return the command that ends the session of a client that closes. Its jobs return to their tubes immediately."""
    return [b"IDENTIFY", b"GRACE", b"0"]


def held(end_waits: bool) -> Call[list[str]]:
    """Ask for the ids of all jobs that the session holds. With `end_waits`, first end the session's waiting takes."""
    words = [b"JOB", b"HELD", b"ENDWAITS"] if end_waits else [b"JOB", b"HELD"]
    return Call(words, lambda answer: [_job_id(id) for id in items(answer)], REPEAT)


# ---- Tubes -----------------------------------------------------------------------------------------------------------


def tube(name: bytes, type: str | TubePolicy | None, options: dict[str, Any]) -> Call[TubePolicy]:
    """Build the call that creates a tube, or finds it if it exists."""
    words = [b"TUBE", b"CREATE", name]
    if isinstance(type, TubePolicy):
        words += _policy_words(type, options)
    elif type is not None or options:
        named = DEFAULT_TYPE if type is None else text(type, "the type of a tube")
        words += [b"TYPE", named.encode()]
        if named in PRESETS:
            # Check the options before they are sent.
            check_keywords("tube", options, TUBE_KEYWORDS, "name", "type", "alter")
            altered(PRESETS[named], **options)
            words += _tube_words(options)
        else:
            # The server may have a driver of this name.
            words += _for_driver(options or None)
    return Call(words, policy, REPEAT)


def _policy_words(policy: TubePolicy, options: dict[str, Any]) -> list[bytes]:
    check_keywords("tube", options, TUBE_KEYWORDS, "name", "type", "alter")
    wanted = dataclasses.asdict(altered(policy, **options))
    told = {field: None if value == NEVER else value for field, value in wanted.items()}
    return [b"POLICY", json.dumps(told).encode()]


def alter_to(name: bytes, type: str | TubePolicy | None, options: dict[str, Any]) -> Call[TubePolicy]:
    """Build the call that changes the options of a tube. It raises TubeExists if the tube has another type."""
    check_keywords("tube", options, TUBE_KEYWORDS, "name", "type", "alter")
    if isinstance(type, TubePolicy):
        words = _policy_words(type, options)
    else:
        words = [*([] if type is None else [b"TYPE", text(type, "the type of a tube").encode()]), *_tube_words(options)]
    return Call([b"TUBE", b"ALTER", name, *words], policy, REPEAT)


def find_tube(name: bytes) -> Call[TubePolicy]:
    return Call([b"TUBE", b"INFO", name], policy, REPEAT)


def tubes() -> Call[list[str]]:
    return Call([b"TUBE", b"LIST"], names, REPEAT)


def scan_tubes(cursor: bytes, of_tube: Callable[[Reply], T]) -> Call[tuple[bytes, list[T]]]:
    """Ask for a page of tubes. The result is the next cursor, and what `of_tube` returns for each tube."""

    def read(answer: Reply) -> tuple[bytes, list[T]]:
        after, found = page(cursor, answer)
        return after, [of_tube(each) for each in found]

    return Call([b"TUBE", b"SCAN", cursor, b"COUNT", b"1000"], read, REPEAT)


def scan_sessions(cursor: bytes) -> Call[tuple[bytes, list[dict[str, Any]]]]:
    """Ask for a page of sessions. The result is the next cursor and the sessions."""

    def read(answer: Reply) -> tuple[bytes, list[dict[str, Any]]]:
        after, found = page(cursor, answer)
        return after, [session(each) for each in found]

    return Call([b"SESSION", b"SCAN", cursor, b"COUNT", b"1000"], read, REPEAT)


def session(answer: Reply) -> dict[str, Any]:
    """Return a session. Its times are in seconds."""
    return {
        "number": number(answer[b"number"]),
        "name": name(answer),
        "user": to_text(octets(answer[b"user"])),
        "clients": [
            {
                "id": number(each[b"id"]),
                "address": to_text(octets(each[b"address"])),
                "node": to_text(octets(each[b"node"])),
                "idle": number(each[b"idle-ms"]) / 1000,
            }
            for each in items(answer[b"clients"])
        ],
        "held": number(answer[b"held"]),
        "holds": _by_tube(answer[b"holds"]),
        "waiting": _by_tube(answer[b"waiting"]),
        "grace": number(answer[b"grace-ms"]) / 1000,
        "since": _seconds(answer[b"since"]),
        "ends": _seconds(answer[b"ends"]),
    }


def _by_tube(answer: Reply) -> dict[str, int]:
    return {to_text(octets(tube)): number(count) for tube, count in answer.items()}


def _seconds(answer: Reply) -> float | None:
    return None if answer is None else number(answer) / 1000


def scan_policies(cursor: bytes) -> Call[tuple[bytes, list[tuple[str, TubePolicy]]]]:
    """Ask for a page of tubes. The result is the next cursor, and the name and policy of each tube."""

    def read(answer: Reply) -> tuple[bytes, list[tuple[str, TubePolicy]]]:
        after, found = page(cursor, answer)
        return after, [(name(each), policy(each)) for each in found]

    return Call([b"TUBE", b"SCAN", cursor, b"COUNT", b"1000", b"POLICY"], read, REPEAT)


def tube_stats(name: bytes, read: Callable[[Reply], T]) -> Call[T]:
    """Ask for the numbers of a tube: jobs in each state, events and transitions."""
    return Call([b"TUBE", b"STATS", name], read, REPEAT)


def tube_keys(tube: bytes, count: int) -> Call[list[dict[str, Any]]]:
    """Ask for the keys of a tube with the most ready jobs."""

    def read(answer: Reply) -> list[dict[str, Any]]:
        return [
            {
                "key": to_text(octets(each[b"key"])),
                "ready": number(each[b"ready"]),
                "taken": number(each[b"taken"]),
                "jobs": number(each[b"jobs"]),
            }
            for each in items(answer[b"keys"])
        ]

    return Call([b"TUBE", b"KEYS", tube, b"COUNT", b"%d" % integer(count, "count")], read, REPEAT)


def tube_causes(tube: bytes, count: int) -> Call[list[dict[str, Any]]]:
    """Ask for the causes of failure of the buried jobs of a tube."""

    def read(answer: Reply) -> list[dict[str, Any]]:
        return [
            {
                "cause": to_text(octets(each[b"cause"])),
                "jobs": number(each[b"jobs"]),
                "oldest": number(each[b"oldest"]) / 1000,
                "example": to_text(octets(each[b"example"])),
            }
            for each in items(answer[b"causes"])
        ]

    return Call([b"TUBE", b"CAUSES", tube, b"COUNT", b"%d" % integer(count, "count")], read, REPEAT)


def alter(name: bytes, options: dict[str, Any]) -> Call[TubePolicy]:
    check_keywords("alter", options, TUBE_KEYWORDS)
    altered(PRESETS[DEFAULT_TYPE], **options)
    words = _tube_words(options)
    if not words:
        return find_tube(name)
    return Call([b"TUBE", b"ALTER", name, *words], policy, REPEAT)


def pause(name: bytes, puts: bool, takes: bool) -> Call[None]:
    """Pause a tube for puts, for takes or for both, or resume it."""
    inward, outward = boolean(puts, "puts"), boolean(takes, "takes")
    word = {(True, True): b"all", (True, False): b"in", (False, True): b"out", (False, False): b"none"}
    return Call([b"TUBE", b"PAUSE", name, word[inward, outward]], nothing, REPEAT)


def truncate(name: bytes) -> Call[int]:
    """Build the call that removes every job of a tube.

    The client does not repeat the call after a lost reply: it would also remove jobs that were put in the meantime.
    """
    return Call([b"TUBE", b"TRUNCATE", name], number, NO_REPEAT)


def drop(name: bytes) -> Call[None]:
    return Call([b"TUBE", b"DROP", name], nothing, NO_REPEAT)


def release_all(name: bytes) -> Call[int]:
    """Build the call that returns every taken job of a tube to the tube.

    The client does not repeat the call after a lost reply: it would also return jobs that were taken in the meantime.
    """
    return Call([b"TUBE", b"RELEASE", name], number, NO_REPEAT)


def kick(name: bytes, count: int, delay: Seconds, ttl: Duration | None) -> Call[int]:
    word = b"%d" % check_count(integer(count, "count"), "the number of jobs to kick")
    return Call([b"KICK", name, word, *_delay(delay), *_ttl_and_priority(ttl, None)], number, NO_REPEAT)


# ---- Putting ---------------------------------------------------------------------------------------------------------


def put(name: bytes, body: Body, timeout: Duration, options: PutOptions) -> Call[JobFacts]:
    timeout_ms = 0 if timeout == 0 else duration_ms(timeout, "timeout")
    if isinstance(body, bytes) and not options and not timeout_ms:
        plain = Call([b"PUT", name, body, b"EXISTING"], lambda id: _was_put(id, name, body, BODY_BYTES), NO_REPEAT)
        plain.largest = len(body)
        return plain
    asked = put_draft("put", body, options)
    words = [b"PUT", name, asked.body, b"EXISTING", *_put_words(asked)]
    if asked.body_kind != BODY_BYTES:
        words += [b"AS", _KIND_WORDS[asked.body_kind]]
    if timeout_ms:
        words += [b"TIMEOUT", duration(timeout_ms)]
    call = Call(
        words,
        lambda id: _was_put(id, name, asked.body, asked.body_kind, asked),
        # The server keeps the dedup id after the job is gone.
        NO_REPEAT if asked.dedup is None else REPEAT,
        timeout_ms,
        len(words) - 1 if timeout_ms else 0,
    )
    call.largest = len(asked.body)
    return call


def _was_put(id: bytes, tube: bytes, body: bytes, kind: int, asked: Draft | None = None) -> JobFacts:
    facts = JobFacts(_job_id(id), tube, body, kind, 0, 0, asked is not None and asked.once, "ready")
    if asked is not None:
        later = asked.delay_ms or (asked.at_ms != UNSET and asked.at_ms > time.time() * 1000)
        facts.state = "delayed" if later else s.STATE_NAMES[asked.initial_state]
        if asked.headers:
            facts.headers = headers_from_bytes(asked.headers)
        # The server may have returned an existing job, with another body and state.
        facts.is_guess = asked.unique is not None or asked.dedup is not None
    return facts


def stage(
    stage: bytes, name: bytes, expire_ms: int, bodies: Iterable[Body | NewJob], options: PutOptions
) -> Call[Any] | None:
    """Build the call that puts a job for each body into a stage. Return None if there are no bodies.

    When the stage is published, the jobs go to the tube `name`.
    """
    check_keywords("put_many", options, PUT_KEYWORDS, "tube", "bodies")
    call = put_many(name, bodies, options)
    if call is not None:
        head = [b"STAGE", stage, name]
        if expire_ms != UNSET:
            head += [b"EXPIRE", duration(expire_ms)]
        # These words replace MPUT, the tube and EXISTING.
        call.words[:3] = [*head, b"IDS"]
        call.repeat = NO_REPEAT
    return call


def close_stages(word: bytes, stages: Iterable[object]) -> Call[int]:
    """Build the call that publishes or discards stages. A repetition has no effect."""
    names = [to_bytes(stage, "the name of a stage") for stage in stages]
    if not names:
        raise OutOfRange("name at least one stage")
    return Call([word, *names], number, REPEAT)


def put_many(name: bytes, bodies: Iterable[Body | NewJob], options: PutOptions) -> Call[list[JobFacts]] | None:
    """Build the call that puts a job for each body, all or none of them. Return None if there are no bodies."""
    given = each_put(bodies, options)
    own = any(each is not options for _, each in given)  # Whether any job has options of its own.
    asked = [put_draft("put_many", body, each) for body, each in given]
    if not asked:
        return None
    if len(asked) > BATCH_JOBS_MAX:
        raise OutOfRange(f"a batch may have up to {BATCH_JOBS_MAX} jobs, all or nothing; put them in several")
    length = sum(each.log_bytes() for each in asked) + _JOB_WORDS_BYTES * len(asked)
    if length > BATCH_BYTES_MAX:
        raise OutOfRange(f"a batch may have up to {BATCH_BYTES_MAX} bytes, all or nothing; put it in several")
    kind = asked[0].body_kind
    words = [b"MPUT", name, b"EXISTING", *([] if own else _put_words(asked[0]))]
    if kind != BODY_BYTES:
        words += [b"AS", _KIND_WORDS[kind]]
    for each in asked:
        words.append(b"JOB")
        words.append(each.body)
        if own:
            # An option of all jobs cannot be removed for a single one, so each job gets all its options.
            words += _put_words(each)
        if each.body_kind != kind:
            words += [b"AS", _KIND_WORDS[each.body_kind]]

    def read(answer: Reply) -> list[JobFacts]:
        found = zip(items(answer), asked, strict=True)
        return [_was_put(id, name, each.body, each.body_kind, each) for id, each in found]

    call = Call(words, read, REPEAT if all(each.dedup is not None for each in asked) else NO_REPEAT)
    call.largest = max(len(each.body) for each in asked)
    return call


# ---- Taking ----------------------------------------------------------------------------------------------------------


def take_one(name: bytes) -> Call[list[JobFacts]]:
    return Call([b"TAKE", name, b"HEADERS"], lambda answer: _up_to(1, answer), REPEAT, taken=_holds)


def _holds(found: list[JobFacts]) -> dict[str, int]:
    return {job.id: job.deliveries for job in found}


def may_be_more(found: list[JobFacts]) -> bool:
    """Return whether a reply reached the limit of jobs or bytes, so that another take may find more jobs."""
    return len(found) == TAKE_JOBS_MAX or sum(map(_reply_bytes, found)) > _TAKE_BYTES


def _reply_bytes(job: JobFacts) -> int:
    """Return how many bytes of a job count for the server's limit of a reply: its body and headers."""
    length = len(job.raw_body)
    if job.headers is not None:
        length += sum(
            len(name.encode()) + len(value.encode("utf-8", "surrogateescape")) for name, value in job.headers.items()
        )
    return length


def take(names: list[bytes], count: int, timeout_ms: int, key: bytes | None, ttr_ms: int) -> Call[list[JobFacts]]:
    """Build the call that takes up to `count` jobs, or waits for the first one."""
    words = [b"TAKE", names[0], b"TIMEOUT", duration(timeout_ms)]
    if count != 1:
        words += [b"COUNT", b"%d" % count]
    if key is not None:
        words += [b"KEY", key]
    if ttr_ms != UNSET:
        words += [b"TTR", duration(ttr_ms)]
    words.append(b"HEADERS")
    if len(names) > 1:
        words += [b"AND", *names[1:]]
    call = Call(words, lambda answer: _up_to(count, answer), REPEAT, timeout_ms, 3, _holds)
    call.empty = []
    return call


# ---- One job ---------------------------------------------------------------------------------------------------------


def peek(id: str) -> Call[JobFacts]:
    return Call([b"JOB", b"PEEK", _id(id)], job, REPEAT)


def named(name: bytes, of: str | bytes) -> Call[JobFacts]:
    return Call([b"JOB", b"NAMED", name, to_bytes(of, "a job's name")], job, REPEAT)


def list_jobs(name: bytes, state: str, limit: int) -> Call[list[JobFacts]]:
    """Ask for the jobs of a tube that are in a state."""
    word = _state(state)
    if not 0 <= integer(limit, "limit") <= BATCH_JOBS_MAX:
        raise OutOfRange(f"limit must be 0 to {BATCH_JOBS_MAX}")
    words = [b"JOB", b"LIST", name, word, b"COUNT", b"%d" % limit]
    return Call(words, lambda answer: _up_to(limit, answer), REPEAT)


def _finish(id: str, hold: int, words: list[bytes], *ends: str, gives_back: bool = False) -> Call[None]:
    """Build a call that ends a job or its delivery. If its reply is lost, it is repeated with an ExecutionCheck.

    `ends` are the possible states of the job after the call.
    """
    happened = ExecutionCheck([b"JOB", b"PEEK", id.encode()], hold, ends, gives_back)
    return Call(words, nothing, REPEAT_AND_CHECK, happened=happened)


def ack(id: str) -> Call[None]:
    return _finish(id, 0, [b"ACK", id.encode()], "gone", "done", "zombie")


def ack_many(ids: list[str]) -> Call[int]:
    """Build the call that acks jobs. A repetition skips those that the first attempt acked.

    The reply is the number of jobs that were acked. For a single job it would be an error if the job was not held.
    """
    if len(ids) > BATCH_JOBS_MAX:
        raise OutOfRange(f"a command may name up to {BATCH_JOBS_MAX} jobs")
    return Call([b"ACK", *(id.encode() for id in ids)], number, REPEAT)


def done(id: str, result: Body, ttl: Duration | EllipsisType) -> Call[None]:
    """Build the call that acks a job and replaces its body by a result."""
    raw, kind = encode_body(result)
    words = [b"JOB", b"DONE", id.encode(), raw]
    if kind != BODY_BYTES:
        words += [b"AS", _KIND_WORDS[kind]]
    if ttl is not ...:
        words += [b"TTL", duration(duration_ms(ttl, "ttl"))]
    call = _finish(id, 0, words, "done")
    call.largest = len(raw)
    return call


def then(call: Call[None], hold: int, follow_ups: list[tuple[bytes, Draft]]) -> Call[list[JobFacts]]:
    """Extend a call that ends a delivery: it also puts jobs. Its result is these jobs.

    Each put gets a dedup id, so that the server recognizes a repetition of the command: it returns the same jobs.
    `hold` is the number of the delivery, so that a later delivery of the job puts other jobs.
    """
    words = list(call.words)
    at = 1 if words[0] in (b"ACK", b"BURY") else 2
    for index, (name, asked) in enumerate(follow_ups):
        if asked.dedup is None:
            asked.dedup = b"%s/%d/%d" % (words[at], hold, index)
        words += _then_words(name, asked)

    def read(answer: Reply) -> list[JobFacts]:
        found = zip(items(answer), follow_ups, strict=True)
        return [_was_put(id, name, asked.body, asked.body_kind, asked) for id, (name, asked) in found]

    extended = Call(words, read, REPEAT)
    extended.largest = max(call.largest, *(len(asked.body) for _, asked in follow_ups))
    return extended


def _then_words(name: bytes, asked: Draft) -> list[bytes]:
    """Return the words of a put that follows another command."""
    words = [b"THEN", b"PUT", name, asked.body, *_put_words(asked)]
    return words if asked.body_kind == BODY_BYTES else [*words, b"AS", _KIND_WORDS[asked.body_kind]]


def release(id: str, delay: Seconds = 0, options: ReleaseOptions | None = None, hold: int = 0) -> Call[None]:
    """Build the call that returns a job to its tube."""
    given = options or {}
    check_keywords("release", given, RELEASE_KEYWORDS, "delay")
    key = given.get("key")
    words = [b"RELEASE", id.encode(), *_delay(delay), *_ttl_and_priority(given.get("ttl"), given.get("priority"))]
    if key is not None:
        words += [b"KEY", to_bytes(key, "a key")]
    words += _for_driver(given.get("options"))
    return _finish(id, hold, words, "ready", "delayed", "gone", gives_back=True)


def requeue(id: str, hold: int = 0) -> Call[None]:
    return _finish(id, hold, [b"REQUEUE", id.encode()], "ready", "gone", gives_back=True)


def nack(id: str, reason: str, hold: int = 0, delay: Seconds | None = None) -> Call[None]:
    words = [b"JOB", b"NACK", id.encode(), *_reason(reason)]
    if delay is not None:
        words += [b"DELAY", duration(duration_ms(delay, "delay"))]
    return _finish(id, hold, words, "ready", "delayed", "buried", "gone", gives_back=True)


def bury(id: str, reason: str, hold: int = 0) -> Call[None]:
    return _finish(id, hold, [b"BURY", id.encode(), *_reason(reason)], "buried")


def touch(id: str, seconds: Seconds | None) -> Call[None]:
    """Build the call that extends the time for a job.

    With `seconds`, the client does not repeat the call after a lost reply: it could add them twice.
    """
    words = [b"JOB", b"TOUCH", id.encode()]
    if seconds is None:
        return Call(words, nothing, REPEAT)
    return Call([*words, duration(duration_ms(seconds, "the time to add"))], nothing, NO_REPEAT)


def delete(id: str) -> Call[None]:
    return _finish(id, 0, [b"JOB", b"DELETE", id.encode()], "gone")


def dig(id: str, delay: Seconds, ttl: Duration | None, priority: int | None) -> Call[None]:
    return Call([b"DIG", id.encode(), *_delay(delay), *_ttl_and_priority(ttl, priority)], nothing, NO_REPEAT)


def snatch(id: str, delay: Seconds) -> Call[None]:
    return Call([b"JOB", b"SNATCH", id.encode(), *_delay(delay)], nothing, NO_REPEAT)


def restart(id: str, delay: Seconds) -> Call[None]:
    return Call([b"JOB", b"RESTART", id.encode(), *_delay(delay)], nothing, NO_REPEAT)


def set_priority(id: str, priority: int) -> Call[None]:
    level = check_priority(integer(priority, "priority"))
    return Call([b"JOB", b"PRIORITY", id.encode(), b"%d" % level], nothing, NO_REPEAT)


def run_now(id: str) -> Call[None]:
    return Call([b"JOB", b"RUN", id.encode()], nothing, NO_REPEAT)


def edit(id: str, body: Body) -> Call[None]:
    raw, kind = encode_body(body)
    words = [b"JOB", b"EDIT", id.encode(), raw]
    if kind != BODY_BYTES:
        words += [b"AS", _KIND_WORDS[kind]]
    call = Call(words, nothing, NO_REPEAT)
    call.largest = len(raw)
    return call


def switch(id: str, state: str, delay: Seconds) -> Call[None]:
    return Call([b"JOB", b"SWITCH", id.encode(), _state(state), *_delay(delay)], nothing, NO_REPEAT)


def move(id: str, tube: bytes, delay: Seconds) -> Call[None]:
    return Call([b"JOB", b"MOVE", id.encode(), tube, *_delay(delay)], nothing, NO_REPEAT)


def scan(
    cursor: int, tube: bytes | None, wanted: Iterable[str], count: int, where: str | None = None
) -> Call[tuple[list[JobFacts], int]]:
    """Ask for a page of jobs. The result is the jobs and the next cursor, which is 0 after the last page."""
    if not 0 <= integer(cursor, "cursor") < 1 << 63:
        raise OutOfRange("a cursor is 0, or the one that the last scan returned")
    words = [b"JOB", b"SCAN", b"%d" % cursor, b"COUNT", b"%d" % check_count(integer(count, "count"), "count")]
    if tube is not None:
        words += [b"TUBE", tube]
    if in_states := [_state(state) for state in wanted]:
        words += [b"STATE", *in_states]
    if where is not None:
        words += [b"WHERE", to_bytes(text(where, "where"), "where")]

    def read(answer: Reply) -> tuple[list[JobFacts], int]:
        after, found = items(answer)[:2]
        return jobs(found), _after(cursor, after)

    return Call(words, read, REPEAT)


def wait(id: str, tube: bytes, timeout: Duration) -> Call[JobOutcome]:
    """Build the call that waits until a job ends. `tube` is its last known tube."""
    timeout_ms = duration_ms(timeout, "timeout")
    words = [b"JOB", b"WAIT", id.encode(), b"TIMEOUT", duration(timeout_ms), b"TUBE", tube, b"OUTCOME"]
    call = Call(words, outcome, REPEAT, timeout_ms, 4)
    call.empty = {b"outcome": b"timeout", b"reason": b""}
    return call


def outcome(answer: Reply) -> JobOutcome:
    """Return the outcome in the reply to a wait for a job."""
    name = octets(answer[b"outcome"]).decode()
    if name not in END_NAMES:
        raise BadAnswer(f"the server answers with an outcome {name!r} that this version does not know")
    return JobOutcome(cast(Outcome, name), to_text(octets(answer[b"reason"])))


def cancel(id: str, reason: str) -> Call[bool]:
    """Build the call that cancels a job. Its result is whether the job has ended. A repetition has no effect.

    If the first attempt removed the job, a repetition is refused, because the job is gone.
    """
    happened = ExecutionCheck([b"JOB", b"PEEK", id.encode()], 0, ("gone",), False)
    words = [b"JOB", b"CANCEL", id.encode(), *_reason(reason)]
    # The reply of a command that was executed but whose reply was lost is OK (`DONE`).
    return Call(words, lambda answer: answer == DONE or number(answer) == 1, REPEAT_AND_CHECK, happened=happened)


def report(id: str, value: Body) -> Call[None]:
    """Build the call that reports a progress value. It is not repeated: watchers would get the value twice."""
    raw, kind = encode_body(value)
    words = [b"JOB", b"PROGRESS", id.encode(), raw]
    if kind != BODY_BYTES:
        words += [b"AS", _KIND_WORDS[kind]]
    return Call(words, nothing, NO_REPEAT)


def watch(id: str, tube: bytes, after: int, timeout: Duration) -> Call[JobProgress]:
    """Build the call that waits for progress of a job, or for its end."""
    timeout_ms = duration_ms(timeout, "timeout")
    words = [b"JOB", b"WATCH", id.encode(), b"TIMEOUT", duration(timeout_ms), b"TUBE", tube]
    words += [b"AFTER", b"%d" % integer(after, "after")]
    call = Call(words, job_progress, REPEAT, timeout_ms, 4)
    call.empty = {b"after": after, b"values": [], b"outcome": None, b"reason": b""}
    return call


def job_progress(answer: Reply) -> JobProgress:
    """Return the progress of a job in a reply."""
    values: list[ProgressValue] = []
    for each in items(answer[b"values"]):
        place, kind, raw = items(each)
        values.append(ProgressValue(number(place), decode_body(octets(raw), _KINDS.get(octets(kind), BODY_BYTES))))
    return JobProgress(number(answer[b"after"]), values, None if answer[b"outcome"] is None else outcome(answer))


def create_batch(name: bytes, follow_ups: list[tuple[bytes, Draft]], expire: Seconds | None) -> Call[None]:
    """Build the call that creates a batch. A repetition has no effect."""
    words = [b"BATCH", b"CREATE", name]
    if expire is not None:
        words += [b"EXPIRE", duration(duration_ms(expire, "expire"))]
    for tube, asked in follow_ups:
        words += _then_words(tube, asked)
    call = Call(words, nothing, REPEAT)
    call.largest = max((len(asked.body) for _, asked in follow_ups), default=0)
    return call


def seal_batch(name: bytes) -> Call[int]:
    return Call([b"BATCH", b"SEAL", name], number, REPEAT)


def batch_info(name: bytes) -> Call[BatchInfo]:
    return Call([b"BATCH", b"INFO", name], _batch_info, REPEAT)


def _batch_info(answer: Reply) -> BatchInfo:
    state = octets(answer[b"state"]).decode()
    if state not in BATCH_STATES:
        raise BadAnswer(f"the server answers with a state {state!r} that this version does not know")
    counts = (number(answer[field]) for field in (b"total", b"pending", b"failed", b"callbacks"))
    return BatchInfo(cast(BatchState, state), *counts)


def session_events(after: int, timeout: Duration, tube: bytes | None) -> Call[SessionEvents]:
    """Build the call that waits for signals to the session. A repetition returns the same signals."""
    timeout_ms = duration_ms(timeout, "timeout")
    words = [b"SESSION", b"EVENTS", b"TIMEOUT", duration(timeout_ms), b"AFTER", b"%d" % integer(after, "after")]
    if tube is not None:
        words += [b"TUBE", tube]

    def read(answer: Reply) -> SessionEvents:
        newest, found = items(answer)
        events = [_session_event(each) for each in items(found)]
        return SessionEvents(number(newest), events)

    call = Call(words, read, REPEAT, timeout_ms, 3)
    call.empty = [after, []]
    return call


def _session_event(answer: Reply) -> SessionEvent:
    kind = octets(answer[b"event"]).decode()
    if kind not in SIGNAL_NAMES:
        raise BadAnswer(f"the server answers with an event {kind!r} that this version does not know")
    return SessionEvent(cast(SignalName, kind), _job_id(answer[b"id"]), to_text(octets(answer[b"reason"])))


def ended_before(id: str) -> Call[JobOutcome]:
    """Ask for the outcome of a job that is gone, according to the server's journal."""
    return Call(
        [b"JOB", b"HISTORY", _id(id)],
        lambda answer: outcome_in((each.event, each.before, each.reason) for each in map(event, items(answer))),
        REPEAT,
    )


def job_meta(id: str) -> Call[dict[str, Any]]:
    return Call([b"JOB", b"META", _id(id)], meta, REPEAT)


def state_of(id: str) -> Call[str]:
    return Call([b"JOB", b"META", _id(id)], lambda answer: octets(answer[b"state"]).decode(), REPEAT)


def history(id: str) -> Call[list[Event]]:
    return Call([b"JOB", b"HISTORY", _id(id)], lambda answer: [event(each) for each in items(answer)], REPEAT)


def _delay(delay: Seconds) -> list[bytes]:
    delay_ms = duration_ms(delay, "delay")
    return [b"DELAY", duration(delay_ms)] if delay_ms else []


def _ttl_and_priority(ttl: Duration | None, priority: int | None) -> list[bytes]:
    words: list[bytes] = []
    if ttl is not None:
        words += [b"TTL", duration(duration_ms(ttl, "ttl"))]
    if priority is not None:
        words += [b"PRIORITY", b"%d" % check_priority(integer(priority, "priority"))]
    return words


def _reason(reason: str) -> list[bytes]:
    raw = to_bytes(reason, "a reason")
    return [b"REASON", raw] if raw else []


def leave(facts: JobFacts, kind: type[BaseException] | None, error: BaseException | None) -> Call[None]:
    """Finish a job at the end of its `with` block: see `Job.__exit__`."""
    if kind is None:
        return ack(facts.id)
    reason = f"{kind.__name__}: {error}"[:1_000].encode("utf-8", "backslashreplace").decode()
    if facts.once:
        # It may be delivered only once, so it cannot return. A buried job can still be inspected.
        return bury(facts.id, reason, facts.hold())
    if issubclass(kind, Exception):
        return nack(facts.id, reason, facts.hold())
    # An interrupt or a cancelled task does not mean that the job failed.
    return release(facts.id, hold=facts.hold())


# ---- Claims and the journal ------------------------------------------------------------------------------------------


def claim(tube: bytes, consumer: str, number: int, count: int, lease: Seconds, token: int) -> Call[Any]:
    """Build the call that claims jobs. A repetition returns the same jobs."""
    words = [
        *(b"CLAIM", b"TAKE", tube, to_bytes(consumer, "a consumer"), b"%d" % integer(number, "number")),
        *(b"COUNT", b"%d" % integer(count, "count"), b"LEASE", duration(duration_ms(lease, "lease"))),
        *(b"TOKEN", b"%d" % integer(token, "token")),
    ]
    return Call(words, lambda answer: None if answer is None else jobs(answer), REPEAT)


def read_claim(consumer: str, number: int, shard: tuple[int, int]) -> Call[list[JobFacts]]:
    """Ask for the jobs of a claim, or of one shard of it."""
    index, count = check_shard(shard)
    words = [b"CLAIM", b"READ", to_bytes(consumer, "a consumer"), b"%d" % integer(number, "number")]
    return Call([*words, b"SHARD", b"%d" % index, b"%d" % count], jobs, REPEAT)


def renew_claims(consumer: str, lease: Seconds | None, token: int) -> Call[int]:
    """Restart the leases of all claims of a consumer."""
    words = [b"CLAIM", b"RENEW", to_bytes(consumer, "a consumer"), b"TOKEN", b"%d" % integer(token, "token")]
    if lease is not None:
        words += [b"LEASE", duration(duration_ms(lease, "lease"))]
    return Call(words, number, REPEAT)


def release_claims(consumer: str, token: int) -> Call[int]:
    """End all claims of a consumer. This is not repeated, because it would also end claims that were made meanwhile."""
    words = [b"CLAIM", b"RELEASE", to_bytes(consumer, "a consumer"), b"TOKEN", b"%d" % integer(token, "token")]
    return Call(words, number, NO_REPEAT)


def claim_info(consumer: str) -> Call[ClaimInfo]:
    def read(answer: Reply) -> ClaimInfo:
        acked, newest, token = (number(answer[name]) for name in (b"acked", b"newest", b"token"))
        return ClaimInfo(acked, newest, token, [number(each) for each in items(answer[b"open"])])

    return Call([b"CLAIM", b"INFO", to_bytes(consumer, "a consumer")], read, REPEAT)


def ack_claims(consumer: str, upto: int, token: int) -> Call[int]:
    """Ack all claims of a consumer up to a number."""
    words = [b"CLAIM", b"ACK", to_bytes(consumer, "a consumer"), b"%d" % integer(upto, "upto")]
    return Call([*words, b"TOKEN", b"%d" % integer(token, "token")], number, REPEAT)


def journal_head() -> Call[int]:
    return Call([b"JOURNAL", b"HEAD"], lambda answer: number(answer[b"written"]) + 1, REPEAT)


def journal_events(position: int, tube: bytes | None, wait_ms: int = 0) -> Call[tuple[int, list[Event]]]:
    """Ask for events at and after a position, and wait up to `wait_ms` for the first one."""
    words = [b"JOURNAL", b"EVENTS", b"%d" % integer(position, "start"), b"COUNT", b"%d" % EVENTS_COUNT]
    if wait_ms:
        words += [b"TIMEOUT", duration(wait_ms)]
    if tube is not None:
        words += [b"TUBE", tube]

    def read(answer: Reply) -> tuple[int, list[Event]]:
        following, found = events(answer)
        if following < position or (found and following == position):
            raise BadAnswer("the server answers with a position that goes back")
        return following, found

    return Call(words, read, REPEAT, wait_ms)


def journal_digest(start: int, end: int | None) -> Call[tuple[int, list[BlockDigest]]]:
    """Ask for the digests of the rows from position `start` up to `end`, or up to the durable end of the log."""
    start, end = integer(start, "start"), NEVER - 1 if end is None else integer(end, "end")

    def read(answer: Reply) -> tuple[int, list[BlockDigest]]:
        following, found = items(answer)
        blocks = [block_digest(each) for each in items(found)]
        if [start, *(block.end for block in blocks)] != [*(block.first for block in blocks), number(following)]:
            raise BadAnswer("the server answers with blocks that do not follow each other")
        return number(following), blocks

    return Call([b"JOURNAL", b"DIGEST", b"%d" % start, b"%d" % end], read, REPEAT)


def checkpoint() -> Call[None]:
    return Call([b"BGREWRITEAOF"], ignored, REPEAT)


def execute(words: tuple[str | bytes | int, ...]) -> Call[Any]:
    """Build the call for any command. Its result is the reply."""
    if not words:
        raise WrongType("give a command")
    raw = [b"%d" % word if isinstance(word, int) else to_bytes(word, "a word") for word in words]
    return Call(raw, lambda answer: answer, NO_REPEAT)
