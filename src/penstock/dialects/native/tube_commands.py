"""The TUBE commands: TUBE CREATE, INFO, STATS, LIST and others.

The options of a tube have the names of the Python API (`options.py`), with hyphens.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Final

from mypy_extensions import i64

from penstock.core import states as s
from penstock.core import views
from penstock.core.commands.key_counts import check_summary_count
from penstock.core.commands.scans import Emptying
from penstock.core.engine import Engine
from penstock.core.errors import BadSyntax, OutOfRange, Unsupported
from penstock.core.limits import NEVER, check_count
from penstock.core.policy import TubePolicy
from penstock.core.statistics.histogram import Histogram
from penstock.core.tube import Tube
from penstock.core.tube_patterns import Glob
from penstock.dialects.native.arguments import Words, excerpt, parse_cursor, read_driver_options, read_json
from penstock.dialects.native.permissions import check_policy
from penstock.dialects.native.tube_summaries import (
    SUMMARY_COUNT_DEFAULT,
    CausesReply,
    KeysReply,
)
from penstock.dialects.pages import SCAN_SLICE, PagedReply
from penstock.node.caller import SLICE, Caller, SlicedCommand, check_tube
from penstock.node.context import CommandContext
from penstock.options import changed_policy, new_policy, policy_from
from penstock.wire.reply import Reply

# The type of an option's value.
_TIME: Final = 0
_NUMBER: Final = 1
_TEXT: Final = 2
_YES_NO: Final = 3

_OPTIONS: Final[dict[bytes, tuple[str, int]]] = {
    b"TTL": ("ttl", _TIME),
    b"TTR": ("ttr", _TIME),
    b"PRIORITY": ("priority", _NUMBER),
    b"TTL-WHILE-TAKEN": ("ttl_while_taken", _TEXT),
    b"KEY-LIMIT": ("key_limit", _NUMBER),
    b"FAIR": ("fair", _YES_NO),
    b"CAPACITY": ("capacity", _NUMBER),
    b"CAPACITY-BYTES": ("capacity_bytes", _NUMBER),
    b"RETRY": ("retry", _TEXT),
    b"MAX-DELIVERIES": ("max_deliveries", _NUMBER),
    b"DEAD-LETTER": ("dead_letter", _TEXT),
    b"KEEP": ("keep", _YES_NO),
    b"ZOMBIE": ("zombie", _TIME),
    b"DEDUP-WINDOW": ("dedup_window", _TIME),
    b"DEDUP-COUNT": ("dedup_count", _NUMBER),
    b"TEMPORARY": ("temporary", _YES_NO),
}
# For each word of TUBE PAUSE, whether puts are refused and whether takes are suspended.
_PAUSES: Final[dict[bytes, tuple[bool, bool]]] = {
    b"none": (False, False),
    b"in": (True, False),
    b"out": (False, True),
    b"all": (True, True),
}

_COUNT_DEFAULT: Final = 100

# The estimated bytes of a tube's statistics in a reply, without its name.
_STATS_BYTES: Final = 520

# TUBE SCAN POLICY: the estimated bytes of a tube in a reply, without its name and policy. A page ends after this many
# different policies, because writing one takes about 20 microseconds. Most tubes share a few policies.
_INFO_BYTES: Final = 150
_POLICIES_MAX: Final = 100

# Matching costs the length of the pattern times the length of the name. After this much work a scan stops and returns
# its cursor.
_PATTERN_BYTES_MAX: Final = 256
_MATCH_WORK_MAX: Final = 1_000_000

_OPTION_WORDS: Final = [word.decode() for word in _OPTIONS]
_POLICY_FIELDS: Final = [field.name for field in dataclasses.fields(TubePolicy)]


class TubeCommands:
    """The TUBE commands."""

    def __init__(self, context: CommandContext) -> None:
        self.context = context
        self._engine: Engine = context.engine

    def create(self, caller: Caller, args: list[bytes], now: i64) -> None:
        """Run TUBE CREATE name [TYPE type] [option value ...] [OPTIONS json] [POLICY json].

        Create a tube, or reply with the existing one.
        """
        name = args[2]
        check_tube(caller, name)
        base, options, for_driver = _read_policy(Words(args, 3))
        tube = self._engine.tubes.get(name)
        if tube is None or base is not None or options or for_driver is not None:
            driven = self._driven_policy(base, {**options, **(for_driver or {})})
            if driven is None and for_driver is not None:
                raise Unsupported("OPTIONS are only for tubes with a driver, and this type has none")
            policy = self._checked(caller, new_policy(base, options)) if driven is None else driven
            if tube is None:
                self.context.check_new([name], policy)
            tube = self._engine.create_tube(name, policy, now)
        self._write_info(caller.reply, tube)

    def info(self, caller: Caller, args: list[bytes], now: i64) -> None:
        """Run TUBE INFO name: reply with the policy of a tube."""
        self._write_info(caller.reply, self._tube(caller, args[2], now))

    def stats(self, caller: Caller, args: list[bytes], now: i64) -> None:
        """Run TUBE STATS name: reply with the number of jobs in each state, and with the counters of a tube."""
        write_stats(caller.reply, self._tube(caller, args[2], now), now, True)

    def names(self, caller: Caller, args: list[bytes], now: i64) -> None:
        """Run TUBE LIST: reply with the names of all tubes."""
        self.context.run_sliced(caller, _TubeNames(self._engine), now)

    def scan(self, caller: Caller, args: list[bytes], now: i64) -> None:
        """Run TUBE SCAN cursor [COUNT n] [MATCH pattern] [FLOW | POLICY]: reply with some tubes and the next cursor.

        The reply has the statistics of each tube, with FLOW also its flow. With POLICY, it has for each tube the
        reply of TUBE INFO instead.
        """
        scan = _Scan(self._engine, parse_cursor(args[2]))
        words = Words(args, 3)
        while words.has_more():
            word = words.option()
            if word == b"COUNT":
                scan.count = min(check_count(words.integer(), "COUNT"), SLICE)
            elif word == b"MATCH":
                scan.match(words.value())
            elif word == b"POLICY":
                scan.shows_policies = True
            elif word == b"FLOW":
                scan.shows_flow = True
            else:
                raise words.unknown(["COUNT", "MATCH", "FLOW", "POLICY"])
        self._engine.advance(now)
        self.context.run_sliced(caller, scan, now)

    def keys(self, caller: Caller, args: list[bytes], now: i64) -> None:
        """Run TUBE KEYS name [COUNT n]: reply with the keys of a tube that have the most ready jobs."""
        count = _summary_count(Words(args, 3))
        self.context.run_sliced(caller, KeysReply(self._tube(caller, args[2], now), count), now)

    def causes(self, caller: Caller, args: list[bytes], now: i64) -> None:
        """Run TUBE CAUSES name [COUNT n]: reply with the causes of failure that most buried jobs of a tube have."""
        count = _summary_count(Words(args, 3))
        self.context.run_sliced(caller, CausesReply(self.context, self._tube(caller, args[2], now), count), now)

    def alter(self, caller: Caller, args: list[bytes], now: i64) -> None:
        """Run TUBE ALTER name [TYPE type] [option value ...] [POLICY json]: change the policy of a tube."""
        tube = self._tube(caller, args[2], now)
        base, options, for_driver = _read_policy(Words(args, 3))
        if for_driver is not None:
            raise Unsupported("OPTIONS are read by the driver when a tube is created, and cannot be altered")
        self._engine.alter(tube, self._checked(caller, changed_policy(args[2], tube.policy, base, options)), now)
        self._write_info(caller.reply, tube)

    def pause(self, caller: Caller, args: list[bytes], now: i64) -> None:
        """Run TUBE PAUSE name in|out|all|none: refuse puts (in), suspend takes (out), both, or neither."""
        ways = _PAUSES.get(args[3].lower())
        if ways is None:
            raise BadSyntax(f"TUBE PAUSE needs in, out, all or none, not {excerpt(args[3])}")
        self._engine.pause(self._tube(caller, args[2], now), ways[0], ways[1], now)
        caller.reply.ok()

    def release(self, caller: Caller, args: list[bytes], now: i64) -> None:
        """Run TUBE RELEASE name: return all taken jobs to the tube, and reply with their number."""
        self.context.run_sliced(caller, _Releasing(self._engine, self._tube(caller, args[2], now)), now)

    def truncate(self, caller: Caller, args: list[bytes], now: i64) -> None:
        """Run TUBE TRUNCATE name: delete all jobs of a tube, and reply with their number."""
        self.context.run_sliced(caller, _Emptying(self._engine, self._tube(caller, args[2], now), False), now)

    def drop(self, caller: Caller, args: list[bytes], now: i64) -> None:
        """Run TUBE DROP name: delete a tube and its jobs."""
        tube = self._tube(caller, args[2], now)
        self._engine.check_drop(tube, now)
        self.context.run_sliced(caller, _Emptying(self._engine, tube, True), now)

    def _driven_policy(self, base: str | TubePolicy | None, options: dict[str, object]) -> TubePolicy | None:
        """Return the policy of a new tube whose type is a driver, or None if the type is not a driver."""
        return self._engine.drivers.policy(base, options) if isinstance(base, str) else None

    def _checked(self, caller: Caller, policy: TubePolicy) -> TubePolicy:
        """Return the policy if the caller may give it to a tube. Raise an error otherwise."""
        policy.check()
        check_policy(caller, policy)
        return policy

    def _tube(self, caller: Caller, name: bytes, now: i64) -> Tube:
        """Return the tube with a name, after running its due timers."""
        check_tube(caller, name)
        self._engine.advance(now)
        return self.context.tube(name)

    def _write_info(self, reply: Reply, tube: Tube) -> None:
        _write_info(reply, tube, _encode_policy(tube.policy, reply.resp3))


def _summary_count(words: Words) -> int:
    """Read the option COUNT of a command that summarises a tube."""
    count = SUMMARY_COUNT_DEFAULT
    while words.has_more():
        if words.option() != b"COUNT":
            raise words.unknown(["COUNT"])
        count = check_summary_count(words.integer())
    return count


def _read_policy(
    words: Words,
) -> tuple[str | TubePolicy | None, dict[str, Any], dict[str, object] | None]:
    """Parse the options of TUBE CREATE or TUBE ALTER.

    Return the value of TYPE or POLICY, the tube options by name, and the value of OPTIONS.
    """
    base: str | TubePolicy | None = None
    options: dict[str, Any] = {}
    for_driver: dict[str, object] | None = None
    while words.has_more():
        word = words.option()
        if word == b"TYPE":
            base = words.text()
        elif word == b"POLICY":
            base = policy_from(read_json(words.value(), "a policy"))
            if base.driven:
                raise Unsupported("POLICY cannot set a driver; name the driver with TYPE")
        elif word == b"OPTIONS":
            for_driver = read_driver_options(words.value())
        elif not _read_option(words, word, options):
            raise words.unknown([*_OPTION_WORDS, "TYPE", "OPTIONS", "POLICY"])
    return base, options, for_driver


def _read_option(words: Words, word: bytes, options: dict[str, Any]) -> bool:
    """Read the value of the tube option `word` into `options`. Return False if there is no such option."""
    found = _OPTIONS.get(word)
    if found is None:
        return False
    name, kind = found
    if kind == _TIME:
        ms = words.duration()
        # Whole seconds stay integers, because a fraction of a very long time is not exact.
        options[name] = None if ms == NEVER else ms / 1000 if ms % 1000 else ms // 1000
    elif kind == _NUMBER:
        options[name] = words.integer()
    elif kind == _TEXT:
        options[name] = words.text()
    else:
        options[name] = words.boolean()
    return True


def write_stats(reply: Reply, tube: Tube, now: i64, counts: bool, flow: bool = False) -> None:
    """Write the statistics of a tube. If `counts` is set, include the counts of events and transitions.

    If `flow` is set, include how many jobs entered the tube, were taken, were acked and failed.
    """
    reply.map(14 + (4 if counts else 0) + (1 if flow else 0))
    _write_head(reply, tube)
    states = views.states(tube)
    for state in range(1, s.STATES_COUNT):
        _write_pair(reply, s.STATE_NAMES[state].encode(), states[state])
    reply.bulk(b"oldest-ms")
    oldest = tube.oldest_ready()
    if oldest == NEVER:
        reply.null()
    else:
        reply.integer(max(now - oldest, 0))
    waiting = tube.take_line.length
    for line in tube.key_lines.values():
        waiting += line.length
    _write_pair(reply, b"waiting", waiting)
    _write_pair(reply, b"keys", 0 if tube.keys is None else len(tube.keys))
    _write_pauses(reply, tube)
    if counts:
        _write_counts(reply, tube)
    if flow:
        reply.bulk(b"flow")
        reply.map(4)
        for name, count in views.flow(tube):
            _write_pair(reply, name.encode(), count)


def _write_counts(reply: Reply, tube: Tube) -> None:
    happened = [(name, count) for name, count in zip(s.EVENT_NAMES, views.events(tube, True), strict=True) if count]
    reply.bulk(b"events")
    reply.map(len(happened))
    for name, count in happened:
        _write_pair(reply, name.encode(), count)
    names = views.TRANSITION_NAMES
    went = views.transitions(tube, True)
    reply.bulk(b"transitions")
    reply.map(len(went))
    for (source, target), count in went.items():
        _write_pair(reply, f"{names[source]}-{names[target]}".encode(), count)
    _write_durations(reply, b"waits", tube.waits)
    _write_durations(reply, b"runs", tube.runs)


def _write_durations(reply: Reply, name: bytes, durations: Histogram | None) -> None:
    """Write a histogram: the sum of the durations, and the counts of its buckets without zeros at the end."""
    buckets = [] if durations is None else durations.used_buckets()
    reply.bulk(name)
    reply.map(2)
    _write_pair(reply, b"total-ms", 0 if durations is None else durations.total)
    reply.bulk(b"buckets")
    reply.array(len(buckets))
    for count in buckets:
        reply.integer(count)


def _write_head(reply: Reply, tube: Tube) -> None:
    reply.bulk(b"name")
    reply.bulk(tube.name)
    reply.bulk(b"type")
    reply.bulk(tube.policy.type.encode())


def _write_pauses(reply: Reply, tube: Tube) -> None:
    _write_pair(reply, b"paused-in", 1 if tube.paused_in else 0)
    _write_pair(reply, b"paused-out", 1 if tube.paused_out else 0)


def _write_pair(reply: Reply, name: bytes, value: int) -> None:
    reply.bulk(name)
    reply.integer(value)


def _write_info(reply: Reply, tube: Tube, policy: bytes) -> None:
    """Write the reply of TUBE INFO. `policy` is the encoded policy of the tube."""
    reply.map(7)
    _write_head(reply, tube)
    reply.bulk(b"policy")
    reply.raw(policy)
    _write_pauses(reply, tube)
    _write_pair(reply, b"jobs", tube.total())
    _write_pair(reply, b"body-bytes", tube.body_bytes)


def _encode_policy(policy: TubePolicy, resp3: bool) -> bytes:
    """Return every field of a policy under its name. NEVER is written as null, and an unset number as -1."""
    reply = Reply()
    reply.resp3 = resp3
    reply.map(len(_POLICY_FIELDS))
    for name in _POLICY_FIELDS:
        value: Any = getattr(policy, name)
        reply.bulk(name.encode())
        if value == NEVER:
            reply.null()
        elif isinstance(value, int):
            reply.integer(int(value))
        elif isinstance(value, str):
            reply.bulk(value.encode())
        else:
            reply.bulks([each.encode() for each in value])
    return reply.take()


class _TubeNames(PagedReply):
    """Runs TUBE LIST: replies with the names of all tubes that a caller may use, in the order of their creation."""

    def __init__(self, engine: Engine) -> None:
        super().__init__()
        self._engine = engine
        self._cursor = 0

    def scan(self, caller: Caller, now: i64) -> bool:
        page = self.page(caller)
        tubes, self._cursor = self._engine.scan_tubes(self._cursor, SCAN_SLICE)
        for tube in tubes:
            if caller.any_tube or caller.may_use(tube.name):
                if not self.fits(page, len(tube.name), True):
                    self.add(page)
                    page = self.page(caller)
                page.bulk(tube.name)
                self.found += 1
        self.add(page)
        return self._cursor == 0


class _Scan(PagedReply):
    """Runs TUBE SCAN: examines one slice of the tubes, and replies with the next cursor and the tubes that match."""

    def __init__(self, engine: Engine, cursor: int) -> None:
        super().__init__()
        self.count: int = _COUNT_DEFAULT
        self.shows_policies = False
        self.shows_flow = False
        self._policies: dict[TubePolicy, bytes] = {}  # The policies of this page, encoded.
        self._engine = engine
        self._cursor = cursor
        self._pattern: Glob | None = None
        self._pattern_length = 0

    def match(self, pattern: bytes) -> None:
        """Set the pattern that names of tubes must match. Names are bytes, and each byte counts as one character."""
        if len(pattern) > _PATTERN_BYTES_MAX:
            raise OutOfRange(f"a pattern must have at most {_PATTERN_BYTES_MAX} bytes")
        self._pattern = Glob(pattern.decode("latin-1"))
        self._pattern_length = len(pattern)

    def write_head(self, reply: Reply) -> None:
        reply.array(2)
        reply.bulk(b"%d" % self._cursor)
        reply.array(self.found)

    def scan(self, caller: Caller, now: i64) -> bool:
        page = self.page(caller)
        work = 0
        tubes, self._cursor = self._engine.scan_tubes(self._cursor, self.count)
        for tube in tubes:
            if not caller.any_tube and not caller.may_use(tube.name):
                continue
            if work > _MATCH_WORK_MAX or not self.fits(page, _STATS_BYTES + len(tube.name), False):
                self._cursor = tube.number
                break
            work += len(tube.name) * self._pattern_length
            if self._pattern is None or self._pattern.matches(tube.name.decode("latin-1")):
                if not self.shows_policies:
                    write_stats(page, tube, now, False, self.shows_flow)
                elif not self._add_info(page, tube):
                    self._cursor = tube.number
                    break
                self.found += 1
        self.add(page)
        return True

    def _add_info(self, page: Reply, tube: Tube) -> bool:
        """Write the reply of TUBE INFO to the page. Return False if the page is full."""
        policy = self._policies.get(tube.policy)
        if policy is None:
            if len(self._policies) == _POLICIES_MAX:
                return False
            policy = self._policies[tube.policy] = _encode_policy(tube.policy, page.resp3)
        if not self.fits(page, _INFO_BYTES + len(tube.name) + len(policy), False):
            return False
        _write_info(page, tube, policy)
        return True


class _Releasing(SlicedCommand):
    """Runs TUBE RELEASE: releases all taken jobs of a tube, starting with the last in the tube's list of taken jobs.

    Removing the last job moves no other job in the list, so no job is handled twice.
    """

    def __init__(self, engine: Engine, tube: Tube) -> None:
        self._engine = engine
        self._tube = tube
        self._left: int = len(tube.taken)
        self._released = 0

    def step(self, caller: Caller, now: i64) -> bool:
        tube = self._tube
        end = min(self._left, len(tube.taken))
        self._left = max(end - SLICE, 0)
        if not tube.dropped:
            self._released += self._engine.release_many(tube, tube.taken.items[self._left : end], now)
        if self._left > 0:
            return False
        caller.reply.integer(self._released)
        return True


class _Emptying(SlicedCommand):
    """Runs TUBE TRUNCATE and TUBE DROP: removes all jobs of the tube in slices. TUBE DROP then removes the tube.

    TRUNCATE removes as many jobs as the tube had at the start, so that it ends even if jobs keep arriving.
    """

    def __init__(self, engine: Engine, tube: Tube, drops: bool) -> None:
        self._engine = engine
        self._tube = tube
        self._drops = drops
        self._emptying = Emptying(engine, tube)

    def step(self, caller: Caller, now: i64) -> bool:
        if not self._emptying.step(SLICE, now):
            return False
        if not self._drops:
            caller.reply.integer(self._emptying.removed)
            return True
        if not self._tube.dropped:
            self._engine.drop(self._tube, now)
        caller.reply.ok()
        return True
