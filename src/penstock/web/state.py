"""What all requests of an API process share."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from penstock.client.commands import REPEAT, Call
from penstock.client.url import Target
from penstock.core.errors import PenstockError, Unauthenticated, WrongPassword
from penstock.web.credentials import ANONYMOUS
from penstock.web.event_feed import EventFeeds
from penstock.web.live.journal_feed import JournalFeeds
from penstock.web.login_limit import LoginLimit
from penstock.web.node_pool import NodePool
from penstock.web.refusals import Refused, refusal_of
from penstock.web.request_metrics import RequestMetrics
from penstock.web.settings import Settings


class State:
    """The connections, streams and counters of an API process."""

    def __init__(self, target: Target, settings: Settings) -> None:
        self.target = target
        self.settings = settings
        self.logins = LoginLimit()
        self.pool = NodePool(target, settings.connections_max, self.logins)
        self.metrics = RequestMetrics()
        self.feeds = EventFeeds(self.pool, settings)
        self.journals = JournalFeeds(self.pool, settings)
        self.stopping = asyncio.Event()
        self.waits = 0

    @property
    def streams(self) -> int:
        """The number of open event streams."""
        return len(self.feeds) + len(self.journals)

    def check_streams(self) -> None:
        """Raise an error if there cannot be another event stream."""
        if self.stopping.is_set():
            raise Refused("STOPPING", "the API is stopping")
        if self.streams >= self.settings.streams_max:
            raise Refused("TOOMANY", "there are too many event streams", "close some, or raise --streams")

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Count a request that waits on the node."""
        self.waits += 1
        try:
            yield
        finally:
            self.waits -= 1

    def stop(self) -> None:
        """End all streams and waiting requests, so that the process can end."""
        self.stopping.set()
        self.feeds.stop()
        self.journals.stop()

    async def close(self) -> None:
        self.stop()
        await self.pool.close()

    async def probe(self) -> tuple[bool, str]:
        """Return whether a node answers, and otherwise the reason. A node that requires a login has answered."""
        try:
            await self.pool.run(ANONYMOUS, Call([b"PING"], _ignored, REPEAT))
        except Refused as refused:
            return False, refused.message
        except (Unauthenticated, WrongPassword):
            return True, ""
        except (PenstockError, OSError, EOFError) as error:
            return False, refusal_of(error).message
        return True, ""


def _ignored(answer: Any) -> None:
    """Accept any reply."""
