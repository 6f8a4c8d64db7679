"""CLIENT and MONITOR: list, name and close connections, and watch their commands."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from penstock.core.limits import NEVER
from penstock.core.waits import EndWait, PutWait, Waiting
from penstock.dialects.disque import NOT_A_NUMBER, parse_integer
from penstock.node.caller import ADMIN, ANSWERED, SILENT, SKIP_NEXT, check_whole_server
from penstock.node.client import Client
from penstock.node.dispatch import REDACTED, Dispatcher
from penstock.server.commands.connection_commands import check_client_name
from penstock.server.config.settings import find
from penstock.server.config.words import to_text
from penstock.server.server import Server
from penstock.wire.errors import SYNTAX, Refused
from penstock.wire.resp import printable

# Subcommands about other clients need the admin class.
_ADMINISTRATIVE: Final = frozenset([b"LIST", b"KILL", b"PAUSE"])

# MONITOR and SLOWLOG show at most this many words of a command, and this many bytes of each.
_WORDS_MAX: Final = 32
_WORD_BYTES_MAX: Final = 128

# Commands whose arguments are passwords, access tokens, or tokens that let a client join a session. (The TOKEN of CLAIM
# is none: it is a fencing token, a number that every user may read with CLAIM INFO.)
_SECRET_COMMANDS: Final = frozenset([b"auth", b"hello", b"identify", b"token"])

# Escapes of bytes that cannot be written between double quotes. One byte is one character of latin-1.
_ESCAPED: Final = {byte: f"\\x{byte:02x}" for byte in range(256) if not 32 <= byte < 127} | {
    ord(byte): f"\\{letter}" for byte, letter in zip('\\"\n\r\t\a\b', '\\"nrtab', strict=True)
}


class ClientCommands:
    """The CLIENT and MONITOR commands."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._words: dict[bytes, Callable[[Client, list[bytes]], None]] = {
            b"LIST": self._list,
            b"ID": lambda caller, args: caller.reply.integer(caller.number),
            b"GETNAME": self._getname,
            b"SETNAME": self._setname,
            b"SETINFO": self._setinfo,
            b"KILL": self._kill,
            b"PAUSE": self._pause,
            b"REPLY": self._reply,
        }

    def client(self, caller: Client, args: list[bytes], now: int) -> None:
        """Run CLIENT LIST | ID | GETNAME | SETNAME | SETINFO | KILL | PAUSE | REPLY: list or change connections."""
        word = args[1].upper()
        run = self._words.get(word)
        if run is None:
            raise _unknown_form()
        if word in _ADMINISTRATIVE and not caller.groups & ADMIN:
            raise Refused(b"NOPERM this user has no permission to run the 'client " + word.lower() + b"' command")
        if word in _ADMINISTRATIVE:
            check_whole_server(caller)
        run(caller, args)

    def _list(self, caller: Client, args: list[bytes]) -> None:
        lines = [self._line(connection) for connection in self._server.clients]
        caller.reply.bulk("".join(lines).encode("utf-8", "replace"))

    def _line(self, connection: Client) -> str:
        now = self._server.turn.now
        flags = ("O" if connection.is_monitor else "") + ("b" if connection.is_waiting else "")
        flags += ("c" if connection.closing else "") + (
            "" if connection.local_address or connection.entry_node else "U"
        )
        pending, unsent = int(connection.inbox.buffer.pending()), connection.buffered()
        # A client can send any bytes as the name of a command. They must not look like other fields.
        command = printable(connection.last_command[:32]).replace(b" ", b"?").decode().lower() or "NULL"
        return (
            f"id={connection.number} addr={connection.address} fd={connection.fileno()} "
            f"name={connection.name.decode()} age={(now - connection.created) // 1000} "
            f"idle={max(0, now - connection.active) // 1000} flags={flags or 'N'} qbuf={pending} qbuf-free=0 "
            f"obl={connection.reply.length} oll={int(unsent > 0)} omem={unsent} events=r "
            f"cmd={command} user={connection.user_name} held={len(connection.connection.session.held)} "
            f"waits={_wait_word(connection.wait)} "
            f"lib-name={connection.library.decode()} lib-ver={connection.library_version.decode()}"
            f"{' via=' + connection.entry_node.decode() if connection.entry_node else ''}\n"
        )

    def _getname(self, caller: Client, args: list[bytes]) -> None:
        if caller.name:
            caller.reply.bulk(caller.name)
        else:
            caller.reply.null()

    def _setname(self, caller: Client, args: list[bytes]) -> None:
        if len(args) != 3:
            raise _unknown_form()
        caller.set_name(check_client_name(args[2]))
        caller.reply.ok()

    def _setinfo(self, caller: Client, args: list[bytes]) -> None:
        if len(args) != 4 or args[2].upper() not in (b"LIB-NAME", b"LIB-VER"):
            raise Refused(b"ERR Unrecognized option for CLIENT SETINFO; it takes LIB-NAME or LIB-VER and a value")
        value = check_client_name(args[3])
        if args[2].upper() == b"LIB-NAME":
            caller.library = value
        else:
            caller.library_version = value
        caller.reply.ok()

    def _kill(self, caller: Client, args: list[bytes]) -> None:
        if len(args) == 3:
            address = args[2].decode("utf-8", "replace")
            victims = [connection for connection in self._server.clients if connection.address == address]
            if not victims:
                raise Refused(b"ERR No such client")
            self._close(caller, victims)
            caller.reply.ok()
            return
        wanted, skip_me = _parse_kill(args)
        victims = [
            connection
            for connection in self._server.clients
            if wanted(connection) and not (skip_me and connection is caller)
        ]
        self._close(caller, victims)
        caller.reply.integer(len(victims))

    def _close(self, caller: Client, victims: list[Client]) -> None:
        for connection in victims:
            if connection is caller:
                # The caller gets its reply first.
                caller.closing = True
            else:
                connection.abort()

    def _pause(self, caller: Client, args: list[bytes]) -> None:
        ms = parse_integer(args[2]) if len(args) == 3 else NOT_A_NUMBER
        if ms == NOT_A_NUMBER:
            raise Refused(b"ERR timeout is not an integer or out of range")
        if ms < 0:
            raise Refused(b"ERR timeout is negative")
        turn = self._server.turn
        turn.pause_clients(min(turn.now + ms, NEVER))
        caller.reply.ok()

    def _reply(self, caller: Client, args: list[bytes]) -> None:
        word = args[2].upper() if len(args) == 3 else b""
        if word not in (b"ON", b"OFF", b"SKIP"):
            raise Refused(SYNTAX)
        caller.reply_mode = {b"ON": ANSWERED, b"OFF": SILENT, b"SKIP": SKIP_NEXT}[word]
        if word == b"ON":
            caller.reply.ok()

    def monitor(self, caller: Client, args: list[bytes], now: int) -> None:
        """Run MONITOR: from now on, send the caller every command that the server runs."""
        caller.is_monitor = True
        self._server.clients.monitors[caller] = None
        self._server.dispatcher.is_monitored = True
        caller.reply.ok()

    def show(self, caller: Client, args: list[bytes]) -> None:
        """Send a command of `caller` to all clients that ran MONITOR."""
        monitors = self._server.clients.monitors
        self._server.dispatcher.is_monitored = bool(monitors)
        seconds, ns = divmod(time.time_ns(), 1_000_000_000)
        shown = redacted(self._server.dispatcher, args)
        words = b" ".join(b'"' + quoted(word) + b'"' for word in shown)
        line = b"%d.%06d [%s] %s" % (seconds, ns // 1000, caller.address.encode(), words)
        for connection in monitors:
            # A part of a long command's reply may have been sent, so its client gets no line.
            if connection is not caller and not connection.busy:
                connection.reply.simple(line)
                self._server.turn.answered(connection)


def _wait_word(wait: Waiting | None) -> str:
    """Return the word for a client's wait in CLIENT LIST: no, put, job or take."""
    if wait is None:
        return "no"
    return "put" if isinstance(wait, PutWait) else "job" if isinstance(wait, EndWait) else "take"


def _parse_kill(args: list[bytes]) -> tuple[Callable[[Client], bool], bool]:
    """Parse CLIENT KILL. Return a function that selects clients, and whether to skip the caller itself."""
    tests: list[Callable[[Client], bool]] = []
    skip_me = True
    if len(args) < 4 or len(args) % 2:
        raise Refused(SYNTAX)
    for word, value in zip(args[2::2], args[3::2], strict=True):
        word = word.upper()
        if word == b"ID":
            number = parse_integer(value)
            if number == NOT_A_NUMBER:
                raise Refused(b"ERR client-id should be greater than 0")
            tests.append(lambda connection, number=number: connection.number == number)  # type: ignore[misc]
        elif word == b"ADDR":
            address = value.decode("utf-8", "replace")
            tests.append(lambda connection, address=address: connection.address == address)  # type: ignore[misc]
        elif word == b"TYPE":
            if value.lower() != b"normal":
                raise Refused(b"ERR Unknown client type '" + value[:32] + b"'")
        elif word == b"SKIPME" and value.lower() in (b"yes", b"no"):
            skip_me = value.lower() == b"yes"
        else:
            raise Refused(SYNTAX)
    return lambda connection: all(test(connection) for test in tests), skip_me


def redacted(dispatcher: Dispatcher, args: list[bytes]) -> list[bytes]:
    """Return the words of a command as other users may see them: shortened, and without secrets.

    `args` are the words of a RESP command. Over IPROTO they are the name of a function and its arguments.
    """
    command = dispatcher.find(args[0])
    name = command.name if command else b""
    shown = [_cut(word) for word in args[:_WORDS_MAX]]
    if name and args[0].lower() != name:
        # The new name of a renamed command is a secret.
        shown[0] = name
    if name in _SECRET_COMMANDS or (command is None and _is_secret_function(args[0])):
        return [*shown[:1], REDACTED] if len(args) > 1 else shown
    if name == b"call" and len(args) > 2 and _is_secret_function(args[1]):
        return [*shown[:2], REDACTED]
    if name == b"config":
        # This also holds for a command that will be refused, because the password was already sent.
        for at, word in enumerate(shown[2:], 3):
            if is_secret(word):
                return [*shown[:at], REDACTED]
    if len(args) > _WORDS_MAX:
        shown[-1] = b"... (%d more arguments)" % (len(args) - _WORDS_MAX + 1)
    return shown


def _is_secret_function(name: bytes) -> bool:
    """Return whether a function has a secret argument. Only `identify` has one, the token of a session."""
    return name.rpartition(b".")[2] == b"identify"


def is_secret(name: bytes) -> bool:
    setting = find(to_text(name))
    return setting is not None and setting.secret


def _cut(word: bytes) -> bytes:
    if len(word) <= _WORD_BYTES_MAX:
        return word
    return word[:_WORD_BYTES_MAX] + b"... (%d more bytes)" % (len(word) - _WORD_BYTES_MAX)


def _unknown_form() -> Refused:
    return Refused(b"ERR Syntax error, try CLIENT (LIST | KILL ip:port | GETNAME | SETNAME connection-name)")


def quoted(word: bytes) -> bytes:
    """Escape a word so that it can be written between double quotes."""
    return word.decode("latin-1").translate(_ESCAPED).encode()
