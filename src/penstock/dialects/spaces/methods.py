"""The functions of `box` that read spaces, and SELECT requests.

    box.space.NAME:select|get|count|len          box.space.NAME.index.INDEX:select|get|count|len|min|max

The spaces are `_queue` and the other spaces of tarantool/queue, a space for each tube, and the schema. No space can be
written.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from penstock.core.engine import Engine
from penstock.core.tube import Tube
from penstock.dialects.spaces import queue_spaces, schema
from penstock.dialects.spaces.arguments import count_query, read_iterator, read_key, select_query
from penstock.dialects.spaces.indexes import EQ, REQ, Query
from penstock.dialects.spaces.job_spaces import FIRST_NUMBER, LAST_NUMBER, TaskSpace
from penstock.dialects.spaces.queue_spaces import ConsumersSpace, QueueSpace, TakenSpace, tube_of_number
from penstock.dialects.spaces.reading import ER_UNSUPPORTED, CountCall, ReadableSpace, SelectCall
from penstock.dialects.spaces.schema import ReadableSpaces, SchemaIndexes, SchemaSpaces
from penstock.dialects.tarantool.calls import FunctionFamily, Functions, Method, SlicedCall, argument, run_sliced
from penstock.dialects.tarantool.queue_functions import Tasks, read_options
from penstock.dialects.xqueue.spaces import XqueueSpaces as XqueueSpaces
from penstock.node.caller import READ, Caller
from penstock.node.context import CommandContext
from penstock.wire.bodies import is_utf8
from penstock.wire.errors import BoxError, LuaError, NoProcedure
from penstock.wire.iproto import ER_ACCESS_DENIED, ER_NO_SUCH_SPACE, Request
from penstock.wire.msgpack import NO_VALUES, unpack

_ER_NO_SUCH_INDEX: Final = 35

_NO_INDEX: Final = b""  # Stands for the primary index, in methods of a space.

# Methods of Tarantool's spaces that write. They are refused by name, because this server is not a database.
_WRITING: Final = (
    *(b"insert", b"replace", b"update", b"upsert", b"delete", b"auto_increment", b"drop", b"create_index", b"rename"),
    *(b"alter", b"format", b"on_replace", b"before_replace"),
)


class SpaceFunctions(FunctionFamily):
    """The functions `box.space.NAME:method` and `box.space.NAME.index.INDEX:method`."""

    _context: CommandContext
    engine: Engine
    tasks: Tasks
    _upgraded: XqueueSpaces
    _methods: dict[bytes, Method]

    def __init__(self, context: CommandContext, upgraded: XqueueSpaces) -> None:
        self._context = context
        self.engine = context.engine
        self.tasks = Tasks(context)
        self._upgraded = upgraded
        self._methods = {}
        for name in (b"select", b"get", b"count", b"len"):
            self._methods[name] = Method(READ, _IndexMethod(self, _NO_INDEX, name).call)
        for name in _WRITING:
            self._methods[name] = Method(READ, _refuse_writing)
        self._methods[b"pairs"] = Method(READ, _refuse_pairs)

    def method(self, owner: bytes, name: bytes) -> Method | None:
        return self._methods.get(name)

    def index_method(self, index: bytes, name: bytes) -> Method | None:
        if name not in _INDEX_METHODS:
            return None
        return Method(READ, _IndexMethod(self, index, name).call)

    def select(self, caller: Caller, request: Request, now: i64) -> bytes | None:
        """Run a SELECT request. Return the rows, or None if the reply follows later."""
        number = int(request.space)
        may_read = caller.is_authenticated and READ & caller.groups != 0
        if number in schema.EMPTY or (not may_read and number in schema.SPACES | schema.INDEXES):
            # Clients read these spaces before they log in.
            return NO_VALUES
        if not may_read:
            who = "this user" if caller.is_authenticated else "user 'guest'; log in first"
            raise BoxError(ER_ACCESS_DENIED, f"Read access to space '#{number}' is denied for {who}")
        space = _CallerSpaces(self, caller).by_number(number)
        if space is None:
            raise BoxError(ER_NO_SUCH_SPACE, f"Space '#{number}' does not exist")
        for index in space.indexes:
            if index.number == request.index:
                iterator = read_iterator(int(request.iterator), index, space.name, EQ)
                key = [unpack(part) for part in request.args]
                query = Query(index, iterator, key, int(request.limit), int(request.offset))
                return run_sliced(self._context, caller, SelectCall(request, space, query, False), now)
        raise BoxError(_ER_NO_SUCH_INDEX, f"No index #{request.index} is defined in space '{space.name}'")

    def run(self, caller: Caller, call: Request, name: bytes, path: _IndexMethod, now: i64) -> bytes | None:
        """Run a method of the space `name` or of one of its indexes. Return None if the reply follows later."""
        space = self._find(caller, name)
        index = space.indexes[0]
        if path.index != _NO_INDEX:
            found = [each for each in space.indexes if each.name.encode() == path.index]
            if not found:
                raise NoProcedure(call.name)
            index = found[0]
        method = path.method
        key = [] if method == b"len" else read_key(argument(call, 0))
        long: SlicedCall
        if method in (b"count", b"len"):
            options = {} if method == b"len" else _options(call)
            long = CountCall(call, space, count_query(space, index, key, options))
        elif method == b"select":
            long = SelectCall(call, space, select_query(space, index, key, _options(call)), True)
        else:
            if method == b"get":
                index.check_exact(key)
            long = SelectCall(call, space, Query(index, REQ if method == b"max" else EQ, key, 1), False)
        return run_sliced(self._context, caller, long, now)

    def _find(self, caller: Caller, name: bytes) -> ReadableSpace:
        """Return the space with a name. Raise an error if it does not exist or the caller may not use it."""
        space = _CallerSpaces(self, caller).by_name(name)
        if space is None:
            self._context.raise_if_elsewhere([name])
            shown = name[:200].decode("utf-8", "backslashreplace")
            raise BoxError(ER_NO_SUCH_SPACE, f"Space '{shown}' does not exist; only tubes are spaces here")
        return space

    def of_tube(self, tube: Tube) -> ReadableSpace:
        upgraded = self._upgraded.find(tube.name)
        return TaskSpace(self.tasks, tube) if upgraded is None else upgraded.readable()


class _CallerSpaces(ReadableSpaces):
    """The spaces that a caller may read."""

    _spaces: SpaceFunctions
    _caller: Caller

    def __init__(self, spaces: SpaceFunctions, caller: Caller) -> None:
        self._spaces = spaces
        self._caller = caller

    def fixed(self) -> list[ReadableSpace]:
        """Return the schema and those spaces of tarantool/queue that the caller may read, by ascending number."""
        found: list[ReadableSpace] = []
        for name in _FIXED:
            space = self._fixed(name)
            if space is not None and (space.truncates or self._may_use(name)):
                found.append(space)
        return found

    def of_tube(self, tube: Tube) -> ReadableSpace | None:
        """Return the space of a tube, or None if the caller may not read it or clients cannot name it.

        Clients cannot name a tube whose name is not UTF-8 or is that of a fixed space, or whose number is too large.
        """
        if FIRST_NUMBER + int(tube.number) > LAST_NUMBER or not is_utf8(tube.name) or tube.name in _FIXED:
            return None
        return self._spaces.of_tube(tube) if self._may_use(tube.name) else None

    def by_name(self, name: bytes) -> ReadableSpace | None:
        if not self._may_use(name):
            return None
        fixed = self._fixed(name)
        if fixed is not None:
            return fixed
        tube = self._spaces.engine.tubes.get(name)
        return None if tube is None else self._spaces.of_tube(tube)

    def by_number(self, number: int) -> ReadableSpace | None:
        if number in schema.SPACES:
            return self._fixed(b"_vspace")
        if number in schema.INDEXES:
            return self._fixed(b"_vindex")
        if number < FIRST_NUMBER:
            for space in self.fixed():
                if space.number == number:
                    return space
            return None
        tube = tube_of_number(self._spaces.engine, number - FIRST_NUMBER)
        return None if tube is None else self.of_tube(tube)

    def _fixed(self, name: bytes) -> ReadableSpace | None:
        engine, caller = self._spaces.engine, self._caller
        if name == b"_vspace":
            return SchemaSpaces(engine, self)
        if name == b"_vindex":
            return SchemaIndexes(engine, self)
        if name == queue_spaces.QUEUE:
            return QueueSpace(engine, caller)
        if name == queue_spaces.CONSUMERS:
            return ConsumersSpace(engine, caller)
        if name == queue_spaces.TAKEN or name == queue_spaces.TAKEN_2:
            return TakenSpace(self._spaces.tasks, caller, name == queue_spaces.TAKEN_2)
        return None

    def _may_use(self, name: bytes) -> bool:
        return self._caller.any_tube or self._caller.may_use(name)


_INDEX_METHODS: Final = frozenset([b"select", b"get", b"count", b"len", b"min", b"max"])
_FIXED: Final = (
    *(b"_vspace", b"_vindex"),
    *(queue_spaces.QUEUE, queue_spaces.CONSUMERS, queue_spaces.TAKEN, queue_spaces.TAKEN_2),
)


class _IndexMethod:
    """One method of an index, such as `select`. The name of the space is an argument of `call`."""

    index: bytes  # The name of the index; empty for the primary index.
    method: bytes
    _spaces: SpaceFunctions

    def __init__(self, spaces: SpaceFunctions, index: bytes, method: bytes) -> None:
        self.index = index
        self.method = method
        self._spaces = spaces

    def call(self, caller: Caller, call: Request, owner: bytes, now: int) -> bytes | None:
        return self._spaces.run(caller, call, owner, self, now)


def _refuse_writing(caller: Caller, call: Request, name: bytes, now: i64) -> bytes | None:
    shown = name[:200].decode("utf-8", "backslashreplace")
    raise BoxError(
        ER_UNSUPPORTED,
        f"Penstock does not support writing space '{shown}': it is no database; use the methods of queue.tube.{shown}",
    )


def _refuse_pairs(caller: Caller, call: Request, name: bytes, now: i64) -> bytes | None:
    raise LuaError("pairs returns functions, which cannot be sent; use select with a limit and iterator GT")


class BoxFunctions(Functions):
    """The functions of the module `box`."""

    def method(self, owner: bytes, name: bytes) -> Method | None:
        """Return a function by its name, or None.

        For a function that needs a database, return one that refuses every call.
        """
        if name == b"cfg" or name.startswith((b"schema.", b"execute", b"sql.")):
            return Method(READ, _refuse_database)
        return super().method(owner, name)


def _refuse_database(caller: Caller, call: Request, name: bytes, now: i64) -> bytes | None:
    shown = call.name[:200].decode("utf-8", "backslashreplace")
    raise BoxError(
        ER_UNSUPPORTED,
        f"Penstock does not support {shown}: it is not a database, and its only spaces are its tubes; "
        "make a tube with queue.create_tube",
    )


def _options(call: Request) -> dict[object, object]:
    """Return the options of a call, which are the argument after the key."""
    return read_options(call.args[1]) if len(call.args) > 1 else {}
