"""Every call of a client as what is sent and what its answer means. Pure, and written once for threads and asyncio.

A `Call` also says whether it may be sent again when its answer was lost: only if sending it twice, with others acting
in between, does what sending it once does. So may questions; settings, which are as whoever spoke last has them; what
carries a number or an id of its own, as claims, stages and puts with a dedup id do; and what the holder of a job says
about it. Of these last, the second may be refused because the first was not; then `happened` tells from how the job is
now whether it was. What is about whichever jobs are there is not sent again: by then there may be others. Neither is
what anybody may do to a job: it may have been through that, and have come back.
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
from penstock.core.waits import END_NAMES
from penstock.journal.reader import TOLD_FIELDS, Event
from penstock.keywords import check_keywords
from penstock.options import (
    DEFAULT_TYPE,
    PUT_KEYWORDS,
    RELEASE_KEYWORDS,
    TUBE_KEYWORDS,
    Body,
    ClaimInfo,
    Duration,
    JobOutcome,
    NewJob,
    Outcome,
    PutOptions,
    ReleaseOptions,
    Seconds,
    altered,
    boolean,
    check_shard,
    duration_ms,
    each_put,
    encode_body,
    integer,
    mapping,
    outcome_in,
    policy_from,
    put_draft,
    text,
    to_bytes,
    to_text,
)

T = TypeVar("T")

# A call whose answer was lost
AGAIN: Final = 0  # is sent again;
PERHAPS: Final = 1  # is sent again, and if it is refused then, `happened` has the last word;
NOT_AGAIN: Final = 2  # is not: nobody knows whether it happened.

# A session hands out at most so many jobs a take; a greater count is several takes.
TAKE_JOBS_MAX: Final = 1_000
# An answer with fewer bytes of bodies than this was not cut short by a server.
_TAKE_BYTES: Final = 1024 * 1024

# How many events are asked for at a time.
EVENTS_COUNT: Final = 1_000
# How long a subscriber waits for more.
EVENTS_WAIT_MS: Final = 30_000

# An MPUT has to fit into what a server reads of one client, 1 GB unless it is told otherwise; with all its lengths.
_JOB_WORDS_BYTES: Final = 64

_TOKEN_BYTES: Final = 16

_KIND_WORDS: Final = {BODY_BYTES: b"bytes", BODY_TEXT: b"text", BODY_JSON: b"json", BODY_MSGPACK: b"msgpack"}
_KINDS: Final = {word: kind for kind, word in _KIND_WORDS.items()}

Reply = Any


class Call(Generic[T]):
    """One command, and what its answer means."""

    __slots__ = ("_read", "empty", "happened", "largest", "repeat", "taken", "timeout_at", "wait_ms", "words")

    def __init__(
        self,
        words: list[bytes],
        read: Callable[[Reply], T],
        repeat: int,
        wait_ms: int = 0,
        timeout_at: int = 0,
        taken: Callable[[T], dict[str, int]] | None = None,
        happened: Happened | None = None,
    ) -> None:
        self.words = words
        self._read = read
        self.repeat = repeat
        self.wait_ms = wait_ms  # How long the server may let it wait; NEVER for ever,
        self.timeout_at = timeout_at  # and which of the words says so.
        # Of a take, the ids of the jobs in its answer, which are then ours, and which delivery of each that is.
        self.taken = taken
        self.happened = happened
        self.largest = 0  # How many bytes its longest body has.
        # The answer that means that its timeout is over. It is also what the call returns if the server is not there
        # at that time. None: there is no such answer, and an error is raised.
        self.empty: Reply = None

    def read(self, answer: Reply) -> T:
        """Return what an answer means. Raise BadAnswer if it is not one that this command can have."""
        try:
            return self._read(answer)
        except PenstockError:
            raise
        except Exception as error:
            # Whatever goes wrong here, the server's answer was the only input.
            raise BadAnswer() from error

    def wait_at_most(self, ms: int) -> None:
        """Let the server wait no longer than the time that is left."""
        if self.timeout_at and self.wait_ms != NEVER:
            self.wait_ms = max(0, min(self.wait_ms, ms))
            self.words[self.timeout_at] = self.wait_word()

    def hold(self) -> int:
        """Which delivery of a job it is about; 0: whichever there is."""
        return 0 if self.happened is None else self.happened.hold

    def wait_word(self) -> bytes:
        """How long it may wait, as a word."""
        return duration(self.wait_ms)


class Happened:
    """How to find out whether what the holder of a job said, and whose answer was lost, has happened."""

    __slots__ = ("ask", "ends", "gives_back", "hold")

    def __init__(
        self,
        ask: list[bytes],
        hold: int,
        ends: tuple[str, ...],
        gives_back: bool,
    ) -> None:
        self.ask = ask  # A command that answers with the job.
        # Which delivery of the job its holder has; 0: that is not known, or does not matter, since an end is an end.
        self.hold = hold
        self.ends = ends  # After the call, the job is in one of these states;
        self.gives_back = gives_back  # or in whatever state it has come to, since it was given back.

    def over(self, there: JobFacts) -> CommandError | None:
        """Whether the job is not in the hands any more that it was in when the call was made: then the call must not be
        sent again, even if the session has taken the job anew. This is how it would be refused."""
        if there.state != "taken":
            return NotTaken()
        return NotOwner() if there.deliveries > self.hold else None

    def judge(self, refused: CommandError, there: JobFacts | None) -> None:
        """Tell from a refusal, and how the job is, whether the call has happened; None: the job is gone. If it has not,
        the refusal is the answer."""
        state = "gone" if there is None else there.state
        if self.gives_back and (
            isinstance(refused, NotOwner)
            # It was there to be taken when this was refused, and has been taken since.
            or (isinstance(refused, NotTaken) and state == "taken")
        ):
            return
        if state not in self.ends:
            raise refused


# ---- Words -----------------------------------------------------------------------------------------------------------


def duration(ms: int) -> bytes:
    """A time as a word."""
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
    """The options of a put, without its kind of body."""
    words: list[bytes] = []
    if asked.delay_ms:
        words += [b"DELAY", duration(asked.delay_ms)]
    if asked.at_ms != UNSET:
        words += [b"AT", duration(asked.at_ms)]
    if asked.ttl_ms != UNSET:
        words += [b"TTL", duration(asked.ttl_ms)]
    if asked.ttr_ms != UNSET:
        words += [b"TTR", duration(asked.ttr_ms)]
    if asked.priority != PRIORITY_UNSET:
        words += [b"PRIORITY", b"%d" % asked.priority]
    if asked.urgent:
        words.append(b"URGENT")
    if asked.once:
        words.append(b"ONCE")
    if asked.nacks:
        words += [b"NACKS", b"%d" % asked.nacks]
    if asked.number != UNSET:
        words += [b"NUMBER", b"%d" % asked.number]
    if asked.arrives != s.READY:
        words += [b"STATE", s.STATE_NAMES[asked.arrives].encode()]
    if asked.new:
        words.append(b"NEW")
    if asked.retry is not None:
        words += [b"RETRY", asked.retry.text.encode()]
    for word, value in (
        (b"KEY", asked.key),
        (b"NAME", asked.name),
        (b"UNIQUE", asked.unique),
        (b"DEDUP", asked.dedup),
    ):
        if value is not None:
            words += [word, value]
    return words + _for_driver(asked.options)


def _for_driver(options: dict[str, Any] | None) -> list[bytes]:
    """Return the words of what the driver of a tube gets."""
    if options is None:
        return []
    try:
        return [b"OPTIONS", json.dumps(mapping(options, "options"), allow_nan=False).encode()]
    except (TypeError, ValueError, RecursionError) as error:
        raise WrongType(f"the options for a driver are values that JSON can hold: {error}") from None


def put_options(policy: TubePolicy, options: PutOptions) -> PutOptions:
    """Return the options of a put. In a tube with a driver, all of them are the driver's."""
    if not policy.driven or not options:
        return options
    given: dict[str, Any] = dict(options)
    return {"options": {**mapping(given.pop("options", {}), "options"), **given}}


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
    """The options of a tube. None stands for a value in times only; elsewhere nothing was said."""
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


# ---- What answers mean -----------------------------------------------------------------------------------------------


# What a server answers that has done what it was told.
DONE: Final = b"OK"


def nothing(answer: Reply) -> None:
    """Check an answer that says only that the command was done: OK, or how many jobs it was done to."""
    if answer != DONE:
        number(answer)


def ignored(answer: Reply) -> None:
    """Accept any answer but a refusal."""


def number(answer: Reply) -> int:
    """A count."""
    if type(answer) is not int:
        raise BadAnswer(f"the server answers with {_kind(answer)} instead of a number")
    return answer


def octets(answer: Reply) -> bytes:
    """Bytes."""
    if type(answer) is not bytes:
        raise BadAnswer(f"the server answers with {_kind(answer)} instead of text")
    return answer


def items(answer: Reply) -> list[Reply]:
    """A list."""
    if type(answer) is not list:
        raise BadAnswer(f"the server answers with {_kind(answer)} instead of a list")
    return answer


def _kind(answer: Reply) -> str:
    kinds = {int: "a number", bytes: "text", list: "a list", dict: "a map", type(None): "nothing", bool: "yes or no"}
    return kinds.get(type(answer), "something else")


def _optional(read: Callable[[Reply], T], answer: Reply) -> T | None:
    return None if answer is None else read(answer)


def _job_id(answer: Reply) -> str:
    """The id of a job, in its form of 40 characters."""
    if not is_long(octets(answer)):
        raise BadAnswer("the server answers with something that is no id of a job")
    return octets(answer).decode("ascii")


def job(answer: Reply) -> JobFacts:
    """One job."""
    state = answer.get(b"state")
    return JobFacts(
        _job_id(answer[b"id"]),
        octets(answer[b"tube"]),
        # A server cannot read a body that is damaged on its disk.
        _optional(octets, answer[b"body"]),  # type: ignore[arg-type]
        _KINDS.get(octets(answer[b"as"]), BODY_BYTES),
        number(answer[b"deliveries"]),
        number(answer[b"nacks"]),
        number(answer[b"once"]) == 1,
        "taken" if state is None else octets(state).decode(),
    )


def jobs(answer: Reply) -> list[JobFacts]:
    """Several."""
    return [job(each) for each in items(answer)]


def _up_to(count: int, answer: Reply) -> list[JobFacts]:
    """Several, and not more than were asked for."""
    found = jobs(answer)
    if len(found) > count:
        raise BadAnswer(f"the server answers with {len(found)} jobs instead of {count} at most")
    return found


def _after(cursor: int, answer: Reply) -> int:
    """Where a scan goes on: behind where it was, or at 0, which is its end. Otherwise it would never end."""
    following = octets(answer)
    if not following.isdigit() or not (int(following) == 0 or cursor < int(following) < 1 << 63):
        raise BadAnswer("the server answers with a cursor that goes back")
    return int(following)


def page(cursor: bytes, answer: Reply) -> tuple[bytes, list[Reply]]:
    """Where a scan goes on, and what it has found from a cursor on."""
    after, found = items(answer)
    return b"%d" % _after(int(cursor), after), items(found)


def names(answer: Reply) -> list[str]:
    """Names of tubes."""
    return [to_text(octets(name)) for name in items(answer)]


def policy(answer: Reply) -> TubePolicy:
    """What a tube promises, out of what TUBE INFO tells."""
    kinds = {field.name: field.default for field in dataclasses.fields(TubePolicy)}
    fields: dict[str, Any] = {}
    for word, value in answer[b"policy"].items():
        name = octets(word).decode()
        if isinstance(value, bytes):
            value = value.decode()
        elif isinstance(value, list):
            value = [octets(each).decode() for each in value]
        elif isinstance(kinds.get(name), bool):
            value = value == 1
        fields[name] = value
    return policy_from(fields)


def states(answer: Reply) -> dict[str, int]:
    """How many jobs are in each state."""
    return {name: number(answer[name.encode()]) for name in s.STATE_NAMES[1:]}


def info(answer: Reply) -> dict[str, Any]:
    """How a tube is, as the embedded queue tells it."""
    oldest_ms = _optional(number, answer[b"oldest-ms"])
    return {
        "name": to_text(octets(answer[b"name"])),
        "type": to_text(octets(answer[b"type"])),
        **states(answer),
        "oldest": None if oldest_ms is None else oldest_ms / 1000,
        "waiting": number(answer[b"waiting"]),
        "keys": number(answer[b"keys"]),
        "paused_in": number(answer[b"paused-in"]) == 1,
        "paused_out": number(answer[b"paused-out"]) == 1,
    }


def counts(answer: Reply) -> dict[str, int]:
    """Names and numbers."""
    return {octets(name).decode(): number(count) for name, count in answer.items()}


_MOMENTS: Final = ("created", "expires", "wakes", "next_event", "ttl", "ttr", "now")


def meta(answer: Reply) -> dict[str, Any]:
    """Everything about a job: times in seconds, as the embedded queue has them."""
    told: dict[str, Any] = {}
    for word, value in answer.items():
        name = octets(word).decode()
        if isinstance(value, bytes):
            told[name] = to_text(value)
        else:
            figure = _optional(number, value)
            told[name] = figure / 1000 if name in _MOMENTS and figure is not None else figure
    return told


_EVENT_TEXTS: Final = ("event", "tube", "job", "before", "after", "key", "reason")


def event(answer: Reply) -> Event:
    """Something that happened."""
    fields: dict[str, Any] = {}
    for word, value in answer.items():
        name = octets(word).decode().replace("-", "_")
        if name not in TOLD_FIELDS or value is None:  # A newer server may tell more.
            continue
        if name in _EVENT_TEXTS:
            fields[name] = to_text(octets(value))
        else:
            fields[name] = octets(value) if name == "body" else number(value)
    return Event(**fields)


def events(answer: Reply) -> tuple[int, list[Event]]:
    """Some of what happened, and where it goes on."""
    position, found = items(answer)
    return number(position), [event(each) for each in items(found)]


def change(event: Event) -> Change | None:
    """What subscribers are told of an event; nothing if it happened to no job."""
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
    """Join the session of a token, or stay, and give it another grace time: its token, and its grace."""
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
    return Call(words, lambda answer: (token_of(answer), number(answer[b"grace"])), AGAIN)


def max_body() -> Call[int]:
    """How many bytes a body may have."""
    return Call([b"IDENTIFY"], lambda answer: number(answer[b"max-body"]), AGAIN)


def token_of(answer: Reply) -> str:
    """The token of a session: hexadecimal digits."""
    return bytes.fromhex(octets(answer[b"token"]).decode("ascii")).hex()


def leave_session(left: str, joined: str) -> list[list[bytes]]:
    """End the session that was left for another, if this was the last of its connections: its jobs go back at once."""
    return [[b"IDENTIFY", left.encode(), b"GRACE", b"0"], [b"IDENTIFY", joined.encode()]]


def end_session() -> list[bytes]:
    """The last words of a client that closes: its jobs go back at once."""
    return [b"IDENTIFY", b"GRACE", b"0"]


def held(end_waits: bool) -> Call[list[str]]:
    """The ids of all jobs that this session holds; perhaps first every wait for a job of it ends."""
    words = [b"JOB", b"HELD", b"ENDWAITS"] if end_waits else [b"JOB", b"HELD"]
    return Call(words, lambda answer: [_job_id(id) for id in items(answer)], AGAIN)


# ---- Tubes -----------------------------------------------------------------------------------------------------------


def tube(name: bytes, type: str | TubePolicy | None, options: dict[str, Any]) -> Call[TubePolicy]:
    """Make a tube, or find it."""
    words = [b"TUBE", b"CREATE", name]
    if isinstance(type, TubePolicy):
        words += _policy_words(type, options)
    elif type is not None or options:
        named = DEFAULT_TYPE if type is None else text(type, "the type of a tube")
        words += [b"TYPE", named.encode()]
        if named in PRESETS:
            # What is wrong with an option is found out here.
            check_keywords("tube", options, TUBE_KEYWORDS, "name", "type", "alter")
            altered(PRESETS[named], **options)
            words += _tube_words(options)
        else:
            # The server may have a driver of this name.
            words += _for_driver(options or None)
    return Call(words, policy, AGAIN)


def _policy_words(policy: TubePolicy, options: dict[str, Any]) -> list[bytes]:
    """A whole policy, with these options."""
    check_keywords("tube", options, TUBE_KEYWORDS, "name", "type", "alter")
    wanted = dataclasses.asdict(altered(policy, **options))
    told = {field: None if value == NEVER else value for field, value in wanted.items()}
    return [b"POLICY", json.dumps(told).encode()]


def alter_to(name: bytes, type: str | TubePolicy | None, options: dict[str, Any]) -> Call[TubePolicy]:
    """Give a tube that exists these options. A type must be the one that it has."""
    check_keywords("tube", options, TUBE_KEYWORDS, "name", "type", "alter")
    if isinstance(type, TubePolicy):
        words = _policy_words(type, options)
    else:
        words = [*([] if type is None else [b"TYPE", text(type, "the type of a tube").encode()]), *_tube_words(options)]
    return Call([b"TUBE", b"ALTER", name, *words], policy, AGAIN)


def find_tube(name: bytes) -> Call[TubePolicy]:
    """What a tube promises that is there."""
    return Call([b"TUBE", b"INFO", name], policy, AGAIN)


def tubes() -> Call[list[str]]:
    """The names of all."""
    return Call([b"TUBE", b"LIST"], names, AGAIN)


def scan_tubes(cursor: bytes) -> Call[tuple[bytes, dict[str, dict[str, int]]]]:
    """How many jobs are in each state in some tubes, and where it goes on; at 0 it ends."""

    def read(answer: Reply) -> tuple[bytes, dict[str, dict[str, int]]]:
        after, found = page(cursor, answer)
        return after, {to_text(octets(each[b"name"])): states(each) for each in found}

    return Call([b"TUBE", b"SCAN", cursor, b"COUNT", b"1000"], read, AGAIN)


def overview(cursor: bytes) -> Call[tuple[bytes, list[dict[str, Any]]]]:
    """How some tubes are, and where it goes on; at 0 it ends."""

    def read(answer: Reply) -> tuple[bytes, list[dict[str, Any]]]:
        after, found = page(cursor, answer)
        return after, [info(each) for each in found]

    return Call([b"TUBE", b"SCAN", cursor, b"COUNT", b"1000"], read, AGAIN)


def tube_stats(name: bytes, read: Callable[[Reply], T]) -> Call[T]:
    """What is in a tube, and what happened there."""
    return Call([b"TUBE", b"STATS", name], read, AGAIN)


def alter(name: bytes, options: dict[str, Any]) -> Call[TubePolicy]:
    """Change what a tube promises."""
    check_keywords("alter", options, TUBE_KEYWORDS)
    altered(PRESETS[DEFAULT_TYPE], **options)
    words = _tube_words(options)
    if not words:
        return find_tube(name)
    return Call([b"TUBE", b"ALTER", name, *words], policy, AGAIN)


def pause(name: bytes, puts: bool, takes: bool) -> Call[None]:
    """Close a tube for puts, for takes, for both, or open it."""
    inward, outward = boolean(puts, "puts"), boolean(takes, "takes")
    word = {(True, True): b"all", (True, False): b"in", (False, True): b"out", (False, False): b"none"}
    return Call([b"TUBE", b"PAUSE", name, word[inward, outward]], nothing, AGAIN)


def truncate(name: bytes) -> Call[int]:
    """Remove every job; again, it would remove what was put since."""
    return Call([b"TUBE", b"TRUNCATE", name], number, NOT_AGAIN)


def drop(name: bytes) -> Call[None]:
    """Remove a tube."""
    return Call([b"TUBE", b"DROP", name], nothing, NOT_AGAIN)


def release_all(name: bytes) -> Call[int]:
    """Give every taken job back; again, it would be those that were taken since."""
    return Call([b"TUBE", b"RELEASE", name], number, NOT_AGAIN)


def kick(name: bytes, count: int, delay: Seconds, ttl: Duration | None) -> Call[int]:
    """Dig buried jobs up."""
    delay_ms = duration_ms(delay, "delay")
    words = [b"KICK", name, b"%d" % check_count(integer(count, "count"), "the number of jobs to kick")]
    if delay_ms:
        words += [b"DELAY", duration(delay_ms)]
    if ttl is not None:
        words += [b"TTL", duration(duration_ms(ttl, "ttl"))]
    return Call(words, number, NOT_AGAIN)


# ---- Putting ---------------------------------------------------------------------------------------------------------


def put(name: bytes, body: Body, timeout: Duration, options: PutOptions) -> Call[JobFacts]:
    """Add a job."""
    timeout_ms = 0 if timeout == 0 else duration_ms(timeout, "timeout")
    if isinstance(body, bytes) and not options and not timeout_ms:
        plain = Call([b"PUT", name, body, b"EXISTING"], lambda id: _was_put(id, name, body, BODY_BYTES), NOT_AGAIN)
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
        _put_repeat(asked),
        timeout_ms,
        len(words) - 1 if timeout_ms else 0,
    )
    call.largest = len(asked.body)
    return call


def _put_repeat(asked: Draft) -> int:
    """Only a dedup id is remembered when its job is gone: a unique value and a name are free then for a second job."""
    return NOT_AGAIN if asked.dedup is None else AGAIN


def _was_put(id: bytes, tube: bytes, body: bytes, kind: int, asked: Draft | None = None) -> JobFacts:
    facts = JobFacts(_job_id(id), tube, body, kind, 0, 0, asked is not None and asked.once, "ready")
    if asked is not None:
        later = asked.delay_ms or (asked.at_ms != UNSET and asked.at_ms > time.time() * 1000)
        facts.state = "delayed" if later else s.STATE_NAMES[asked.arrives]
        # Then it may be one that was there before, with a body and a state of its own.
        facts.is_guess = asked.unique is not None or asked.dedup is not None
    return facts


def stage(
    stage: bytes, name: bytes, expire_ms: int, bodies: Iterable[Body | NewJob], options: PutOptions
) -> Call[Any] | None:
    """Put a job for each body into a stage, for a tube; nothing if there are no bodies."""
    check_keywords("put_many", options, PUT_KEYWORDS, "tube", "bodies")
    call = put_many(name, bodies, options)
    if call is not None:
        head = [b"STAGE", stage, name]
        if expire_ms != UNSET:
            head += [b"EXPIRE", duration(expire_ms)]
        # MPUT, the tube and EXISTING are said in other words here.
        call.words[:3] = [*head, b"IDS"]
        call.repeat = NOT_AGAIN
    return call


def close_stages(word: bytes, stages: Iterable[object]) -> Call[int]:
    """Publish or discard stages: a server remembers that it was done, and doing it again does nothing."""
    names = [to_bytes(stage, "the name of a stage") for stage in stages]
    if not names:
        raise OutOfRange("name at least one stage")
    return Call([word, *names], number, AGAIN)


def put_many(name: bytes, bodies: Iterable[Body | NewJob], options: PutOptions) -> Call[list[JobFacts]] | None:
    """Add a job for each body in one command, or none at all; nothing if there are no bodies."""
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
            # What is said of all jobs cannot be taken back for one, so everything is said of each.
            words += _put_words(each)
        if each.body_kind != kind:
            words += [b"AS", _KIND_WORDS[each.body_kind]]

    def read(answer: Reply) -> list[JobFacts]:
        found = zip(items(answer), asked, strict=True)
        return [_was_put(id, name, each.body, each.body_kind, each) for id, each in found]

    call = Call(words, read, AGAIN if all(each.dedup is not None for each in asked) else NOT_AGAIN)
    call.largest = max(len(each.body) for each in asked)
    return call


# ---- Taking ----------------------------------------------------------------------------------------------------------


def take_one(name: bytes) -> Call[list[JobFacts]]:
    """Take the next job, if there is one."""
    return Call([b"TAKE", name], lambda answer: _up_to(1, answer), AGAIN, taken=_holds)


def _holds(found: list[JobFacts]) -> dict[str, int]:
    return {job.id: job.deliveries for job in found}


def may_be_more(found: list[JobFacts]) -> bool:
    """Whether a take gave so much that there may be more, which did not fit into its answer."""
    return len(found) == TAKE_JOBS_MAX or sum(len(job.raw_body) for job in found) > _TAKE_BYTES


def take(names: list[bytes], count: int, timeout_ms: int, key: bytes | None, ttr_ms: int) -> Call[list[JobFacts]]:
    """Take up to so many jobs, or wait for the first."""
    words = [b"TAKE", names[0], b"TIMEOUT", duration(timeout_ms)]
    if count != 1:
        words += [b"COUNT", b"%d" % count]
    if key is not None:
        words += [b"KEY", key]
    if ttr_ms != UNSET:
        words += [b"TTR", duration(ttr_ms)]
    if len(names) > 1:
        words += [b"AND", *names[1:]]
    call = Call(words, lambda answer: _up_to(count, answer), AGAIN, timeout_ms, 3, _holds)
    call.empty = []
    return call


# ---- One job ---------------------------------------------------------------------------------------------------------


def peek(id: str) -> Call[JobFacts]:
    """How a job is."""
    return Call([b"JOB", b"PEEK", _id(id)], job, AGAIN)


def named(name: bytes, of: str | bytes) -> Call[JobFacts]:
    """The job that was put under a name."""
    return Call([b"JOB", b"NAMED", name, to_bytes(of, "a job's name")], job, AGAIN)


def list_jobs(name: bytes, state: str, limit: int) -> Call[list[JobFacts]]:
    """The jobs of a tube that are in a state."""
    word = _state(state)
    if not 0 <= integer(limit, "limit") <= BATCH_JOBS_MAX:
        raise OutOfRange(f"limit must be 0 to {BATCH_JOBS_MAX}")
    words = [b"JOB", b"LIST", name, word, b"COUNT", b"%d" % limit]
    return Call(words, lambda answer: _up_to(limit, answer), AGAIN)


def _finish(id: str, hold: int, words: list[bytes], *ends: str, gives_back: bool = False) -> Call[None]:
    """What the holder of a delivery of a job says about it; after it, the job is in one of these states."""
    happened = Happened([b"JOB", b"PEEK", id.encode()], hold, ends, gives_back)
    return Call(words, nothing, PERHAPS, happened=happened)


def ack(id: str) -> Call[None]:
    """A job is done."""
    return _finish(id, 0, [b"ACK", id.encode()], "gone", "done", "zombie")


def done(id: str, result: Body, ttl: Duration | EllipsisType) -> Call[None]:
    """A job is done, and this came out of it."""
    raw, kind = encode_body(result)
    words = [b"JOB", b"DONE", id.encode(), raw]
    if kind != BODY_BYTES:
        words += [b"AS", _KIND_WORDS[kind]]
    if ttl is not ...:
        words += [b"TTL", duration(duration_ms(ttl, "ttl"))]
    call = _finish(id, 0, words, "done")
    call.largest = len(raw)
    return call


def release(id: str, delay: Seconds = 0, options: ReleaseOptions | None = None, hold: int = 0) -> Call[None]:
    """Return a job to its tube."""
    given = options or {}
    check_keywords("release", given, RELEASE_KEYWORDS, "delay")
    key = given.get("key")
    words = [b"RELEASE", id.encode(), *_delay(delay), *_ttl_and_priority(given.get("ttl"), given.get("priority"))]
    if key is not None:
        words += [b"KEY", to_bytes(key, "a key")]
    words += _for_driver(given.get("options"))
    return _finish(id, hold, words, "ready", "delayed", "gone", gives_back=True)


def requeue(id: str, hold: int = 0) -> Call[None]:
    """Give a job back to behind all others."""
    return _finish(id, hold, [b"REQUEUE", id.encode()], "ready", "gone", gives_back=True)


def nack(id: str, reason: str, hold: int = 0) -> Call[None]:
    """Give a job back because it failed."""
    words = [b"JOB", b"NACK", id.encode(), *_reason(reason)]
    return _finish(id, hold, words, "ready", "delayed", "buried", "gone", gives_back=True)


def bury(id: str, reason: str, hold: int = 0) -> Call[None]:
    """Put a job aside."""
    return _finish(id, hold, [b"BURY", id.encode(), *_reason(reason)], "buried")


def touch(id: str, seconds: Seconds | None) -> Call[None]:
    """Ask for more time. A whole ttr from now is the same twice; so many seconds more are not."""
    words = [b"JOB", b"TOUCH", id.encode()]
    if seconds is None:
        return Call(words, nothing, AGAIN)
    return Call([*words, duration(duration_ms(seconds, "the time to add"))], nothing, NOT_AGAIN)


def delete(id: str) -> Call[None]:
    """Remove a job, for ever."""
    return _finish(id, 0, [b"JOB", b"DELETE", id.encode()], "gone")


def dig(id: str, delay: Seconds, ttl: Duration | None, priority: int | None) -> Call[None]:
    """Dig a buried job up."""
    return Call([b"DIG", id.encode(), *_delay(delay), *_ttl_and_priority(ttl, priority)], nothing, NOT_AGAIN)


def snatch(id: str, delay: Seconds) -> Call[None]:
    """Take a job away from its holder."""
    return Call([b"JOB", b"SNATCH", id.encode(), *_delay(delay)], nothing, NOT_AGAIN)


def restart(id: str, delay: Seconds) -> Call[None]:
    """Bring a job back that is delayed or kept."""
    return Call([b"JOB", b"RESTART", id.encode(), *_delay(delay)], nothing, NOT_AGAIN)


def switch(id: str, state: str, delay: Seconds) -> Call[None]:
    """Turn a job into another state."""
    return Call([b"JOB", b"SWITCH", id.encode(), _state(state), *_delay(delay)], nothing, NOT_AGAIN)


def move(id: str, tube: bytes, delay: Seconds) -> Call[None]:
    """Move a job to another tube."""
    return Call([b"JOB", b"MOVE", id.encode(), tube, *_delay(delay)], nothing, NOT_AGAIN)


def scan(cursor: int, tube: bytes | None, wanted: Iterable[str], count: int) -> Call[tuple[list[JobFacts], int]]:
    """Some jobs, and where it goes on; at 0 it ends."""
    if not 0 <= integer(cursor, "cursor") < 1 << 63:
        raise OutOfRange("a cursor is 0, or what the scan before gave")
    words = [b"JOB", b"SCAN", b"%d" % cursor, b"COUNT", b"%d" % check_count(integer(count, "count"), "count")]
    if tube is not None:
        words += [b"TUBE", tube]
    if in_states := [_state(state) for state in wanted]:
        words += [b"STATE", *in_states]

    def read(answer: Reply) -> tuple[list[JobFacts], int]:
        after, found = items(answer)
        return jobs(found), _after(cursor, after)

    return Call(words, read, AGAIN)


def wait(id: str, tube: bytes, timeout: Duration) -> Call[JobOutcome]:
    """Wait until a job ends that was in this tube when the client heard of it last."""
    timeout_ms = duration_ms(timeout, "timeout")
    words = [b"JOB", b"WAIT", id.encode(), b"TIMEOUT", duration(timeout_ms), b"TUBE", tube, b"OUTCOME"]
    call = Call(words, outcome, AGAIN, timeout_ms, 4)
    call.empty = {b"outcome": b"timeout", b"reason": b""}
    return call


def outcome(answer: Reply) -> JobOutcome:
    """How a job ended, and why."""
    name = octets(answer[b"outcome"]).decode()
    if name not in END_NAMES:
        raise BadAnswer(f"the server answers with an outcome {name!r} that this version does not know")
    return JobOutcome(cast(Outcome, name), to_text(octets(answer[b"reason"])))


def ended_before(id: str) -> Call[JobOutcome]:
    """How a job ended that is gone, as far as the server's journal knows."""
    return Call(
        [b"JOB", b"HISTORY", _id(id)],
        lambda answer: outcome_in((each.event, each.before, each.reason) for each in map(event, items(answer))),
        AGAIN,
    )


def job_meta(id: str) -> Call[dict[str, Any]]:
    """Everything that is known about a job."""
    return Call([b"JOB", b"META", _id(id)], meta, AGAIN)


def state_of(id: str) -> Call[str]:
    """What a job is now."""
    return Call([b"JOB", b"META", _id(id)], lambda answer: octets(answer[b"state"]).decode(), AGAIN)


def history(id: str) -> Call[list[Event]]:
    """What happened to a job."""
    return Call([b"JOB", b"HISTORY", _id(id)], lambda answer: [event(each) for each in items(answer)], AGAIN)


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
    """What becomes of a job at the end of its `with` block."""
    if kind is None:
        return ack(facts.id)
    reason = f"{kind.__name__}: {error}"[:1_000].encode("utf-8", "backslashreplace").decode()
    if facts.once:
        # It may be delivered once only, so it cannot go back; buried, it can still be looked at.
        return bury(facts.id, reason, facts.hold())
    if issubclass(kind, Exception):
        return nack(facts.id, reason, facts.hold())
    # An interrupt or a cancelled task says nothing about the job: that is no failed try.
    return release(facts.id, hold=facts.hold())


# ---- Claims and the journal ------------------------------------------------------------------------------------------


def claim(tube: bytes, consumer: str, number: int, count: int, lease: Seconds, token: int) -> Call[Any]:
    """Claim number n of a consumer; the same jobs each time, so it may be asked for again."""
    words = [
        *(b"CLAIM", b"TAKE", tube, to_bytes(consumer, "a consumer"), b"%d" % integer(number, "number")),
        *(b"COUNT", b"%d" % integer(count, "count"), b"LEASE", duration(duration_ms(lease, "lease"))),
        *(b"TOKEN", b"%d" % integer(token, "token")),
    ]
    return Call(words, lambda answer: None if answer is None else jobs(answer), AGAIN)


def read_claim(consumer: str, number: int, shard: tuple[int, int]) -> Call[list[JobFacts]]:
    """The jobs of a claim, or of a part of it."""
    index, count = check_shard(shard)
    words = [b"CLAIM", b"READ", to_bytes(consumer, "a consumer"), b"%d" % integer(number, "number")]
    return Call([*words, b"SHARD", b"%d" % index, b"%d" % count], jobs, AGAIN)


def renew_claims(consumer: str, lease: Seconds | None, token: int) -> Call[int]:
    """Let the leases of all claims begin anew."""
    words = [b"CLAIM", b"RENEW", to_bytes(consumer, "a consumer"), b"TOKEN", b"%d" % integer(token, "token")]
    if lease is not None:
        words += [b"LEASE", duration(duration_ms(lease, "lease"))]
    return Call(words, number, AGAIN)


def release_claims(consumer: str, token: int) -> Call[int]:
    """End all claims; again, it would be those that were made since."""
    words = [b"CLAIM", b"RELEASE", to_bytes(consumer, "a consumer"), b"TOKEN", b"%d" % integer(token, "token")]
    return Call(words, number, NOT_AGAIN)


def claim_info(consumer: str) -> Call[ClaimInfo]:
    """How far a consumer is."""
    return Call(
        [b"CLAIM", b"INFO", to_bytes(consumer, "a consumer")],
        _claim_info,
        AGAIN,
    )


def _claim_info(answer: Reply) -> ClaimInfo:
    acked, newest, token = (number(answer[name]) for name in (b"acked", b"newest", b"token"))
    return ClaimInfo(acked, newest, token, [number(each) for each in items(answer[b"open"])])


def ack_claims(consumer: str, upto: int, token: int) -> Call[int]:
    """Ack all claims of a consumer up to a number."""
    words = [b"CLAIM", b"ACK", to_bytes(consumer, "a consumer"), b"%d" % integer(upto, "upto")]
    return Call([*words, b"TOKEN", b"%d" % integer(token, "token")], number, AGAIN)


def journal_head() -> Call[int]:
    """The position behind everything that has been written."""
    return Call([b"JOURNAL", b"HEAD"], lambda answer: number(answer[b"written"]) + 1, AGAIN)


def journal_events(position: int, tube: bytes | None, wait_ms: int = 0) -> Call[tuple[int, list[Event]]]:
    """What happened from a position on."""
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

    return Call(words, read, AGAIN, wait_ms)


def checkpoint() -> Call[None]:
    """Take a snapshot."""
    return Call([b"BGREWRITEAOF"], ignored, AGAIN)


def execute(words: tuple[str | bytes | int, ...]) -> Call[Any]:
    """Any command, and its answer as it came."""
    if not words:
        raise WrongType("give a command")
    return Call(
        [b"%d" % word if isinstance(word, int) else to_bytes(word, "a word") for word in words], _itself, NOT_AGAIN
    )


def _itself(answer: Reply) -> Reply:
    return answer
