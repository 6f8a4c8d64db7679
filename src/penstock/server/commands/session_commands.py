"""SESSION SCAN: the sessions of a node, with their clients, the jobs that they hold and the tubes that they wait on."""

from __future__ import annotations

from typing import Final

from penstock.core import views
from penstock.core.limits import NEVER, check_count
from penstock.core.views import SessionView
from penstock.dialects.native.arguments import Words, parse_cursor
from penstock.node.caller import ADMIN, SLICE, check_tube
from penstock.node.client import Client
from penstock.server.server import Server
from penstock.wire.reply import Reply

_COUNT_DEFAULT: Final = 100

# The tubes of at most this many held jobs are counted per session, and per page: about a millisecond of work.
_EXAMINED_MAX: Final = 1_000
_PAGE_EXAMINED_MAX: Final = 10_000


class SessionCommands:
    """The SESSION commands."""

    def __init__(self, server: Server) -> None:
        self._server = server

    def scan(self, caller: Client, args: list[bytes], now: int) -> None:
        """Run SESSION SCAN cursor [COUNT n] [TUBE tube]: reply with the next cursor and some sessions.

        With TUBE, reply only with sessions that hold jobs of this tube or wait on it. A user with tube patterns gets
        only the sessions of its own name. Only administrators get the addresses of clients.
        """
        cursor = parse_cursor(args[2])
        count = _COUNT_DEFAULT
        tube: bytes | None = None
        words = Words(args, 3)
        while words.has_more():
            word = words.option()
            if word == b"COUNT":
                count = min(check_count(words.integer(), "COUNT"), SLICE)
            elif word == b"TUBE":
                tube = words.value()
                check_tube(caller, tube)
            else:
                raise words.unknown(["COUNT", "TUBE"])
        engine = self._server.turn.engine
        engine.advance(now)
        sessions, after = views.scan_sessions(engine, cursor, count)
        shown: list[SessionView] = []
        left = _PAGE_EXAMINED_MAX
        for session in sessions:
            if left <= 0:
                after = int(session.slot)
                break
            if not caller.any_tube and session.user != caller.user_name.encode():
                continue
            view = SessionView(engine, session, _EXAMINED_MAX)
            left -= min(view.held, _EXAMINED_MAX) + len(view.connections)
            if tube is None or tube in view.holds or tube in view.waiting:
                shown.append(view)
        clients = {client.connection: client for client in self._server.clients}
        reply = caller.reply
        reply.array(2)
        reply.bulk(b"%d" % after)
        reply.array(len(shown))
        for view in shown:
            _write(reply, view, [clients[each] for each in view.connections if each in clients], caller, now)


def _write(reply: Reply, view: SessionView, clients: list[Client], caller: Client, now: int) -> None:
    reply.map(10)
    _pair(reply, b"number", view.number)
    reply.bulk(b"name")
    reply.bulk(view.name)
    reply.bulk(b"user")
    reply.bulk(view.user)
    reply.bulk(b"clients")
    reply.array(len(clients))
    for client in clients:
        reply.map(4)
        _pair(reply, b"id", client.number)
        reply.bulk(b"address")
        reply.bulk(client.address.encode() if caller.groups & ADMIN else b"")
        # The node that the client is connected to, if its commands are forwarded to this one.
        reply.bulk(b"node")
        reply.bulk(client.entry_node or b"")
        _pair(reply, b"idle-ms", max(0, now - int(client.active)))
    _pair(reply, b"held", view.held)
    _write_counts(reply, b"holds", view.holds, caller)
    _write_counts(reply, b"waiting", view.waiting, caller)
    _pair(reply, b"grace-ms", view.grace_ms)
    _time(reply, b"since", min((int(client.created) for client in clients), default=NEVER))
    _time(reply, b"ends", view.ends_ms)


def _write_counts(reply: Reply, name: bytes, counts: dict[bytes, int], caller: Client) -> None:
    visible = [each for each in counts if caller.any_tube or caller.may_use(each)]
    reply.bulk(name)
    reply.map(len(visible))
    for tube in visible:
        _pair(reply, tube, counts[tube])


def _time(reply: Reply, name: bytes, moment: int) -> None:
    """Write a moment in milliseconds since 1970, or null if there is none."""
    if moment == NEVER:
        reply.bulk(name)
        reply.null()
    else:
        _pair(reply, name, moment)


def _pair(reply: Reply, name: bytes, value: int) -> None:
    reply.bulk(name)
    reply.integer(value)
