"""JOURNAL: read the log of this node. Followers read it by position, and a standby copies its files.

Files are read in separate threads, so a cold disk does not delay other clients. A follower that has read everything
waits for new rows. All waiting followers are in one table, so a sync only checks whether the table is empty.
Followers are served after the clients that wait for the sync.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, NamedTuple

from penstock.core.errors import NoJournal, OutOfRange
from penstock.core.limits import NEVER
from penstock.dialects.disque import parse_integer
from penstock.dialects.native.arguments import Words, excerpt
from penstock.journal.history.follower import BlockPage, EventPage, FramePage, LogFollower, beyond_end, check_range
from penstock.journal.identity import identity
from penstock.journal.segment import is_segment, is_snapshot, segment_name
from penstock.node.caller import Caller, check_tube, check_whole_server
from penstock.node.turn import SuspendedCommand
from penstock.server.commands.history_commands import write_event
from penstock.server.net.connection import Connection
from penstock.server.server import Server
from penstock.wire.errors import Refused
from penstock.wire.reply import Reply

# The default and the maximum bytes of frames in a reply to READ. A reply has at least one frame.
_BYTES: Final = 1024 * 1024
_BYTES_MAX: Final = 16 * 1024 * 1024

# The default and the maximum number of events in a reply to EVENTS.
_COUNT: Final = 100
_COUNT_MAX: Final = 1_000

# The default and the maximum number of blocks in a reply to DIGEST.
_BLOCKS_MAX: Final = 1_000


class _Query(NamedTuple):
    """A request for a part of the log."""

    position: int
    most: int  # Maximum bytes of frames, or number of events.
    decoded: bool
    names: bool = False
    placed: bool = False  # The reply includes the file and offset of the frames, which are then all of one file.
    tube: bytes | None = None


class JournalCommands:
    """The JOURNAL commands: HEAD, READ, EVENTS, DIGEST, FILES and FETCH."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._followers: dict[_Follow, None] = {}  # Followers that wait at the head of the log.
        self._wake_scheduled = False  # The event loop will wake followers soon.
        self._reads: dict[tuple[_Query, int], list[_Follow]] = {}  # Followers that wait for each running read.

    def head(self, caller: Connection, args: list[bytes], now: int) -> None:
        """Run JOURNAL HEAD: reply with the first and last positions of the log."""
        _check_own_client(caller)
        self._start(caller, _Head(self, caller), now)

    def read(self, caller: Connection, args: list[bytes], now: int) -> None:
        """Run JOURNAL READ position [BYTES n] [TIMEOUT duration] [NAMES] [PLACE]: reply with raw frames of the log.

        NAMES adds the names of tubes by number, and PLACE the file and the offset of the frames.
        """
        _check_every_tube(caller)
        position, words = _position(args[2]), Words(args, 3)
        most, names, placed, timeout_ms = _BYTES, False, False, 0
        while words.has_more():
            word = words.option()
            if word == b"BYTES":
                most = _within(words.integer(), "BYTES", _BYTES_MAX)
            elif word == b"TIMEOUT":
                timeout_ms = words.duration()
            elif word == b"NAMES":
                names = True
            elif word == b"PLACE":
                placed = True
            else:
                raise words.unknown(["BYTES", "TIMEOUT", "NAMES", "PLACE"])
        self._start(caller, _Follow(self, caller, _Query(position, most, False, names, placed), timeout_ms), now)

    def events(self, caller: Connection, args: list[bytes], now: int) -> None:
        """Run JOURNAL EVENTS position [COUNT n] [TIMEOUT duration] [TUBE tube]: reply with decoded events."""
        _check_own_client(caller)
        position, words = _position(args[2]), Words(args, 3)
        most, tube, timeout_ms = _COUNT, None, 0
        while words.has_more():
            word = words.option()
            if word == b"COUNT":
                most = _within(words.integer(), "COUNT", _COUNT_MAX)
            elif word == b"TIMEOUT":
                timeout_ms = words.duration()
            elif word == b"TUBE":
                tube = words.value()
                check_tube(caller, tube)
            else:
                raise words.unknown(["COUNT", "TIMEOUT", "TUBE"])
        if tube is None:
            _check_every_tube(caller)
        self._start(caller, _Follow(self, caller, _Query(position, most, True, tube=tube), timeout_ms), now)

    def digest(self, caller: Connection, args: list[bytes], now: int) -> None:
        """Run JOURNAL DIGEST from to [COUNT n]: reply with the digests of blocks of rows."""
        _check_every_tube(caller)
        start, end, most, words = _position(args[2]), _position(args[3]), _BLOCKS_MAX, Words(args, 4)
        while words.has_more():
            if words.option() != b"COUNT":
                raise words.unknown(["COUNT"])
            most = _within(words.integer(), "COUNT", _BLOCKS_MAX)
        log = self._server.host.require_journal().log
        check_range(start, end, log.written)
        self._start(caller, _Digest(self, caller, start, min(end, log.durable), most), now)

    def files(self, caller: Connection, args: list[bytes], now: int) -> None:
        """Run JOURNAL FILES: describe the log and list its files."""
        _check_every_tube(caller)
        self._start(caller, _Files(self, caller), now)

    def fetch(self, caller: Connection, args: list[bytes], now: int) -> None:
        """Run JOURNAL FETCH file offset [BYTES n]: reply with a piece of a file of the log."""
        _check_every_tube(caller)
        name, offset, most, words = args[2].decode("ascii", "replace"), parse_integer(args[3]), _BYTES, Words(args, 4)
        if not (is_segment(name) or is_snapshot(name)):
            raise OutOfRange(f"{excerpt(args[2])} is not a file of the log; JOURNAL FILES lists them")
        if not 0 <= offset < NEVER:
            raise OutOfRange("the offset must be 0 or more")
        while words.has_more():
            if words.option() != b"BYTES":
                raise words.unknown(["BYTES"])
            most = _within(words.integer(), "BYTES", _BYTES_MAX)
        self._start(caller, _Fetch(self, caller, name, offset, most), now)

    def _start(self, caller: Connection, parked: _JournalCommand, now: int) -> None:
        if not parked.step(caller, now):
            caller.busy = True

    # Called by the commands that wait

    @property
    def server(self) -> Server:
        return self._server

    def follow(self, follower: _Follow) -> None:
        """Let a follower wait until more of the log is durable."""
        journal = self._server.host.require_journal()
        journal.log.on_durable = self._schedule_wake
        self._followers[follower] = None
        if follower.position < journal.log.durable:
            # The log has grown before `on_durable` was set.
            self._schedule_wake()

    def unfollow(self, follower: _Follow) -> None:
        self._followers.pop(follower, None)

    def _schedule_wake(self) -> None:
        """Schedule `_wake` in the event loop, because more of the log is durable. Any thread can call this."""
        if self._followers and not self._wake_scheduled:
            self._wake_scheduled = True
            self._server.loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        """Continue the followers that have something to read, or all of them if the journal was switched off."""
        self._wake_scheduled = False
        journal = self._server.host.journal
        for follower in list(self._followers):
            if journal is None or follower.position < journal.log.durable:
                self.unfollow(follower)
                follower.go_on()

    def in_thread(self, work: Callable[[LogFollower], object], done: Callable[[asyncio.Future[object]], None]) -> None:
        """Run `work` on the log in a thread, then `done` in the event loop."""
        tap = self._server.host.require_journal().follower
        future = self._server.loop.run_in_executor(self._server.readers, work, tap)
        future.add_done_callback(done)

    def read_for(self, follower: _Follow, query: _Query, end: int) -> None:
        """Read a part of the log for a follower. Followers at the same position share one read."""
        key = (query, end)
        waiting = self._reads.setdefault(key, [])
        waiting.append(follower)
        if len(waiting) == 1:
            self.in_thread(lambda tap: _read(tap, query, end), lambda done: self._fetched(key, done))

    def _fetched(self, key: tuple[_Query, int], done: asyncio.Future[object]) -> None:
        error = done.exception()
        for follower in self._reads.pop(key):
            follower.found = error if error is not None else done.result()
            follower.go_on()


def _read(tap: LogFollower, query: _Query, end: int) -> FramePage | EventPage:
    if query.decoded:
        return tap.events(query.position, end, query.most, _BYTES, query.tube)
    return tap.read(query.position, end, query.most, query.names, query.placed)


class _JournalCommand(SuspendedCommand):
    """A command that waits for a thread which reads the log."""

    def __init__(self, commands: JournalCommands, caller: Connection) -> None:
        self._commands = commands
        self._caller = caller
        self.found: object = None

    def park(self) -> bool:
        """Suspend the command until `go_on` is called."""
        self._commands.server.turn.park(self._caller, self)
        return False

    def go_on(self) -> None:
        """Continue the command, because its result is available or more of the log can be read."""
        self._commands.server.turn.resume(self._caller, self)


class _Lookup(_JournalCommand):
    """A command that reads files before it replies."""

    def step(self, caller: Caller, now: int) -> bool:
        """Start to read the files in a thread. When the result is available, reply."""
        if self.found is None:
            self._commands.in_thread(self.read, self._looked_up)
            return self.park()
        if isinstance(self.found, BaseException):
            raise self.found
        self.answer(caller.reply)
        return True

    def _looked_up(self, done: asyncio.Future[object]) -> None:
        self.found = done.exception() or done.result()
        self.go_on()

    def read(self, tap: LogFollower) -> object:
        """Read files and return the result. A thread calls this."""
        raise NotImplementedError

    def answer(self, reply: Reply) -> None:
        """Write the reply from the result."""
        raise NotImplementedError


class _Files(_Lookup):
    """Runs JOURNAL FILES."""

    def read(self, tap: LogFollower) -> object:
        disk = self._commands.server.host.disk
        assert disk is not None
        return identity(disk), tap.files()

    def answer(self, reply: Reply) -> None:
        """Write the id of the node, the secret key for its job ids, the positions, and the files."""
        assert isinstance(self.found, tuple)
        who, files = self.found
        log = self._commands.server.host.require_journal().log
        texts = {b"node": who.node, b"log": who.of_log, b"key": who.key.hex()}
        numbers = {b"node_epoch": who.node_epoch, b"durable": log.durable - 1, b"written": log.written - 1}
        reply.map(len(texts) + len(numbers) + 1)
        for name, word in texts.items():
            reply.bulk(name)
            reply.bulk(word.encode())
        for name, number in numbers.items():
            reply.bulk(name)
            reply.integer(number)
        reply.bulk(b"files")
        reply.array(len(files))
        for file in files:
            # The segment that is being written is preallocated, so its file is larger than its content.
            is_written_to = file.name == segment_name(log.segment)
            reply.array(3)
            reply.bulk(file.name.encode())
            reply.integer(log.writer.offset if is_written_to else file.bytes)
            reply.integer(1 if file.bodies else 0)


class _Fetch(_Lookup):
    """Runs JOURNAL FETCH."""

    def __init__(self, commands: JournalCommands, caller: Connection, name: str, offset: int, most: int) -> None:
        super().__init__(commands, caller)
        self._place = (name, offset, most)

    def read(self, tap: LogFollower) -> object:
        return tap.fetch(*self._place)

    def answer(self, reply: Reply) -> None:
        assert isinstance(self.found, bytes)
        reply.bulk(self.found)


class _Digest(_Lookup):
    """Runs JOURNAL DIGEST."""

    def __init__(self, commands: JournalCommands, caller: Connection, start: int, end: int, most: int) -> None:
        super().__init__(commands, caller)
        self._query = (start, end, most)

    def read(self, tap: LogFollower) -> object:
        return tap.digests(*self._query)

    def answer(self, reply: Reply) -> None:
        """Write the position to continue from, and the blocks."""
        assert isinstance(self.found, BlockPage)
        reply.array(2)
        reply.integer(self.found.next)
        reply.array(len(self.found.blocks))
        for block in self.found.blocks:
            reply.array(5)
            reply.integer(block.first)
            reply.integer(block.end)
            reply.integer(block.rows)
            reply.bulk(block.rows_sha256.hex().encode())
            if block.bodies_sha256 is None:
                reply.null()
            else:
                reply.bulk(block.bodies_sha256.hex().encode())


class _Head(_Lookup):
    """Runs JOURNAL HEAD."""

    def read(self, tap: LogFollower) -> object:
        return tap.first(self._commands.server.host.require_journal().log.durable)

    def answer(self, reply: Reply) -> None:
        log = self._commands.server.host.require_journal().log
        positions = {
            b"epoch": log.epoch,
            b"first": self.found,
            b"durable": log.durable - 1,
            b"written": log.written - 1,
        }
        reply.map(1 + len(positions))
        reply.bulk(b"node")
        # Positions belong to a log. After CLUSTER RESET HARD the log keeps the id that its node had before.
        reply.bulk(log.node.encode())
        for name, number in positions.items():
            assert isinstance(number, int)
            reply.bulk(name)
            reply.integer(number)


class _Follow(_JournalCommand):
    """Runs JOURNAL READ and JOURNAL EVENTS: reads the log, starting at a position. At its end, waits for more."""

    def __init__(self, commands: JournalCommands, caller: Connection, query: _Query, timeout_ms: int) -> None:
        super().__init__(commands, caller)
        self._query = query
        self._timer: asyncio.TimerHandle | None = None
        self._is_over = timeout_ms == 0  # The timeout has passed.
        if not self._is_over and timeout_ms != NEVER:
            # One millisecond is added, because the loop's time is that of the start of its round, and a timeout must
            # not end early.
            self._timer = commands.server.loop.call_later((timeout_ms + 1) / 1000, self.stop_waiting)

    @property
    def position(self) -> int:
        return self._query.position

    def step(self, caller: Caller, now: int) -> bool:
        """Reply if there is a result or the timeout has passed. Otherwise start to read or to wait."""
        found = self.found
        if isinstance(found, BaseException):
            self.cancel()
            raise found
        if isinstance(found, EventPage) and not found.events and not self._is_over:
            # No event matched the filter, but there may be more events.
            self._query = self._query._replace(position=found.next)
            self.found = found = None
        if found is None and not self._is_at_end():
            return self.park()
        self.cancel()
        self._answer(caller.reply, found)
        return True

    def _is_at_end(self) -> bool:
        """Return True if the log has nothing more to read and the timeout has passed.

        Otherwise start to read, or to wait for more, and return False.
        """
        journal = self._commands.server.host.journal
        if journal is None:
            self.cancel()
            raise NoJournal("this server has no journal, so it has no history; start it with appendonly yes")
        log, position = journal.log, self._query.position
        if position > log.written:
            self.cancel()
            raise beyond_end(position, log.written)
        if position < log.durable:
            self._commands.read_for(self, self._query, log.durable)
        elif self._is_over:
            return True
        else:
            self._commands.follow(self)
        return False

    def _answer(self, reply: Reply, found: object) -> None:
        if isinstance(found, FramePage):
            reply.array(2 + (2 if self._query.placed else 0) + (1 if self._query.names else 0))
            reply.integer(found.next)
            reply.bulk(found.data)
            if self._query.placed:
                reply.bulk(found.place[0].encode())
                reply.integer(found.place[1])
            self._write_names(reply, found.names)
        elif isinstance(found, EventPage):
            reply.array(2)
            reply.integer(found.next)
            reply.array(len(found.events))
            for event in found.events:
                write_event(reply, event)
        elif self._query.decoded:
            self._answer(reply, EventPage(self._query.position))
        else:
            self._answer(reply, FramePage(self._query.position))

    def _write_names(self, reply: Reply, names: dict[int, bytes]) -> None:
        if self._query.names:
            reply.map(len(names))
            for number, name in names.items():
                reply.integer(number)
                reply.bulk(name)

    def stop_waiting(self) -> None:
        """End the wait and reply, because the timeout has passed. A read that is running is completed first."""
        self._is_over = True
        if self in self._commands._followers:
            self._commands.unfollow(self)
            self.go_on()

    def cancel(self) -> None:
        """Stop waiting, because the command has ended or its client has left."""
        self._commands.unfollow(self)
        if self._timer is not None:
            self._timer.cancel()


def _position(word: bytes) -> int:
    position = parse_integer(word)
    if not 1 <= position < NEVER:
        raise OutOfRange(f"{excerpt(word)} is not a position of the log; positions start at 1")
    return position


def _within(number: int, what: str, most: int) -> int:
    if not 1 <= number <= most:
        raise OutOfRange(f"{what} must be 1 to {most}")
    return number


def _check_own_client(caller: Connection) -> None:
    """Raise an error if the client is connected to another node.

    Each node has its own journal, and no node forwards these commands.
    """
    if caller.entry_node:
        check_whole_server(caller)


def _check_every_tube(caller: Connection) -> None:
    _check_own_client(caller)
    if not caller.any_tube:
        raise Refused(
            b"NOPERM the journal contains all queues, and this user may not use all of them; use EVENTS with TUBE"
        )
