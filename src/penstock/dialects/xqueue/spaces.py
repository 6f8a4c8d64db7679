"""The xqueue spaces of a node: `upgrade` makes them, and after a restart they are restored from their tubes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.core.errors import Unsupported
from penstock.core.limits import check_name
from penstock.core.tube import Tube
from penstock.dialects.xqueue.options import (
    AUTO_INCREMENT,
    FUNCTION,
    Options,
    XqueueError,
    as_map,
    changes,
    options_of,
    policy_of,
    read_options,
)
from penstock.dialects.xqueue.space import Space
from penstock.node.context import CommandContext


class Upgrade:
    """The result of an upgrade: the space, and the options that changed, with their values before and after."""

    def __init__(self, space: Space, changed: dict[str, list[Any]], missing: list[str]) -> None:
        self.space = space
        self.changed = changed  # Empty for a new space.
        self.missing = missing  # Fields of the space that a format with `accept_earlier` does not have.


class XqueueSpaces:
    """The xqueue spaces of a node, by name. The object of a space is made when the space is first used."""

    def __init__(self, context: CommandContext) -> None:
        self.context = context
        self._known: dict[bytes, Space] = {}

    def find(self, name: bytes) -> Space | None:
        """Return the space with a name, or None if there is no such tube or it is not a space."""
        tube = self.context.engine.tubes.get(name)
        known = self._known.get(name)
        if known is not None and known.tube is tube and tube.policy is known.policy:
            return known
        if tube is None:
            self.context.raise_if_elsewhere([name])
        options = None if tube is None else options_of(tube.policy)
        if tube is None or options is None:
            self._known.pop(name, None)
            return None
        return self._store(tube, options)

    def upgrade(self, name: bytes, given: object, now: int, accept_earlier: bool = False) -> Upgrade:
        """Make a space with the given options, or change the options of an existing one.

        If `accept_earlier` is set, the format can be an earlier one of the space. The space then keeps its fields.
        """
        check_name(name, "the name of a space")
        engine = self.context.engine
        engine.advance(now)
        there = self.find(name)
        before = None if there is None else there.options
        options = read_options(given, before, name.decode("utf-8", "backslashreplace"), accept_earlier)
        tube = engine.tubes.get(name)
        if tube is None:
            policy = policy_of(options)
            policy.check()
            self.context.check_new([name], policy)
            tube = engine.create_tube(name, policy, now)
        else:
            _check_switch(tube, before, options)
            engine.alter(tube, policy_of(options, tube.policy), now)
        space = self._store(tube, options)
        make_id = _function(given)
        if make_id is not None or options.id != FUNCTION:
            space.make_id = make_id
        format = as_map(given, "options").get("format")
        missing = [] if format is None else [field.name for field in options.format[len(format) :]]
        return Upgrade(space, {} if before is None else changes(before, options), missing)

    def _store(self, tube: Tube, options: Options) -> Space:
        known = self._known.get(tube.name)
        if known is None or known.tube is not tube:
            known = self._known[tube.name] = Space(self.context, tube, options)
        known.set_options(options)
        return known


def _check_switch(tube: Tube, before: Options | None, options: Options) -> None:
    """Raise an error if a tube cannot get these options. `before` are its old ones, or None if it is no space yet."""
    name = tube.name.decode("utf-8", "backslashreplace")
    if before is None:
        policy, wanted = tube.policy, policy_of(options)
        if (policy.type, policy.order, policy.keys) != (wanted.type, wanted.order, wanted.keys) or tube.total():
            raise Unsupported(f"'{name}' is a {policy.type} tube with jobs or options of its own; choose another name")
        return
    if not options.same_queue_fields(before):
        raise XqueueError(f"fields and primary_key of space '{name}' are fixed; make another space and move the tasks")
    if options.id != before.id and AUTO_INCREMENT in (options.id, before.id):
        # Numbers that auto_increment makes must not collide with existing keys.
        untyped = options.key_type() in ("any", "scalar") and tube.total() > 0
        if untyped or (options.id == AUTO_INCREMENT and tube.names):
            raise XqueueError(
                f"features.id of space '{name}' cannot be switched from {before.id} to {options.id} while it has tasks "
                "with such keys"
            )


def _function(given: object) -> Callable[[], Any] | None:
    """Return the function that makes primary keys, or None if the options `given` do not contain one."""
    made: Any = as_map(as_map(given, "options").get("features"), "opts.features").get("id")
    return made if callable(made) else None
