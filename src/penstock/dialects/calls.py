"""Functions by name, as clients of Tarantool call them: who may call them, and the desk that runs the calls.

    queue.tube.NAME:put        a method of a tube               box.space.NAME:len     a method of a space
    queue.create_tube          a function of a module           box.space.NAME.index.I:min

A function is a row of its family's table: a `Function` gives the msgpack of an array of results, or None if its answer
follows later: a `Pending` call is answered when what it waits for has ended. Calls of one client run concurrently, so
there can be many of them, and each knows its own sync.

The same functions are called over RESP by CALL (`call_command.py`). There a client has one call at a time, and is
answered in its turn.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from librt.strings import BytesWriter
from mypy_extensions import i64, mypyc_attr

from penstock.core.errors import NoMemory, PenstockError, ProtocolError
from penstock.core.waits import Waiting
from penstock.dialects.command import (
    ANSWERS_BYTES_MAX,
    INTERNAL_ERROR,
    REDACTED,
    Answer,
    Caller,
    Desk,
    Long,
    check_again,
    check_tube,
    refusal_line,
)
from penstock.dialects.inbox import ALL_RUN, MORE_LEFT, PART_LEFT, STOPPED
from penstock.dialects.site import Site
from penstock.wire import iproto
from penstock.wire.errors import AskFirst, BoxError, Elsewhere, NoProcedure, Refused
from penstock.wire.iproto import Answers, IprotoParser, Request
from penstock.wire.msgpack import DEPTH_MAX, Reader, pack, unpack, write_array

# How many names of functions are remembered with what they mean.
_ROUTES_MAX: Final = 4_096

# What the methods of a tube are called by. Some clients look for the queue in `box`, where it was once.
_TUBES: Final = (b"queue.tube.", b"box.queue.tube.")

# A name of a function is no longer: a tube's may have 65,535 bytes.
_NAME_BYTES_MAX: Final = 66_000

# Of the last call of a client, so much is kept to be shown.
_SHOWN_BYTES_MAX: Final = 64

# The answer to ID: version 3 of the protocol, and none of its optional features.
_IDENTITY: Final = b"\x82\x54\x03\x55\x90"

# Texts that clients have evaluated. One that only passes its arguments on, or none, is a call; go-tarantool creates
# tubes and asks for them in words of its own.
_PASSING_ON: Final = re.compile(rb"(?:return )?([\w.]+(?::\w+)?) ?\( ?(\.\.\.)? ?\) ?;?")
_CREATING: Final = re.compile(
    rb"local (\w+), (\w+), (\w+) = \.\.\. ?; ?(?:return )?(queue\.(?:schema\.)?create_tube) ?\(\1, \2, \3\) ?;?"
)
_ASKING: Final = re.compile(rb"local (\w+) = \.\.\. ?; ?return queue\.tube\[\1\] ~= (?:nil|null) ?;?")

Function = Callable[[Caller, Request, bytes, int], bytes | None]
Select = Callable[[Caller, Request, int], bytes | None]
LogIn = Callable[[Caller, Request], None]
PassOn = Callable[[Any, Request, Elsewhere], None]


@mypyc_attr(allow_interpreted_subclasses=True)
class Method:
    """A function of a family, and whom it is for."""

    group: i64
    function: Function

    def __init__(self, group: int, function: Function) -> None:
        self.group = group
        self.function = function


@mypyc_attr(allow_interpreted_subclasses=True)
class Family:
    """Functions that share the first words of their names."""

    def method(self, owner: bytes, name: bytes) -> Method | None:
        """The function of this name, of an owner (a tube, a space) or, where that is empty, of the family itself."""
        return None

    def index_method(self, index: bytes, name: bytes) -> Method | None:
        """Return the function of this name of an index, where owners are spaces."""
        return None


class Functions(Family):
    """A family that is a table."""

    _functions: dict[bytes, Method]

    def __init__(self, functions: dict[bytes, Method]) -> None:
        self._functions = functions

    def method(self, owner: bytes, name: bytes) -> Method | None:
        """The function of a name."""
        return self._functions.get(name)


class Route:
    """What the name of a function means."""

    method: Method
    owner: bytes

    def __init__(self, method: Method, owner: bytes) -> None:
        self.method = method
        self.owner = owner


@mypyc_attr(allow_interpreted_subclasses=True)
class Pending:
    """A call that waits. It is the tag of its wait."""

    caller: Caller
    sync: i64
    is_16: bool

    def __init__(self, caller: Caller, call: Request) -> None:
        self.caller = caller
        self.sync = call.sync
        self.is_16 = call.code == iproto.CALL_16

    def begin(self, site: Site, wait: Waiting) -> None:
        """Let it wait for this."""
        if not isinstance(self.caller.reply, Answers):
            self.caller.waits(wait, _AnswerInTurn(site))

    def result(self, wait: Waiting, now: i64) -> bytes:
        """What it waited for has ended: its results."""
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class LongCall(Long):
    """A call that runs in slices."""

    sync: i64
    is_16: bool

    def __init__(self, call: Request) -> None:
        self.sync = call.sync
        self.is_16 = call.code == iproto.CALL_16

    def slice(self, caller: Caller, now: i64) -> bytes | None:
        """Run a slice; gives the results when it was the last one."""
        raise NotImplementedError

    def step(self, caller: Caller, now: i64) -> bool:
        """The same, and answer."""
        try:
            results = self.slice(caller, now)
        except PenstockError as refusal:
            refuse(caller, self.sync, refusal)
            return True
        if results is None:
            return False
        answer(caller, self.sync, self.is_16, results)
        return True


def run_long(site: Site, caller: Caller, long: LongCall, now: i64) -> bytes | None:
    """Run a call that may take many slices: the first at once, the others in turns of their own."""
    results = long.slice(caller, now)
    while results is None:
        if site.start_long is not None:
            site.start_long(caller, long)
            return None
        results = long.slice(caller, now)
    return results


def answers_of(caller: Caller) -> Answers:
    """Where the answers go of a client that speaks IPROTO."""
    answers = caller.reply
    assert isinstance(answers, Answers)
    return answers


def answer(caller: Caller, sync: i64, is_16: bool, results: bytes) -> None:
    """Answer a call with its results."""
    reply = caller.reply
    if isinstance(reply, Answers):
        reply.data(sync, _wrapped(results) if is_16 else results)
    else:
        answer_in_turn(caller, results, [])


def answer_in_turn(caller: Caller, results: bytes, handed: list[bytes]) -> None:
    """Answer a CALL over RESP: its results, and the ids of the jobs that were handed out in them.

    Rows of a space do not tell whose job is whose, and a client has to know what it holds.
    """
    reply = caller.reply
    reply.array(2)
    reply.bulk(results)
    reply.bulks(handed)


class _AnswerInTurn(Answer):
    """How one who waited in a CALL over RESP is answered."""

    _site: Site

    def __init__(self, site: Site) -> None:
        self._site = site

    def write(self, caller: Caller, wait: Waiting, now: i64) -> None:
        """A wait has ended."""
        pending = wait.tag
        assert isinstance(pending, Pending)
        before = len(caller.unsent)
        results = pending.result(wait, now)
        answer_in_turn(caller, results, [self._site.id_of(job) for job in caller.unsent[before:]])


def denied(caller: Caller, name: bytes) -> BoxError:
    """Return the refusal of a function that the caller may not call."""
    who = "this user" if caller.known else "user 'guest'; log in first"
    shown = name[:200].decode("utf-8", "backslashreplace")
    return BoxError(iproto.ER_ACCESS_DENIED, f"Execute access to function '{shown}' is denied for {who}")


def _wrapped(results: bytes) -> bytes:
    """Results as the old form of a call has them: each is a tuple, so what is none becomes a tuple of one."""
    reader = Reader(results)
    # What we answer ourselves may be more than what we take: JSON becomes any number of values.
    reader.left = len(results)
    writer = BytesWriter()
    count = reader.length_of_array()
    write_array(writer, count)
    for _ in range(count):
        start = reader.at
        reader.skip(2 * DEPTH_MAX)
        raw = results[start : reader.at]
        first: i64 = raw[0]
        if first & 0xF0 != 0x90 and first != 0xDC and first != 0xDD:
            writer.append(0x91)
        writer.write(raw)
    return writer.getvalue()


def refuse(caller: Caller, sync: i64, refusal: PenstockError) -> None:
    """Answer a call with why it is refused."""
    reply = caller.reply
    if not isinstance(reply, Answers):
        reply.error(refusal_line(refusal))
        return
    number = iproto.ER_PROC_LUA
    text = str(refusal)
    if isinstance(refusal, BoxError):
        number = refusal.number
    elif isinstance(refusal, Refused):
        # The words of RESP: a code, then the sentence.
        code, _, text = text.partition(" ")
        if code == "NOPERM":
            number = iproto.ER_ACCESS_DENIED
    elif isinstance(refusal, ProtocolError):
        number = iproto.ER_INVALID_MSGPACK
    reply.refusal(sync, number, text.encode("utf-8", "backslashreplace"))


class _Again(Pending):
    """A call that waits for what other nodes say: then it is run as if it came only now."""

    request: Request

    def __init__(self, caller: Caller, request: Request) -> None:
        super().__init__(caller, request)
        self.request = request


class Calls:
    """Runs the requests of those who came through one door."""

    desk: Desk  # Which counts them.
    families: dict[bytes, Family]  # By the first word of their functions' names.
    tubes: Family  # The methods of a tube.
    spaces: Family
    select: Select  # Runs a SELECT request.
    log_in: LogIn
    on_elsewhere: PassOn | None  # Told of a call that is for another node; without it, the call is refused.
    _routes: dict[bytes, Route]

    def __init__(
        self,
        desk: Desk,
        families: dict[bytes, Family],
        tubes: Family,
        spaces: Family,
        select: Select,
        log_in: LogIn,
    ) -> None:
        self.desk = desk
        self.families = families
        self.tubes = tubes
        self.spaces = spaces
        self.select = select
        self.log_in = log_in
        self.on_elsewhere = None
        self._routes = {}

    def run_all(self, caller: Caller, requests: list[Request], start: i64, waits_max: i64, now: i64) -> i64:
        """Run the requests of a caller from one on, until it has to wait; tell how far that was."""
        at = start
        count: i64 = len(requests)
        waits = caller.connection.waits
        began: i64 = self.desk.clock_ns()
        while at < count and not caller.busy and len(waits) + caller.abroad < waits_max:
            request = requests[at]
            at += 1
            self.desk.executed += 1
            self._answer(caller, request, now)
            ended: i64 = self.desk.clock_ns()
            if self.desk.slow_ns >= 0 and ended - began >= self.desk.slow_ns and self.desk.on_slow is not None:
                self.desk.on_slow(caller, _shown(request), ended - began)
            began = ended
            if caller.closing or caller.reply.length > ANSWERS_BYTES_MAX:
                break
        return at

    def _answer(self, caller: Caller, request: Request, now: i64) -> None:
        """Run a request; it is answered, or waits."""
        try:
            if request.code == iproto.CALL:
                results = self._call(caller, request, now)
                if results is not None:
                    answers_of(caller).data(request.sync, results)
            else:
                self._run(caller, request, now)
        except PenstockError as refusal:
            if isinstance(refusal, AskFirst) and self.desk.ask_others is not None:
                self.desk.ask_others(caller, refusal, _Again(caller, request), now)
            elif isinstance(refusal, Elsewhere) and self.on_elsewhere is not None:
                self._pass_on(caller, request, refusal)
            else:
                refuse(caller, request.sync, refusal)
        except Exception as defect:
            self._failed(caller, request.sync, defect)

    def _failed(self, caller: Caller, sync: i64, defect: Exception) -> None:
        """A request failed in a way that nobody meant: its caller is closed, the others go on."""
        caller.closing = True
        answers_of(caller).refusal(sync, iproto.ER_PROC_LUA, INTERNAL_ERROR)
        self.desk.report(defect)

    def _pass_on(self, caller: Caller, request: Request, where: Elsewhere) -> None:
        assert self.on_elsewhere is not None
        try:
            self.on_elsewhere(caller, request, where)
        except PenstockError as refusal:
            refuse(caller, request.sync, refusal)

    def _call(self, caller: Caller, call: Request, now: i64) -> bytes | None:
        name = call.name
        caller.last_command = name if len(name) <= _SHOWN_BYTES_MAX else name[:_SHOWN_BYTES_MAX]
        if self.desk.watched and self.desk.on_show is not None:
            self.desk.on_show(caller, [name, *call.args])
        return self.call(caller, call, now)

    def call(self, caller: Caller, call: Request, now: i64) -> bytes | None:
        """Call a function, if the caller may: its results, or None if they follow later."""
        name = call.name
        route = self._routes.get(name)
        if route is None:
            route = self._find(name)
        method = route.method
        if not caller.known or method.group & caller.groups == 0:
            raise denied(caller, name)
        if not caller.any_tube and route.owner:
            check_tube(caller, route.owner)
        try:
            return method.function(caller, call, route.owner, now)
        except NoMemory:
            while self.desk.evict is not None and self.desk.evict():
                try:
                    return method.function(caller, call, route.owner, now)
                except NoMemory:
                    pass
            raise

    def _run(self, caller: Caller, request: Request, now: i64) -> None:
        """Run a request that is not the common kind of call."""
        code = request.code
        if code == iproto.CALL_16 or code == iproto.EVAL:
            if code == iproto.EVAL:
                _understand(request)
            results = self._call(caller, request, now)
            if results is not None:
                answer(caller, request.sync, code == iproto.CALL_16, results)
        elif code == iproto.PING:
            answers_of(caller).done(request.sync)
        elif code == iproto.SELECT:
            caller.last_command = b"select"
            if self.desk.watched and self.desk.on_show is not None:
                self.desk.on_show(caller, _shown(request))
            results = self.select(caller, request, now)
            if results is not None:
                answers_of(caller).data(request.sync, results)
        elif code == iproto.ID:
            answers_of(caller).body(request.sync, _IDENTITY)
        elif code == iproto.AUTH:
            self.log_in(caller, request)
        elif code == iproto.BROKEN:
            raise BoxError(iproto.ER_INVALID_MSGPACK, request.name.decode())
        elif code == iproto.OVERSIZED:
            raise self.desk.oversized()
        else:
            raise BoxError(iproto.ER_UNKNOWN_REQUEST, f"Unknown request type {code}")

    def _find(self, name: bytes) -> Route:
        """What a name means: the last colon is before a method, and what is before it says whose."""
        if len(name) > _NAME_BYTES_MAX:
            raise NoProcedure(name)
        owner, colon, last = name.rpartition(b":")
        method: Method | None = None
        if not colon:
            family, _, last = name.partition(b".")
            found = self.families.get(family)
            method = None if found is None else found.method(b"", last)
        elif owner.startswith(_TUBES):
            owner = owner[owner.index(b".tube.") + 6 :]
            method = self.tubes.method(owner, last)
        elif owner.startswith(b"box.space."):
            owner = owner[10:]
            space, dot, index = owner.rpartition(b".index.")
            method = self.spaces.index_method(index, last) if dot else None
            if method is not None:
                owner = space
            else:
                method = self.spaces.method(owner, last)
        if method is None:
            raise NoProcedure(name)
        route = Route(method, owner)
        if len(self._routes) >= _ROUTES_MAX:
            self._routes.clear()
        self._routes[name] = route
        return route

    def end_wait(self, pending: Pending, wait: Waiting, now: i64, refusal: PenstockError | None = None) -> None:
        """What a call waited for has ended: answer it, or refuse it."""
        if refusal is not None:
            refuse(pending.caller, pending.sync, refusal)
            return
        try:
            if isinstance(pending, _Again):
                check_again(wait)
                self._answer(pending.caller, pending.request, now)
                return
            results = pending.result(wait, now)
        except PenstockError as reason:
            refuse(pending.caller, pending.sync, reason)
            return
        except Exception as defect:
            self._failed(pending.caller, pending.sync, defect)
            return
        answer(pending.caller, pending.sync, pending.is_16, results)


def _understand(request: Request) -> None:
    """Turn a text that is to be evaluated into the call that it is, if it is one that clients are known to send."""
    # A longer text is none of these, and would take long to be split.
    text = b" ".join(request.name.split()) if len(request.name) <= _NAME_BYTES_MAX else b""
    passing_on = _PASSING_ON.fullmatch(text)
    if passing_on is not None:
        request.code = iproto.CALL
        request.name = passing_on.group(1)
        if passing_on.group(2) is None:
            request.args = []
        return
    creating = _CREATING.fullmatch(text)
    if creating is not None:
        request.code = iproto.CALL
        request.name = creating.group(4)
        return
    if _ASKING.fullmatch(text) is not None:
        request.code = iproto.CALL
        request.name = b"queue.tube"
        return
    raise BoxError(
        iproto.ER_ACCESS_DENIED,
        "Lua is not evaluated here, but for calls like `return queue.create_tube(...)`; use CALL",
    )


def _shown(request: Request) -> list[bytes]:
    """Return the words of a request that others may see, for the slow log.

    A login has a scrambled password. A text that was not understood may have anything in it.
    """
    if request.code == iproto.AUTH:
        return [b"auth", REDACTED]
    if request.code == iproto.EVAL:
        return [b"eval", REDACTED]
    if request.code == iproto.SELECT:
        return [b"select", b"%d" % int(request.space), *request.args]
    return [request.name, *request.args]


_NONE: Final[list[Request]] = []


class CallInbox:
    """What one client has sent over IPROTO and was not run yet: bytes, then requests."""

    parser: IprotoParser
    ran: bool  # Requests were complete when it was run last.
    _calls: Calls
    _waits_max: i64
    _requests: list[Request]  # Those that were parsed,
    _at: i64  # and how many of them were run.

    def __init__(self, parser: IprotoParser, calls: Calls, waits_max: i64) -> None:
        self.parser = parser
        self.ran = False
        self._calls = calls
        self._waits_max = waits_max
        self._requests = []
        self._at = 0

    def run(self, desk: Desk, caller: Caller, budget: i64, now: i64) -> i64:
        """Run what its client has sent, no more than so many requests; tell why that ended."""
        parser = self.parser
        self.ran = False
        while not caller.busy and not caller.closing:
            is_through = self._at == len(self._requests)
            if is_through and self.ran and not parser.is_unfinished() and not parser.error:
                return ALL_RUN
            if budget <= 0 or caller.reply.length + caller.sending > ANSWERS_BYTES_MAX:
                return MORE_LEFT
            if is_through:
                # What may stand behind a password depends on the password, so of one unknown it is read one by one.
                self._requests = parser.parse(budget if caller.known else 1)
                self._at = 0
                if not self._requests:
                    if parser.has_more:
                        return MORE_LEFT
                    return PART_LEFT if parser.is_unfinished() or parser.error else ALL_RUN
                self.ran = True
            before = self._at
            self._at = self._calls.run_all(caller, self._requests, before, self._waits_max, now)
            if self._at == before:
                return STOPPED
            budget -= self._at - before
            if self._at == len(self._requests):
                # What was in them is not kept: who has sent something long may be silent for days.
                self._requests = _NONE
                self._at = 0
        return STOPPED


# Results


def one(value: object) -> bytes:
    """The results of a function that gives one value."""
    return b"\x91" + pack(value)


def argument(call: Request, at: i64) -> object:
    """An argument of a call; None where it was not given."""
    return unpack(call.args[at]) if at < len(call.args) else None
