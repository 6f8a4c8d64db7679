"""Penstock: a job queue. This module lists the public names; the code is in the packages below.

A name is imported when it is used first, so that `penstock --help` and clients start without loading the engine.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from penstock._version import __version__

try:
    import_module("penstock._librt")
except (ImportError, ValueError) as error:
    if "librt" not in str(error):
        raise
    raise ImportError(
        f"librt is missing or does not fit this build of penstock ({error}); "
        "install both again: pip install --upgrade --force-reinstall librt penstock-queue"
    ) from error

if TYPE_CHECKING:
    from penstock.api import Job, Queue, Stage, Tube
    from penstock.api_async import AsyncJob, AsyncQueue, AsyncStage, AsyncTube
    from penstock.changes import Change
    from penstock.client.async_queue import connect_async
    from penstock.client.queue import connect
    from penstock.core.errors import (
        BadAnswer,
        BadCondition,
        BadDriver,
        BadHeaders,
        BadId,
        BadName,
        BadRetry,
        BadSyntax,
        BadToken,
        BadUrl,
        BatchOver,
        BodyTooLarge,
        ClaimGone,
        Closed,
        CommandError,
        ConnectionLost,
        CrossHome,
        DamagedJournal,
        Exhausted,
        Fenced,
        Finished,
        Forked,
        Full,
        HasCopies,
        Interrupted,
        InUse,
        IsStaged,
        IsTaken,
        JobExists,
        JournalFailed,
        Leaving,
        Loading,
        NameTaken,
        NewerJournal,
        NoHome,
        NoJournal,
        NoMemory,
        NoServer,
        NoSpace,
        NotAllowed,
        NotAQueue,
        NotBuried,
        NotDelayed,
        NotKept,
        NotOwner,
        NotTaken,
        NotWaiting,
        NoUsers,
        NumberTaken,
        OnlyOnce,
        OtherRefusal,
        OutOfRange,
        Paused,
        PenstockError,
        ProtocolError,
        StageOver,
        StandbyOnly,
        Superseded,
        TooManyWaits,
        Trimmed,
        TubeAwaited,
        TubeExists,
        TubeTaken,
        Unauthenticated,
        UnknownBatch,
        UnknownJob,
        UnknownSession,
        UnknownStage,
        UnknownTube,
        UnknownType,
        Unreachable,
        Unsupported,
        WrongPassword,
        WrongServer,
        WrongType,
    )
    from penstock.core.policy import TubePolicy
    from penstock.dashboard import dashboard
    from penstock.drivers import register_driver
    from penstock.journal.history.block import BlockDigest
    from penstock.journal.history.reader import Event
    from penstock.opening import open, open_async
    from penstock.options import JobOutcome, NewJob
    from penstock.tasks.app import App
    from penstock.tasks.context import Context, LeaseLost
    from penstock.tasks.failures import BadArguments, BadTask, Bury, Discard, ResultExpired, Retry, TaskFailed
    from penstock.tasks.handle import AsyncHandle, Handle
    from penstock.tasks.middleware import Middleware
    from penstock.tasks.progress import Progress
__all__ = [
    "App",
    "AsyncHandle",
    "AsyncJob",
    "AsyncQueue",
    "AsyncStage",
    "AsyncTube",
    "BadAnswer",
    "BatchOver",
    "UnknownBatch",
    "BadArguments",
    "BadDriver",
    "BadId",
    "BadCondition",
    "BadHeaders",
    "BadName",
    "BadRetry",
    "BadSyntax",
    "BadToken",
    "BadTask",
    "BadUrl",
    "BlockDigest",
    "BodyTooLarge",
    "Bury",
    "Change",
    "ClaimGone",
    "Closed",
    "CommandError",
    "ConnectionLost",
    "Context",
    "CrossHome",
    "DamagedJournal",
    "Discard",
    "Event",
    "Exhausted",
    "Fenced",
    "Forked",
    "Finished",
    "Full",
    "Handle",
    "HasCopies",
    "InUse",
    "Interrupted",
    "IsStaged",
    "IsTaken",
    "Job",
    "JobExists",
    "JobOutcome",
    "JournalFailed",
    "LeaseLost",
    "Leaving",
    "Loading",
    "Middleware",
    "NameTaken",
    "NewJob",
    "NewerJournal",
    "NoHome",
    "NoJournal",
    "NoMemory",
    "NoServer",
    "NoSpace",
    "NoUsers",
    "NotAQueue",
    "NotAllowed",
    "NotBuried",
    "NotDelayed",
    "NotKept",
    "NotOwner",
    "NotTaken",
    "NotWaiting",
    "NumberTaken",
    "OnlyOnce",
    "OtherRefusal",
    "OutOfRange",
    "Paused",
    "PenstockError",
    "Progress",
    "ProtocolError",
    "Queue",
    "ResultExpired",
    "Retry",
    "Stage",
    "StageOver",
    "StandbyOnly",
    "Superseded",
    "TaskFailed",
    "TooManyWaits",
    "Trimmed",
    "Tube",
    "TubeAwaited",
    "TubeExists",
    "TubePolicy",
    "TubeTaken",
    "Unauthenticated",
    "UnknownJob",
    "UnknownSession",
    "UnknownStage",
    "UnknownTube",
    "UnknownType",
    "Unreachable",
    "Unsupported",
    "WrongPassword",
    "WrongServer",
    "WrongType",
    "__version__",
    "connect",
    "connect_async",
    "dashboard",
    "open",
    "open_async",
    "register_driver",
]

_MODULES = {
    "api": ["Job", "Queue", "Stage", "Tube"],
    "api_async": ["AsyncJob", "AsyncQueue", "AsyncStage", "AsyncTube"],
    "changes": ["Change"],
    "client.async_queue": ["connect_async"],
    "client.queue": ["connect"],
    "core.policy": ["TubePolicy"],
    "dashboard": ["dashboard"],
    "drivers": ["register_driver"],
    "journal.history.block": ["BlockDigest"],
    "journal.history.reader": ["Event"],
    "opening": ["open", "open_async"],
    "options": ["JobOutcome", "NewJob"],
    "tasks.app": ["App"],
    "tasks.context": ["Context", "LeaseLost"],
    "tasks.failures": ["BadArguments", "BadTask", "Bury", "Discard", "ResultExpired", "Retry", "TaskFailed"],
    "tasks.handle": ["AsyncHandle", "Handle"],
    "tasks.middleware": ["Middleware"],
    "tasks.progress": ["Progress"],
}
# All other public names are errors.
_HOMES = dict.fromkeys((name for name in __all__ if name != "__version__"), "core.errors")
_HOMES |= {name: module for module, names in _MODULES.items() for name in names}

# A type checker sees the imports above. If it saw this function, it would accept any name.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module 'penstock' has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(f"penstock.{_HOMES[name]}"), name)
        return value

    def __dir__() -> list[str]:
        return list(__all__)
