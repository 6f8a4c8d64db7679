"""Functions that Tarantool clients call by name: the tables of functions and the dispatcher of the calls.

    queue.tube.NAME:put        a method of a tube               box.space.NAME:len     a method of a space
    queue.create_tube          a function of a module           box.space.NAME.index.I:min

The functions of a family are in one table. A function returns its results as a msgpack array, or None if the reply
follows later. A `Pending` call is answered when its wait ends. The calls of one client run concurrently, so a client
can have many pending calls, and each has its own sync number.

RESP clients call the same functions with CALL (`call_command.py`), one at a time.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from librt.strings import BytesWriter
from mypy_extensions import i64, mypyc_attr

from penstock.cluster import messages as m
from penstock.core.errors import NoMemory, PenstockError, ProtocolError
from penstock.core.waits import Waiting
from penstock.node.caller import ANSWERS_BYTES_MAX, Caller, PendingCall, SlicedCommand, WaitReply, check_tube
from penstock.node.command_counts import REFUSED, REPLIED, REPLIES_LATER, CommandCounts
from penstock.node.context import CommandContext
from penstock.node.dispatch import INTERNAL_ERROR, REDACTED, Dispatcher, check_question_answered, refusal_line
from penstock.node.inbox import Inbox
from penstock.node.routing import Elsewhere, NeedsAnswer, NeedsDecision
from penstock.wire import iproto
from penstock.wire.errors import BoxError, NoProcedure, Refused
from penstock.wire.iproto import IprotoParser, IprotoReply, Request
from penstock.wire.msgpack import DEPTH_MAX, Reader, pack, unpack, write_array

# The maximum number of function names in the cache of routes.
_ROUTES_MAX: Final = 4_096

# The name under which requests are counted that call no function, such as PING, and calls of unknown functions.
OTHER_REQUESTS: Final = b"(other)"

# Prefixes of the methods of a tube. Some clients use `box.queue`, the place of the queue in old versions.
_TUBES: Final = (b"queue.tube.", b"box.queue.tube.")

# The maximum length of a function name. A tube name may have 65,535 bytes.
_NAME_BYTES_MAX: Final = 66_000

# This many bytes of the name of a client's last call are kept, for CLIENT LIST.
_SHOWN_BYTES_MAX: Final = 64

# The reply to ID: version 3 of the protocol and none of its optional features.
_IDENTITY: Final = b"\x82\x54\x03\x55\x90"

# Lua texts that clients send to EVAL. A text that only calls a function with its arguments, or without any, is run as
# that call. go-tarantool has texts of its own that create a tube and check whether it exists.
_CALL_TEXT: Final = re.compile(rb"(?:return )?([\w.]+(?::\w+)?) ?\( ?(\.\.\.)? ?\) ?;?")
_CREATE_TUBE_TEXT: Final = re.compile(
    rb"local (\w+), (\w+), (\w+) = \.\.\. ?; ?(?:return )?(queue\.(?:schema\.)?create_tube) ?\(\1, \2, \3\) ?;?"
)
_TUBE_EXISTS_TEXT: Final = re.compile(rb"local (\w+) = \.\.\. ?; ?return queue\.tube\[\1\] ~= (?:nil|null) ?;?")

Function = Callable[[Caller, Request, bytes, int], bytes | None]
Select = Callable[[Caller, Request, int], bytes | None]
LogIn = Callable[[Caller, Request], None]


@mypyc_attr(allow_interpreted_subclasses=True)
class Method:
    """A function of a family, and the permission group that a caller needs for it."""

    def __init__(self, group: int, function: Function) -> None:
        self.group: i64 = group
        self.function = function


@mypyc_attr(allow_interpreted_subclasses=True)
class FunctionFamily:
    """A table of functions whose names begin with the same words, such as `queue` or `box.space`."""

    def method(self, owner: bytes, name: bytes) -> Method | None:
        """Return a function by its name, or None. `owner` is its tube or space, or empty if it has none."""
        return None

    def index_method(self, index: bytes, name: bytes) -> Method | None:
        """Return a function of an index by its name, or None. Only families of spaces have these."""
        return None


class Functions(FunctionFamily):
    """A family in which every tube or space has the same functions."""

    def __init__(self, functions: dict[bytes, Method]) -> None:
        self._functions = functions

    def add(self, name: bytes, method: Method) -> None:
        """Add a function that is implemented outside this class."""
        self._functions[name] = method

    def method(self, owner: bytes, name: bytes) -> Method | None:
        return self._functions.get(name)


class Route:
    """A resolved function name: the method, the tube or space that owns it, and the counters of its calls."""

    def __init__(self, method: Method, owner: bytes, counts: CommandCounts) -> None:
        self.method = method
        self.owner = owner
        self.counts = counts


@mypyc_attr(allow_interpreted_subclasses=True)
class Pending(PendingCall):
    """A call of a Tarantool function whose reply follows later."""

    sync: i64  # The number of the request, which the reply repeats.
    is_16: bool  # Whether the request is a CALL_16: each result is then a tuple.

    def __init__(self, caller: Caller, call: Request) -> None:
        super().__init__(caller)
        self.sync = call.sync
        self.is_16 = call.code == iproto.CALL_16

    def begin(self, context: CommandContext, wait: Waiting) -> None:
        """Register the wait of this call. A RESP client is blocked meanwhile; an IPROTO client can send more calls."""
        if not isinstance(self.caller.reply, IprotoReply):
            self.caller.wait_for(wait, _RespCallReply(context))

    def result(self, wait: Waiting, now: i64) -> bytes:
        """Return the results of the call after its wait has ended."""
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class SlicedCall(SlicedCommand):
    """A call that runs in slices."""

    def __init__(self, call: Request) -> None:
        self.sync: i64 = call.sync
        self.is_16: bool = call.code == iproto.CALL_16

    def run_slice(self, caller: Caller, now: i64) -> bytes | None:
        """Run one slice. Return the encoded results if the call is finished, otherwise None."""
        raise NotImplementedError

    def step(self, caller: Caller, now: i64) -> bool:
        try:
            results = self.run_slice(caller, now)
        except PenstockError as refusal:
            refuse(caller, self.sync, refusal)
            return True
        if results is None:
            return False
        answer(caller, self.sync, self.is_16, results)
        return True


def run_sliced(context: CommandContext, caller: Caller, long: SlicedCall, now: i64) -> bytes | None:
    """Run the first slice of a call now, and the others in later turns. Return None if the reply follows later."""
    results = long.run_slice(caller, now)
    while results is None:
        if context.continue_sliced is not None:
            context.continue_sliced(caller, long)
            return None
        results = long.run_slice(caller, now)
    return results


def iproto_reply(caller: Caller) -> IprotoReply:
    answers = caller.reply
    assert isinstance(answers, IprotoReply)
    return answers


def answer(caller: Caller, sync: i64, is_16: bool, results: bytes) -> None:
    """Write the reply of an IPROTO call. With `is_16`, the reply has the form of CALL_16."""
    reply = caller.reply
    if isinstance(reply, IprotoReply):
        reply.data(sync, _as_tuples(results) if is_16 else results)
    else:
        reply_to_resp_call(caller, results, [])


def reply_to_resp_call(caller: Caller, results: bytes, handed: list[bytes]) -> None:
    """Write the reply of a CALL over RESP: its results and the ids of the jobs that were delivered in them.

    The rows of a space do not contain these ids, and the client needs them to know which jobs it holds.
    """
    reply = caller.reply
    reply.array(2)
    reply.bulk(results)
    reply.bulks(handed)


class _RespCallReply(WaitReply):
    """Writes the reply of a CALL over RESP that waited."""

    def __init__(self, context: CommandContext) -> None:
        self._context = context

    def write(self, caller: Caller, wait: Waiting, now: i64) -> None:
        pending = wait.tag
        assert isinstance(pending, Pending)
        before = len(caller.unsent)
        results = pending.result(wait, now)
        reply_to_resp_call(caller, results, [self._context.id_of(job) for job in caller.unsent[before:]])


def denied(caller: Caller, name: bytes) -> BoxError:
    """Return the error for a caller that may not call a function."""
    who = "this user" if caller.is_authenticated else "user 'guest'; log in first"
    shown = name[:200].decode("utf-8", "backslashreplace")
    return BoxError(iproto.ER_ACCESS_DENIED, f"Execute access to function '{shown}' is denied for {who}")


def _as_tuples(results: bytes) -> bytes:
    """Convert results to the form of CALL_16: wrap each result that is not a tuple in a tuple of its own."""
    reader = Reader(results)
    # The limit of values is for requests. Our results may have more, because a JSON body can become many values.
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
    reply = caller.reply
    if not isinstance(reply, IprotoReply):
        reply.error(refusal_line(refusal))
        return
    number = iproto.ER_PROC_LUA
    text = str(refusal)
    if isinstance(refusal, BoxError):
        number = refusal.number
    elif isinstance(refusal, Refused):
        # A RESP error line: the code, then the sentence.
        code, _, text = text.partition(" ")
        if code == "NOPERM":
            number = iproto.ER_ACCESS_DENIED
    elif isinstance(refusal, ProtocolError):
        number = iproto.ER_INVALID_MSGPACK
    reply.refusal(sync, number, text.encode("utf-8", "backslashreplace"))


class _RerunCall(Pending):
    """A call that raised NeedsAnswer. It is run again when the other nodes have answered."""

    def __init__(self, caller: Caller, request: Request) -> None:
        super().__init__(caller, request)
        self.request = request


class CallDispatcher:
    """Runs the requests of IPROTO clients."""

    dispatcher: Dispatcher  # The dispatcher of RESP commands, which counts calls as well.
    families: dict[bytes, FunctionFamily]  # By the first word of the names of their functions.
    tubes: FunctionFamily  # The methods of a tube.
    spaces: FunctionFamily
    select: Select  # Runs a SELECT request.
    log_in: LogIn
    protocol: i64  # The protocol of its clients, as a constant of cluster/messages.py.
    _routes: dict[bytes, Route]
    _counts: CommandCounts  # The counters of the request that runs now.
    _others: CommandCounts  # The counters of requests that call no function, and of unknown functions.

    def __init__(
        self,
        dispatcher: Dispatcher,
        families: dict[bytes, FunctionFamily],
        tubes: FunctionFamily,
        spaces: FunctionFamily,
        select: Select,
        log_in: LogIn,
    ) -> None:
        self.dispatcher = dispatcher
        self.families = families
        self.tubes = tubes
        self.spaces = spaces
        self.select = select
        self.log_in = log_in
        self.protocol = m.IPROTO
        self._routes = {}
        self._others = dispatcher.function_counts(OTHER_REQUESTS)
        self._counts = self._others

    def run_all(self, caller: Caller, requests: list[Request], start: i64, waits_max: i64, now: i64) -> i64:
        """Run requests, starting at index `start`, until the caller waits. Return the index of the next request."""
        at = start
        count: i64 = len(requests)
        waits = caller.connection.waits
        began: i64 = self.dispatcher.clock_ns()
        while at < count and not caller.busy and len(waits) + caller.remote_count < waits_max:
            request = requests[at]
            at += 1
            self.dispatcher.executed += 1
            self._counts = self._others
            result = self._answer(caller, request, now)
            ended: i64 = self.dispatcher.clock_ns()
            self._counts.add(result, ended - began)
            if self.dispatcher.slow_ns >= 0 and ended - began >= self.dispatcher.slow_ns:
                self.dispatcher.hooks.record_slow(caller, _redacted_words(request), ended - began)
            began = ended
            if caller.closing or caller.reply.length > ANSWERS_BYTES_MAX:
                break
        return at

    def _answer(self, caller: Caller, request: Request, now: i64) -> i64:
        """Run a request. Write its reply, unless the reply follows later. Return the result: see CommandCounts."""
        try:
            if request.code == iproto.CALL:
                results = self._call(caller, request, now)
                if results is None:
                    return REPLIES_LATER
                iproto_reply(caller).data(request.sync, results)
                return REPLIED
            return self._run(caller, request, now)
        except PenstockError as refusal:
            return self._forward_or_refuse(caller, request, refusal, now)
        except Exception as defect:
            self._failed(caller, request.sync, defect)
            return REFUSED

    def _failed(self, caller: Caller, sync: i64, defect: Exception) -> None:
        """Close the caller's connection after an internal error. Other clients are not affected."""
        caller.closing = True
        iproto_reply(caller).refusal(sync, iproto.ER_PROC_LUA, INTERNAL_ERROR)
        self.dispatcher.report(defect)

    def _forward_or_refuse(self, caller: Caller, request: Request, refusal: PenstockError, now: i64) -> i64:
        """For an Elsewhere error, forward the request. For NeedsAnswer, ask other nodes. Otherwise write the error.

        Return the result.
        """
        remote = self.dispatcher.remote
        try:
            if isinstance(refusal, Elsewhere) and refusal.promised:
                refusal = NeedsDecision(refusal)
            if isinstance(refusal, NeedsAnswer):
                remote.ask(caller, refusal, _RerunCall(caller, request), now)
                return REPLIES_LATER
            if isinstance(refusal, Elsewhere):
                remote.forward_call(caller, request, refusal)
                return REPLIES_LATER
            refuse(caller, request.sync, refusal)
        except PenstockError as reason:
            refuse(caller, request.sync, reason)
        return REFUSED

    def _call(self, caller: Caller, call: Request, now: i64) -> bytes | None:
        name = call.name
        caller.last_command = name if len(name) <= _SHOWN_BYTES_MAX else name[:_SHOWN_BYTES_MAX]
        if self.dispatcher.is_monitored:
            self.dispatcher.hooks.command_runs(caller, [name, *call.args])
        return self.call(caller, call, now)

    def call(self, caller: Caller, call: Request, now: i64) -> bytes | None:
        """Check the permissions and call a function. Return its results, or None if they follow later."""
        name = call.name
        route = self._routes.get(name)
        if route is None:
            route = self._find(name)
        self._counts = route.counts
        method = route.method
        if not caller.is_authenticated or method.group & caller.groups == 0:
            raise denied(caller, name)
        if not caller.any_tube and route.owner:
            check_tube(caller, route.owner)
        try:
            return method.function(caller, call, route.owner, now)
        except NoMemory:
            while self.dispatcher.hooks.evict():
                try:
                    return method.function(caller, call, route.owner, now)
                except NoMemory:
                    pass
            raise

    def _run(self, caller: Caller, request: Request, now: i64) -> i64:
        """Run any request except CALL. Return the result."""
        code = request.code
        if code == iproto.CALL_16 or code == iproto.EVAL:
            if code == iproto.EVAL:
                _eval_as_call(request)
            results = self._call(caller, request, now)
            if results is None:
                return REPLIES_LATER
            answer(caller, request.sync, code == iproto.CALL_16, results)
        elif code == iproto.PING:
            iproto_reply(caller).done(request.sync)
        elif code == iproto.SELECT:
            caller.last_command = b"select"
            if self.dispatcher.is_monitored:
                self.dispatcher.hooks.command_runs(caller, _redacted_words(request))
            results = self.select(caller, request, now)
            if results is None:
                return REPLIES_LATER
            iproto_reply(caller).data(request.sync, results)
        elif code == iproto.ID:
            iproto_reply(caller).body(request.sync, _IDENTITY)
        elif code == iproto.AUTH:
            self.log_in(caller, request)
        elif code == iproto.BROKEN:
            raise BoxError(iproto.ER_INVALID_MSGPACK, request.name.decode())
        elif code == iproto.OVERSIZED:
            raise self.dispatcher.oversized()
        else:
            raise BoxError(iproto.ER_UNKNOWN_REQUEST, f"Unknown request type {code}")
        return REPLIES_LATER if caller.busy else REPLIED

    def _find(self, name: bytes) -> Route:
        """Find the function that a name means. The last colon separates the method from its tube, space or index."""
        if len(name) > _NAME_BYTES_MAX:
            raise NoProcedure(name)
        owner, colon, last = name.rpartition(b":")
        method: Method | None = None
        counted = name  # The name under which calls are counted. It does not contain the tube or space.
        if not colon:
            family, _, last = name.partition(b".")
            found = self.families.get(family)
            method = None if found is None else found.method(b"", last)
        elif owner.startswith(_TUBES):
            owner = owner[owner.index(b".tube.") + 6 :]
            counted = b"queue.tube:" + last
            method = self.tubes.method(owner, last)
        elif owner.startswith(b"box.space."):
            owner = owner[10:]
            space, dot, index = owner.rpartition(b".index.")
            method = self.spaces.index_method(index, last) if dot else None
            if method is not None:
                owner = space
            else:
                method = self.spaces.method(owner, last)
            counted = b"box.space:" + last
        if method is None:
            raise NoProcedure(name)
        route = Route(method, owner, self.dispatcher.function_counts(counted))
        if len(self._routes) >= _ROUTES_MAX:
            self._routes.clear()
        self._routes[name] = route
        return route

    def end_wait(self, pending: Pending, wait: Waiting, now: i64, refusal: PenstockError | None = None) -> None:
        """End the wait of a call: write its results, or the error `refusal` if there is one."""
        if refusal is not None:
            refuse(pending.caller, pending.sync, refusal)
            return
        try:
            if isinstance(pending, _RerunCall):
                check_question_answered(wait)
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


def _eval_as_call(request: Request) -> None:
    """Turn an EVAL into a CALL if its Lua text has one of three known forms. Raise an error for any other text."""
    # A longer text cannot match and would take long to split.
    text = b" ".join(request.name.split()) if len(request.name) <= _NAME_BYTES_MAX else b""
    passing_on, creating = _CALL_TEXT.fullmatch(text), _CREATE_TUBE_TEXT.fullmatch(text)
    if passing_on is not None:
        request.name = passing_on.group(1)
        if passing_on.group(2) is None:
            request.args = []
    elif creating is not None:
        request.name = creating.group(4)
    elif _TUBE_EXISTS_TEXT.fullmatch(text) is not None:
        request.name = b"queue.tube"
    else:
        raise BoxError(
            iproto.ER_ACCESS_DENIED,
            "Lua is not evaluated here, except calls like `return queue.create_tube(...)`; use CALL",
        )
    request.code = iproto.CALL


def _redacted_words(request: Request) -> list[bytes]:
    """Return the words with which the slow log shows a request.

    The contents of AUTH and EVAL are not shown. AUTH has a scrambled password, and a refused EVAL can have any text.
    """
    if request.code == iproto.AUTH:
        return [b"auth", REDACTED]
    if request.code == iproto.EVAL:
        return [b"eval", REDACTED]
    if request.code == iproto.SELECT:
        return [b"select", b"%d" % int(request.space), *request.args]
    return [request.name, *request.args]


_NO_REQUESTS: Final[list[Request]] = []


class CallInbox(Inbox):
    """The inbox of an IPROTO client."""

    def __init__(self, parser: IprotoParser, calls: CallDispatcher, waits_max: i64) -> None:
        super().__init__(parser)
        self._parser = parser
        self._calls = calls
        self._waits_max = waits_max
        self._requests: list[Request] = _NO_REQUESTS

    def parse(self, most: i64) -> i64:
        self._requests = self._parser.parse(most)
        return len(self._requests)

    def run_parsed(self, caller: Caller, start: i64, now: i64) -> i64:
        return self._calls.run_all(caller, self._requests, start, self._waits_max, now)

    def free_parsed(self) -> None:
        self._requests = _NO_REQUESTS

    def end_wait(self, caller: Caller, wait: Waiting, now: i64, refusal: bytes) -> None:
        pending = wait.tag
        assert isinstance(pending, Pending)
        self._calls.end_wait(pending, wait, now, Refused(refusal) if refusal else None)

    def protocol(self, caller: Caller) -> i64:
        return self._calls.protocol

    def refuse_call(self, caller: Caller, sync: i64, refusal: PenstockError) -> None:
        refuse(caller, sync, refusal)

    def refuse_bytes(self, caller: Caller, why: bytes) -> None:
        iproto_reply(caller).refusal(0, iproto.ER_INVALID_MSGPACK, why)

    def refusal(self, line: bytes) -> bytes:
        answers = IprotoReply()
        answers.refusal(0, iproto.ER_ACCESS_DENIED, line.partition(b" ")[2].strip())
        return answers.take()


# Results


def encode_result(value: object) -> bytes:
    """Encode `value` as the results of a function: an array with this one value."""
    return b"\x91" + pack(value)


def argument(call: Request, at: i64) -> object:
    """Return the decoded argument at index `at`, or None if it is missing."""
    return unpack(call.args[at]) if at < len(call.args) else None
