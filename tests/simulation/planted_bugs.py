"""Planted bugs (mutants), which test the tests. Each replaces a line of the source.

A mutant is applied when its module is imported, so there is no effect or cost without one. It runs in its own process:

    python -m tests.simulation.planted_bugs NAME --seeds 50      simulate with the bug; exit code 0 if it was caught

or, with PENSTOCK_MUTANT=NAME, in a program that calls `install_from_environment` first. Mutants run interpreted: the
package is loaded from its source even if a compiled one exists.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import find_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Final

VARIABLE: Final = "PENSTOCK_MUTANT"


def _package_dir() -> Path:
    """Return the folder of the package under test, without importing it."""
    spec = find_spec("penstock")
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).parent


_ROOT: Final = _package_dir()


@dataclass(frozen=True)
class Mutant:
    """One planted bug."""

    name: str
    module: str  # Relative to `penstock`.
    line: str  # The original line without its indentation. It occurs once in the file.
    instead: str  # Its replacement.
    other_line: str = ""  # A second line to replace, if one is not sufficient.
    other_instead: str = ""

    def applied(self, source: str) -> str:
        """Return the source of the module with the bug."""
        source = self._changed(source, self.line, self.instead)
        return self._changed(source, self.other_line, self.other_instead) if self.other_line else source

    def _changed(self, source: str, old: str, new: str) -> str:
        lines = source.split("\n")
        places = [at for at, line in enumerate(lines) if line.strip() == old]
        if len(places) != 1:
            raise ValueError(f"mutant {self.name}: {len(places)} lines of {self.module} are {old!r}, one should be")
        at = places[0]
        indent = lines[at][: len(lines[at]) - len(lines[at].lstrip())]
        lines[at : at + 1] = [indent + line for line in new.split("\n")]
        return "\n".join(lines)

    @property
    def path(self) -> Path:
        """Return the file of the module."""
        return _ROOT / (self.module.replace(".", "/") + ".py")


MUTANTS: Final = (
    # The cluster
    Mutant(
        "answers-before-all-copies",
        "cluster.replication",
        "return len(self.confirmed) >= self.needed",
        "return bool(self.confirmed)",
    ),
    Mutant(
        "own-copy-counts-twice",
        "cluster.replication",
        "needed = repl if external else repl - 1",
        "needed = repl if external else max(1, repl - 2)",
    ),
    Mutant(
        "asked-counts-as-confirmed",
        "cluster.replication",
        "started.asked.extend(more)",
        "started.asked.extend(more)\nstarted.confirmed.extend(more)",
    ),
    Mutant(
        "warning-is-not-waited-for",
        "cluster.requeue",
        "postpone(self._place.engine, job, now + warning_ms(job))",
        "return False",
    ),
    Mutant(
        "early-timer-counts-as-the-retry-time",
        "cluster.copy_states",
        "(TIMER_SET, LEASED, UNWARNED),  # The delivered job has other holders, which are warned before it returns.",
        "(TIMER_SET, LEASED, LEASED),",
    ),
    Mutant(
        "warning-outlives-an-objection",
        "cluster.copy_states",
        "(YIELDED, WARNED, UNWARNED),  # A holder objected to the warning, or wins against it.",
        "(YIELDED, WARNED, WARNED),",
    ),
    Mutant("holders-hear-of-no-ack", "cluster.acks", "place.outbox.send(node, message)", "pass"),
    Mutant("queued-is-not-heard", "cluster.node", "self.requeue.receive_queued(sender, message, now)", "pass"),
    Mutant(
        "ack-collected-while-a-holder-is-away",
        "cluster.acks",
        "if node == self._place.myself or node in ack.confirmed or members.has_left(node):",
        "if node == self._place.myself or node in ack.confirmed or node not in members.reachable():",
    ),
    Mutant(
        "old-time-after-nack",
        "core.moves",
        "job.wake = NEVER if ttr == NEVER else now + ttr",
        "job.wake = NEVER if ttr == NEVER else now + (ttr if job.nacks == 0 else ttr // 4)",
    ),
    Mutant("handed-over-twice", "cluster.handover", "new = message.number not in taken.numbers", "new = True"),
    Mutant(
        "heir-forgot-and-takes-it-again",
        "cluster.handover",
        "if message.receiver_incarnation != place.members.incarnation:",
        "if False:",
        "if members.is_member(handing.receiver) and members.incarnation_of(handing.receiver) in incarnations:",
        "if True:",
    ),
    Mutant(
        "kept-for-a-dead-heir",
        "cluster.handover",
        "images.append(image)",
        "images.append(image)\npostpone(place.engine, job, self._back_at(job, abs(due), now))",
    ),
    Mutant(
        "replicas-in-the-order-of-a-set",
        "cluster.state",
        "most: i64 = len(nodes)",
        "nodes = list(set(nodes))\nmost: i64 = len(nodes)",
    ),
    # The disk and recovery
    Mutant("no-sync", "journal.log", "tail.file.sync()", "pass"),
    Mutant(
        "sync-after-reply",
        "node.turn",
        "if log is None or log.is_durable():",
        "if True:",
    ),
    Mutant(
        "once-again-after-restart",
        "journal.recovery.filling",
        "elif job.id in replay.held:",
        "elif job.once:\n    orphans.append(job)\nelif job.id in replay.held:",
    ),
    Mutant("ids-begin-anew", "core.restore", "return max(epoch, highest_id >> SEQUENCE_BITS) + 1", "return 1"),
    Mutant(
        "checksum-without-length",
        "journal.frame",
        "crc = crc32(view[1:used], seed)",
        "crc = crc32(view[2:used], seed)",
        "if i64(crc32(data[at + layout.VERSION_AT : at + length], seed)) != crc:",
        "if i64(crc32(data[at + layout.VERSION_AT + 8 : at + length], seed)) != crc:",
    ),
    Mutant(
        "short-tail-is-a-frame",
        "journal.frame",
        "if i64(crc32(data[at + layout.VERSION_AT : at + length], seed)) != crc:",
        "if not any(data[at + length - 8 : at + length]) and length < 64:",
    ),
    Mutant("names-are-not-synced", "journal.real_disk", "_sync_directory(self.path)", "pass"),
    # The turn
    Mutant(
        "no-commit-during-a-sync", "node.turn", "if log is not None:", "if log is not None and not self.is_syncing:"
    ),
    Mutant(
        "later-output-leaves-with-an-earlier-sync",
        "node.turn",
        "assert output is not None",
        "assert output is not None\noutput.replies += self._take_output().replies",
    ),
    Mutant(
        "messages-leave-before-the-sync",
        "node.turn",
        "messages = cluster.outbox.take() if cluster is not None and cluster.outbox.by_peer else None",
        "messages = None\nif cluster and self.links:\n    self.links.send(cluster.outbox.take())",
    ),
    Mutant("sent-delivery-is-undone", "node.caller", "if self._sending_count > 0:", "if self._sending_count > 1:"),
    Mutant(
        "unsent-delivery-is-kept",
        "node.turn",
        "for job, delivery in zip(client.unsent, client.unsent_deliveries):",
        "for job, delivery in zip(client.unsent[:0], client.unsent_deliveries):",
    ),
    Mutant(
        "served-wait-of-a-lost-client-is-kept",
        "node.turn",
        "for wait in self._unanswered(client):",
        "for wait in self._unanswered(client)[:0]:",
    ),
    Mutant("rest-of-a-client-is-forgotten", "node.turn", "if left == MORE_LEFT:", "if False:"),
    Mutant("has-arrived-is-not-reset", "node.turn", "client.has_arrived = False", "pass"),
    Mutant("session-outlives-its-client", "node.turn", "self.engine.disconnect(client.connection, self.now)", "pass"),
    Mutant("disconnected-client-is-run", "node.turn", "if not client.lost:", "if True:"),
    Mutant("client-that-does-not-read-is-run", "node.turn", "elif client.is_unread:", "elif False:"),
    Mutant("budget-of-a-turn-is-ignored", "node.inbox", "budget -= self._at - before", "pass"),
    Mutant(
        "command-behind-a-wait-is-run",
        "node.inbox",
        "while caller.wait is None and not caller.busy and not caller.closing:",
        "while not caller.busy and not caller.closing:",
    ),
    Mutant(
        "closed-connection-counts-as-delivered",
        "node.client",
        "if self.is_closed or (self.unsent and self.is_closing()):",
        "if self.is_closed:",
    ),
    # Forwarding
    Mutant(
        "reply-of-any-node-is-passed-on",
        "node.forwarding",
        "if tunnel is None or tunnel.node != sender:",
        "if tunnel is None:",
    ),
    Mutant("error-within-a-forwarded-reply", "node.forwarding", "if self._began:", "if False:"),
    Mutant(
        "forwarded-wait-is-not-stopped",
        "node.forwarding",
        'self._writer.write(m.FORWARD, m.STOP_WAITING, b"")',
        "pass",
    ),
    Mutant(
        "wait-that-begins-with-the-end-of-the-input-is-not-stopped",
        "node.forwarded_clients",
        "self._guests.turn.stopped_sending(self)",
        "self._guests.turn.end_waits(self)",
    ),
    Mutant(
        "closed-before-the-forwarded-reply",
        "node.client",
        "elif self.has_eof and not self.is_waiting:",
        "elif self.has_eof:",
    ),
    Mutant(
        "closed-before-the-reply-of-a-waiting-call",
        "node.client",
        "elif self.has_eof and not self.is_waiting:",
        "elif self.has_eof and not self.remote_count:",
    ),
    Mutant("closed-before-all-ended-waits-are-answered", "node.turn", "elif client.has_eof:", "elif False:"),
    Mutant(
        "displaced-node-stays-away-after-its-takeover",
        "cluster.members",
        "return node in self._forgotten or (node in self._displaced and epoch <= self.epoch_of(node))",
        "return node in self._forgotten or node in self._displaced",
    ),
    Mutant("copies-exceed-the-capacity", "core.copy_commands", "if tube.limited:", "if False:"),
    Mutant("lost-forwarded-client-stays", "node.forwarded_clients", "self._guests.turn.leave(self)", "pass"),
    Mutant(
        "forwarded-client-of-an-earlier-home",
        "node.forwarded_clients",
        "if credentials.epoch != self._cluster.members.epoch:",
        "if False:",
    ),
    Mutant(
        "end-of-a-forwarded-wait-is-marked-early",
        "node.forwarded_clients",
        "return not self.is_blocked() and self.reply.length == 0 and not self.inbox.buffer.is_unfinished()",
        "return self.reply.length == 0 and not self.inbox.buffer.is_unfinished()",
    ),
    Mutant(
        "no-limit-of-forwarded-clients", "node.forwarded_clients", "if not self._admission.make_room():", "if False:"
    ),
    Mutant("bytes-for-a-crowded-link-stay", "node.forwarding", "tunnel.flow()", "pass"),
    Mutant("replies-for-a-crowded-link-stay", "node.forwarded_clients", "client.flow()", "pass"),
    Mutant(
        "forwarded-user-may-use-all-tubes",
        "node.forwarding",
        "credentials.tubes = list(EVERY_TUBE.texts if client.any_tube else client.tubes.texts)",
        "credentials.tubes = list(EVERY_TUBE.texts)",
    ),
    Mutant(
        "user-may-use-all-jobs",
        "node.context",
        "if job is not None and not caller.any_tube:",
        "if False:",
    ),
    # Loading
    Mutant(
        "refused-command-is-run-after-loading",
        "node.loading",
        "reply.error(line)",
        "reply.error(line)\n"
        'parser.feed(b"*%d\\r\\n" % len(words) + b"".join(b"$%d\\r\\n%s\\r\\n" % (len(word), word) for word in words))',
    ),
    # Several calls of one connection
    Mutant(
        "call-is-answered-with-another-number",
        "dialects.tarantool.calls",
        "self.sync = call.sync",
        "self.sync = call.sync - call.sync % 2",
    ),
    # The election of homes, and sessions
    Mutant(
        "home-without-a-majority",
        "cluster.home_election",
        "return not self._missing(claim) and 1 + len(yes) > members.size() // 2",
        "return bool(yes)",
    ),
    Mutant(
        "grant-is-not-recorded",
        "cluster.home_election",
        "self._homes.promise(name, sender, message.number, now)",
        "pass",
    ),
    Mutant("rival-stays-in-the-election", "cluster.home_election", "self._withdraw(mine)", "pass"),
    Mutant(
        "command-is-forwarded-during-an-election",
        "node.dispatch",
        "if isinstance(error, Elsewhere) and error.promised:",
        "if False:",
    ),
    Mutant("grace-time-runs-on-after-identify", "core.engine", "self.deadlines.clear(session)", "pass"),
    Mutant(
        "no-grace-time",
        "core.engine",
        "self.deadlines.set(session, now + self.grace_of(session))",
        "self.deadlines.set(session, now)",
    ),
    # Stages and claims
    Mutant(
        "publication-is-not-logged",
        "core.stages",
        "engine.outbox.stages_changed(opened, now)",
        "pass",
    ),
    Mutant("mark-is-ignored", "core.stages", "if before is not None:", "if False:"),
    Mutant(
        "stage-is-not-looked-for-on-other-nodes",
        "dialects.native.stage_commands",
        "node = self._native.context.find_node_with(caller, STAGE, names[:2], ALL_NODES)",
        'node = b""',
    ),
    Mutant(
        "node-that-has-not-answered-has-no-stage",
        "node.context",
        "if peer.is_member() and peer.id not in wait.answered:",
        "if False:",
    ),
    Mutant("replaced-reader-is-not-refused", "core.claims", "if token < consumer.token:", "if False:"),
    Mutant(
        "claim-has-another-order-after-a-restart",
        "journal.recovery.filling",
        "jobs.sort(key=lambda job: (job.ensure_extra().claim, job.ensure_extra().claim_place))",
        "jobs.sort(key=lambda job: (job.ensure_extra().claim, -job.ensure_extra().claim_place))",
    ),
    Mutant(
        "consumer-is-not-looked-for-on-other-nodes",
        "dialects.native.claim_commands",
        "node = self._native.context.find_node_with(caller, CONSUMER, [consumer], must_answer)",
        'node = b""',
    ),
    # Standbys
    Mutant(
        "replaced-node-does-not-step-down",
        "cluster.members",
        "self.superseded = max(self.superseded, epoch)",
        "pass",
    ),
    Mutant(
        "log-of-a-standby-is-not-doubtful",
        "journal.identity",
        "replace(who, epoch=epoch, node_epoch=node_epoch, doubtful=True, standby=False, superseded=0).write(disk)",
        "replace(who, epoch=epoch, node_epoch=node_epoch, doubtful=False, standby=False, superseded=0).write(disk)",
    ),
    Mutant(
        "standby-uses-ids-again",
        "journal.identity",
        "epoch = next_epoch(disk) + _EPOCHS_APART",
        "epoch = next_epoch(disk)",
    ),
    # At-most-once jobs of tubes
    Mutant("delivered-job-is-released", "core.engine", "if refusal == OK and job.once:", "if False:"),
    Mutant("doubtful-job-is-not-buried", "journal.recovery.filling", "restore.bury_doubtful(engine, job, now)", "pass"),
    # The engine
    Mutant(
        "key-stays-busy-when-buried",
        "core.tube",
        "keys.give_back(job)",
        "if job.state != s.BURIED:\n    keys.give_back(job)",
    ),
    Mutant("two-timers-for-a-job", "core.deadlines", "if item.deadline_pos == NOWHERE:", "if True:"),
    Mutant(
        "ttl-from-take",
        "core.moves",
        "job.wake = NEVER if ttr == NEVER else now + ttr",
        "job.wake = NEVER if ttr == NEVER else now + ttr\n"
        "job.expiry = NEVER if job.expiry == NEVER else now + job.expiry - job.created",
    ),
    Mutant("ttr-stays-after-ack", "core.moves", "self.deadlines.clear(job)", "pass"),
    Mutant("heap-out-of-order", "core.order", "self._up(job, pos)", "job.pos = pos"),
    Mutant("waiter-is-not-woken", "core.moves", "elif tube.take_line.length > 0:", "elif tube.take_line.length > 1:"),
    # Parsers
    Mutant("parser-reads-on-after-an-error", "wire.input_buffer", "if self.error:", "if False:"),
    # Time
    Mutant(
        "wall-clock-for-retry",
        "testing.sim.node",
        "return self._started_ms + (self._machine.monotonic_us() - self._started_us) // MS",
        "return self._machine.wall_ms()",
    ),
)

BY_NAME: Final = {mutant.name: mutant for mutant in MUTANTS}


class _Loader(SourceFileLoader):
    """Loads a module from its source, and plants the bug if the module is the one that the mutant changes."""

    def __init__(self, name: str, path: str, mutant: Mutant) -> None:
        super().__init__(name, path)
        self._mutant = mutant

    def get_code(self, fullname: str) -> object:  # type: ignore[override]
        """Compile the source, because cached bytecode may not contain the bug."""
        source = Path(self.path).read_text(encoding="utf-8")
        if fullname == f"penstock.{self._mutant.module}":
            source = self._mutant.applied(source)
        return compile(source, self.path, "exec", dont_inherit=True)


class _Finder(MetaPathFinder):
    """Finds every module of the package as source, even if a compiled one exists."""

    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.partition(".")[0] != "penstock":
            return None
        place = _ROOT.parent.joinpath(*fullname.split("."))
        is_package = place.is_dir()
        file = place / "__init__.py" if is_package else place.with_suffix(".py")
        if not file.exists():
            return None
        loader = _Loader(fullname, str(file), self._mutant)
        return spec_from_file_location(
            fullname, str(file), loader=loader, submodule_search_locations=[str(place)] if is_package else None
        )


def install(name: str) -> None:
    """Plant a bug into all modules of the package that are imported from now on."""
    mutant = BY_NAME[name]
    for module in [module for module in sys.modules if module.partition(".")[0] == "penstock"]:
        del sys.modules[module]
    sys.meta_path.insert(0, _Finder(mutant))


def install_from_environment() -> None:
    """Plant the bug that the variable PENSTOCK_MUTANT names, if it is set."""
    if VARIABLE in os.environ:
        install(os.environ[VARIABLE])


def main(words: list[str]) -> int:
    """Run simulations with a bug until one of them fails. Return the exit code."""
    if not words or words[0] not in BY_NAME:
        print(f"name a mutant: {', '.join(BY_NAME)}", file=sys.stderr)
        return 2
    seeds = int(words[words.index("--seeds") + 1]) if "--seeds" in words else 100
    first = int(words[words.index("--seed") + 1]) if "--seed" in words else 1
    settings = [words[at + 1] for at, word in enumerate(words) if word == "--set"]
    install(words[0])
    from penstock.testing.sim.swarm import run_seed

    for seed in range(first, first + seeds):
        report = run_seed(seed, settings)
        if not report.passed:
            print(f"{words[0]}: caught by seed {seed}: {report.violations[0]}")
            return 0
    print(f"{words[0]}: survived {seeds} seeds")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
