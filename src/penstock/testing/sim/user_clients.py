"""Clients of the workload `tubes` that are logged in as a user with tube patterns.

Such a client may use one tube. It also tries commands on the other tubes, and on jobs that other clients have put into
them or taken from them. All nodes must refuse these, even if only the home of the tube knows the job.
"""

from __future__ import annotations

from penstock.testing.sim.history import Violation
from penstock.testing.sim.schedule import MS, SECOND
from penstock.testing.sim.tube_clients import TubeConsumer
from penstock.testing.sim.tubes import KINDS, TubeKind
from penstock.wire.resp_client import ErrorReply


class UserClient(TubeConsumer):
    """Takes jobs of the only tube that it may use, and tries to use others."""

    def begin(self) -> None:
        """Log in, and take the first job after a pause."""
        self.is_iproto = False
        self.allowed: TubeKind = self.random.choice([kind for kind in self.kinds if not kind.once])
        self.forbidden = [kind for kind in KINDS if kind in self.kinds and kind is not self.allowed]
        self.kinds = [self.allowed]
        self.tube_patterns = [self.allowed.name]
        super().begin()

    def _act(self) -> None:
        if not self.careful and self.forbidden and self.random.random() < 0.4:
            self._trespass(self.random.choice(self.forbidden))
        else:
            super()._act()

    def _intrude(self) -> None:
        """Only take a job. The jobs of other sessions are left alone, because they can be in forbidden tubes."""
        self._take()

    def refused(self, answer: ErrorReply) -> str:
        if answer.line.startswith(b"NOPERM"):
            raise Violation(f"W13: a user was refused its own tube {self.allowed.name!r}: {answer.line!r}")
        return super().refused(answer)

    def _trespass(self, kind: TubeKind) -> None:
        """Try a command about a tube of other users."""
        name = kind.name
        commands = [
            [b"PUT", name, b"forbidden"],
            [b"TAKE", name],
            [b"KICK", name, b"1"],
            [b"TUBE", b"INFO", name],
            [b"TUBE", b"CREATE", name, b"TYPE", kind.type],
        ]
        history = self.world.tubes
        leases = [lease for lease in history.leases if lease.tube is kind][-5:]
        ids = [lease.id for lease in leases if lease.id] + [kind.name + b"#%d" % lease.number for lease in leases]
        ids += [put.id for put in list(history.puts.values())[-20:] if put.tube is kind and put.id]
        if ids:
            id = self.random.choice(ids)
            commands += [[b"ACK", id], [b"RELEASE", id], [b"BURY", id]]
            commands += [[b"JOB", b"PEEK", id], [b"JOB", b"DELETE", id], [b"JOB", b"TOUCH", id]]
        words = self.random.choice(commands)
        self.world.history.note(self.now, "trespass", self.number, *words)
        self.ask(words, 2 * SECOND, lambda answer, local, sent: self._trespassed(words, answer))

    def _trespassed(self, words: list[bytes], answer: object | None) -> None:
        if isinstance(answer, ErrorReply):
            if b"internal error" in answer.line:
                raise Violation(f"W0: {answer.line!r}")
            if answer.line.startswith(b"NOPERM"):
                self.world.sometimes("a user was refused a tube")
                if words[-1].startswith(b"D-"):
                    self.world.sometimes("a user was refused a job by its id")
        elif answer is not None and answer != 0:
            raise Violation(f"W13: a user executed {b' '.join(words)!r}, which answered {answer!r}")
        self._later_step(20 * MS)
