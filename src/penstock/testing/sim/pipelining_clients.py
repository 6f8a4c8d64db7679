"""Clients of the workload `tubes` that send several commands before they read the replies.

The calls of an IPROTO client run at the same time: several of them can wait, and their replies come in any order. Each
reply has the number of its call. The commands of a RESP client run one after the other.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.testing.sim.clients import Session
from penstock.testing.sim.history import DONE, REFUSED, UNKNOWN, Violation
from penstock.testing.sim.schedule import MS, SECOND, spread
from penstock.testing.sim.tube_clients import KEYS, TubeConsumer
from penstock.testing.sim.tube_history import Finish, Lease, Put, Take
from penstock.testing.sim.tubes import TubeKind
from penstock.wire import iproto
from penstock.wire.iproto import Request
from penstock.wire.msgpack import pack
from penstock.wire.resp_client import ErrorReply

_COMMANDS_MAX = 6
_TIMEOUT = 5 * SECOND


class PipelinedCommand:
    """One command of a pipeline, in both protocols, and the handler of its reply."""

    def __init__(
        self, words: list[bytes], name: str, args: list[object], then: Callable[[object | None, int], None]
    ) -> None:
        self.words = words
        self.name = name
        self.args = args
        self.then = then


class PipeliningClient(TubeConsumer):
    """Puts, takes and acks jobs. It sends several commands at a time."""

    def begin(self) -> None:
        """Send the first commands after a pause."""
        self.kinds = [kind for kind in self.kinds if (kind.over_iproto or not self.is_iproto) and not kind.once]
        self._outstanding: dict[int, PipelinedCommand] = {}  # By the number of the command.
        self._put_count = 0
        if self.kinds:
            super().begin()

    def _act(self) -> None:
        if self.careful:
            super()._act()
            return
        commands = [self._command() for _ in range(self.random.randint(2, _COMMANDS_MAX))]
        session, node = self._session, self.node
        assert session is not None and node is not None
        self._asked += 1
        asked = self._asked
        self._on_answer = lambda answer, local, sent: self._lost()
        packets: list[list[bytes]] = []
        for command in commands:
            self._syncs += 1
            self._outstanding[self._syncs] = command
            packets.append([self._packet(command, self._syncs)] if self.is_iproto else command.words)

        def arrive() -> None:
            for packet in packets:
                node.request(session, packet)

        self.world.schedule.after(spread(self.random, 200, SECOND), arrive)
        self.world.schedule.after(_TIMEOUT, lambda: self._give_up(asked))

    @staticmethod
    def _packet(command: PipelinedCommand, sync: int) -> bytes:
        request = Request(iproto.CALL, sync)
        request.name = command.name.encode()
        request.args = [pack(each) for each in command.args]
        return iproto.encode(request)

    # Replies

    def _hear(self, session: Session, data: bytes, local_ms: int, sent: int) -> None:
        if not session.is_open or not self._outstanding:
            super()._hear(session, data, local_ms, sent)
            return
        if self.is_iproto:
            for packet in self._packets.feed(data):
                self._answered(int(iproto.sync_of(packet)), self._answer_of(packet), sent)
        else:
            self._parser.feed(data)
            for answer in self._parser.parse():
                self._answered(next(iter(self._outstanding), 0), answer, sent)

    def _answered(self, sync: int, answer: object, sent: int) -> None:
        command = self._outstanding.pop(sync, None)
        if command is None:
            raise Violation(f"W12: client {self.number} got a reply with the number {sync}, which no call has")
        if self._outstanding and min(self._outstanding) < sync:
            self.world.sometimes("a call was answered before an earlier one")
        command.then(answer, sent)
        if not self._outstanding:
            self._on_answer = None
            self._later_step(150 * MS)

    def _lost(self) -> None:
        """Handle the loss of the connection before all replies have arrived."""
        lost, self._outstanding = self._outstanding, {}
        for command in lost.values():
            command.then(None, 0)
        self.world.sometimes("a pipeline was interrupted")
        self._later_step(100 * MS)

    # Commands

    def _command(self) -> PipelinedCommand:
        what = self.random.random()
        unfinished = [lease for lease in self.held if not lease.finishes]
        kind = self.random.choice(self.usable())
        if what < 0.4 and not kind.capacity:
            return self._put_command(kind)
        if what < 0.6 and unfinished:
            return self._ack_command(self.random.choice(unfinished))
        return self._take_command(kind)

    def _put_command(self, kind: TubeKind) -> PipelinedCommand:
        self._put_count += 1
        body = b"%d-%d" % (self.number, self._put_count)
        assert self.node is not None
        put = Put(body, kind, b"", 0, 0, self.node.number, self.is_iproto, self.now)
        words, options = [b"PUT", kind.name, body, b"EXISTING"], {}
        if kind.key_limit:
            put.key = self.random.choice(KEYS)
            words += [b"KEY", put.key]
            options["utube"] = put.key.decode()
        if not self.is_iproto:
            put.batch, put.place = b"pipeline-%d-%d" % (self.number, self._asked), self._put_count
        self.world.tubes.puts[body] = put
        self.world.history.note(self.now, "pipelined put", self.number, body)

        def was_put(answer: object | None, sent: int) -> None:
            put.ended = self.now
            if isinstance(answer, ErrorReply):
                put.outcome = self.refused(answer)
            elif isinstance(answer, list):
                put.outcome = DONE if answer and answer != [None] else REFUSED
                if put.outcome == DONE and answer[0][2] != body.decode():
                    raise Violation(f"W12: the put of {body!r} was answered with {answer!r}")
            elif isinstance(answer, bytes):
                put.outcome, put.id = DONE, answer
            elif answer is not None:
                raise Violation(f"W12: the put of {body!r} was answered with {answer!r}")

        return PipelinedCommand(words, f"queue.tube.{kind.name.decode()}:put", [body.decode(), options], was_put)

    def _take_command(self, kind: TubeKind) -> PipelinedCommand:
        timeout_ms = self.random.choice((0, 50, 300, 1_000)) if self.is_iproto else self.random.choice((0, 0, 50, 300))
        assert self.node is not None
        take = Take(kind, self.node.number, self.number, self.token, self.is_iproto, self.now)
        self.world.tubes.takes.append(take)
        words = [b"TAKE", kind.name, *([b"TIMEOUT", b"%dms" % timeout_ms] if timeout_ms else [])]
        self.world.history.note(self.now, "pipelined take", self.number, kind.name)

        def took(answer: object | None, sent: int) -> None:
            take.ended = self.now
            if isinstance(answer, list):
                take.outcome = DONE
                for item in answer:
                    self._received(take, item, sent)
            else:
                take.outcome = self.refused(answer) if isinstance(answer, ErrorReply) else UNKNOWN
                self._lost_take |= take.outcome == UNKNOWN

        return PipelinedCommand(words, f"queue.tube.{kind.name.decode()}:take", [timeout_ms / 1_000], took)

    def _ack_command(self, lease: Lease) -> PipelinedCommand:
        finish = Finish("ack", self.token, self.number, self.now)
        lease.finishes.append(finish)
        self.world.history.note(self.now, "pipelined ack", self.number, lease.body)

        def acked(answer: object | None, sent: int) -> None:
            finish.ended = self.now
            if isinstance(answer, ErrorReply):
                finish.outcome, finish.refusal = self.refused(answer), answer.line.decode()
            elif answer is not None:
                finish.outcome = DONE
            # If the home could not be reached, the session still holds the job.
            if lease in self.held and finish.outcome != UNKNOWN and not self.is_unreachable(answer):
                self.held.remove(lease)

        name = f"queue.tube.{lease.tube.name.decode()}:ack"
        return PipelinedCommand([b"ACK", lease.tube.name + b"#%d" % lease.number], name, [lease.number], acked)
