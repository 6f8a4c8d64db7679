"""xqueue over CALL: `xqueue.upgrade(space, options)`, and `box.space.NAME:method` for spaces that `upgrade` made.

`box.space.NAME:format` is Tarantool's method, which reads and changes the format of a space.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from penstock.core.waits import Waiting
from penstock.dialects.tarantool.calls import (
    FunctionFamily,
    Method,
    Pending,
    SlicedCall,
    argument,
    denied,
    run_sliced,
)
from penstock.dialects.xqueue.options import XqueueError, as_upgrade_options, format_of, lua_type
from penstock.dialects.xqueue.space import METHODS, Steps, Waits
from penstock.dialects.xqueue.spaces import XqueueSpaces
from penstock.node.caller import ADMIN, READ, WRITE, Caller, check_tube
from penstock.wire.errors import NoProcedure
from penstock.wire.iproto import Request
from penstock.wire.msgpack import NO_VALUES, pack, unpack

# Methods that change nothing.
READING_METHODS: Final = ("get", "select", "count", "len", "wait", "stats", "queue_stats")
_ADMIN_METHODS: Final = ("truncate",)
# Methods that work in the same way for all spaces.
_COMMON_METHODS: Final = ("select", "count", "len")


class XqueueFunctions(FunctionFamily):
    """The functions of the module `xqueue`. There is one: `xqueue.upgrade`."""

    def __init__(self, spaces: XqueueSpaces) -> None:
        self._spaces = spaces
        self._upgrade = Method(ADMIN, self.upgrade)

    def method(self, owner: bytes, name: bytes) -> Method | None:
        return self._upgrade if name == b"upgrade" else None

    def upgrade(self, caller: Caller, call: Request, _: bytes, now: int) -> bytes | None:
        """Run xqueue.upgrade(space, {format, fields, features, primary_key, tube_stats}).

        Create or change a space. Return its options, and the options that changed.
        """
        space = argument(call, 0)
        if isinstance(space, str):
            space = space.encode("utf-8", "surrogateescape")
        if not isinstance(space, bytes):
            raise XqueueError(f"space must be the name of a space, not {lua_type(space)}")
        check_tube(caller, space)
        made = self._spaces.upgrade(space, argument(call, 1), now)
        return pack([as_upgrade_options(made.space.options), made.changed])


class SpaceMethods(FunctionFamily):
    """The functions `box.space.NAME:method` of xqueue spaces. `others` has the functions of other spaces."""

    def __init__(self, spaces: XqueueSpaces, others: FunctionFamily) -> None:
        self._spaces = spaces
        self._others = others
        self._methods: dict[bytes, Method] = {}
        for name in METHODS:
            if name in _COMMON_METHODS:
                continue
            group = READ if name in READING_METHODS else ADMIN if name in _ADMIN_METHODS else WRITE
            self._methods[name.encode()] = Method(group, _SpaceMethod(spaces, others, name).call)
        self._methods[b"format"] = Method(READ, self._format)

    def method(self, owner: bytes, name: bytes) -> Method | None:
        return self._methods.get(name) or self._others.method(owner, name)

    def _format(self, caller: Caller, call: Request, owner: bytes, now: int) -> bytes | None:
        """Run format() or format(fields): return the fields of a space, or change them as `xqueue.upgrade` does."""
        space = self._spaces.find(owner)
        if space is None:
            other = self._others.method(owner, b"format")
            assert other is not None
            return other.function(caller, call, owner, now)
        fields = argument(call, 0)
        if fields is None:
            return pack([format_of(space.options)])
        if ADMIN & caller.groups == 0:
            raise denied(caller, call.name)
        self._spaces.upgrade(owner, {"format": fields}, now)
        return NO_VALUES

    def index_method(self, index: bytes, name: bytes) -> Method | None:
        return self._others.index_method(index, name)


class _SpaceMethod:
    """One method of xqueue spaces, such as `put`. The name of the space is an argument of `call`."""

    def __init__(self, spaces: XqueueSpaces, others: FunctionFamily, name: str) -> None:
        self._spaces = spaces
        self._others = others
        self._name = name

    def call(self, caller: Caller, call: Request, owner: bytes, now: int) -> bytes | None:
        """Call the method `_name` of the space `owner`. If `owner` is not an xqueue space, `_others` has the method."""
        space = self._spaces.find(owner)
        if space is None:
            other = self._others.method(owner, self._name.encode())
            if other is None:
                raise NoProcedure(call.name)
            return other.function(caller, call, owner, now)
        pending = _Waiting(caller, call)
        method = space.method(self._name)
        assert method is not None
        outcome = method(caller, [unpack(each) for each in call.args], now, pending)
        if isinstance(outcome, Waits):
            pending.waits = outcome
            pending.begin(self._spaces.context, outcome.wait)
            return None
        if isinstance(outcome, Steps):
            return run_sliced(self._spaces.context, caller, _Stepping(call, outcome), now)
        return pack(outcome)


class _Waiting(Pending):
    waits: Waits

    def result(self, wait: Waiting, now: i64) -> bytes:
        return pack(self.waits.finish(wait, now))


class _Stepping(SlicedCall):
    def __init__(self, call: Request, steps: Steps) -> None:
        super().__init__(call)
        self._steps = steps

    def run_slice(self, caller: Caller, now: i64) -> bytes | None:
        results = self._steps.step(now)
        return None if results is None else pack(results)
