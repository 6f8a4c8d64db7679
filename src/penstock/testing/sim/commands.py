"""The commands and functions of a simulated node: those of a server that use nothing but the engine and the cluster."""

from __future__ import annotations

from penstock.core.errors import ProtocolError
from penstock.dialects.disque import Disque
from penstock.dialects.native.claim_commands import ClaimCommands
from penstock.dialects.native.delivery_commands import DeliveryCommands
from penstock.dialects.native.job_commands import JobCommands
from penstock.dialects.native.stage_commands import StageCommands
from penstock.dialects.native.tube_commands import TubeCommands
from penstock.dialects.tarantool.calls import CallDispatcher, FunctionFamily
from penstock.dialects.tarantool.queue_functions import QueueFunctions, TubeMethods
from penstock.node.caller import WRITE, Caller
from penstock.node.context import CommandContext
from penstock.node.dispatch import Command, CommandFamily, Dispatcher, Handler
from penstock.wire.iproto import Request


def commands(context: CommandContext) -> list[Command]:
    """Return the RESP commands that the simulated clients use."""
    disque, native, tubes = Disque(context), DeliveryCommands(context), TubeCommands(context)
    jobs, stages, claims = JobCommands(native), StageCommands(native), ClaimCommands(native)
    rows: list[tuple[str, Handler]] = [
        *(("addjob", disque.addjob), ("getjob", disque.getjob), ("ackjob", disque.ackjob)),
        *(("fastack", disque.fastack), ("working", disque.working), ("nack", disque.nack)),
        *(("enqueue", disque.enqueue), ("dequeue", disque.dequeue), ("pause", disque.pause)),
        *(("put", native.put), ("mput", native.mput), ("take", native.take), ("ack", native.ack)),
        *(("release", native.release), ("requeue", native.requeue), ("bury", native.bury), ("dig", native.dig)),
        *(("kick", native.kick), ("identify", native.identify), ("stage", stages.stage)),
        *(("publish", stages.publish), ("publishonce", stages.publish_once), ("discard", stages.discard)),
    ]
    single = [_command(name, handler) for name, handler in rows]
    return [
        *single,
        _family("tube", [("create", tubes.create), ("info", tubes.info), ("stats", tubes.stats), ("drop", tubes.drop)]),
        _family(
            "claim",
            [
                *(("take", claims.take), ("read", claims.read), ("info", claims.info), ("ack", claims.ack)),
                *(("renew", claims.renew), ("release", claims.release)),
            ],
        ),
        _family(
            "job",
            [
                *(("nack", jobs.nack), ("touch", jobs.touch), ("held", jobs.held), ("peek", jobs.peek)),
                *(("delete", jobs.delete), ("wait", jobs.wait)),
            ],
        ),
    ]


def calls(context: CommandContext, dispatcher: Dispatcher) -> CallDispatcher:
    """Return the dispatcher of IPROTO calls: the functions of tarantool/queue."""
    families: dict[bytes, FunctionFamily] = {b"queue": QueueFunctions(context)}
    return CallDispatcher(dispatcher, families, TubeMethods(context), FunctionFamily(), _no_select, _no_log_in)


def _command(name: str, handler: Handler) -> Command:
    return Command(name, 0, "w", WRITE, "", "", handler)


def _family(name: str, members: list[tuple[str, Handler]]) -> Command:
    family = CommandFamily(name)
    for word, handler in members:
        family.add(_command(f"{name} {word}", handler))
    return family.as_command()


def _no_select(caller: Caller, request: Request, now: int) -> bytes | None:
    raise ProtocolError("the simulation has no spaces")


def _no_log_in(caller: Caller, request: Request) -> None:
    raise ProtocolError("the simulation has no users")
