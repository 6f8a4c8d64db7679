"""The commands about a connection: HELLO, AUTH, PING, TIME and COMMAND."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Final

from penstock._version import __version__
from penstock.cluster.messages import (
    NODE_FAILED,
    NODE_LEAVING,
    NODE_NO_DISK,
    NODE_NO_MEMORY,
    NODE_PAUSED,
    NODE_SUSPECTED,
)
from penstock.cluster.peers import NOADDR
from penstock.core.errors import BadToken
from penstock.node.caller import GROUPS
from penstock.node.dispatch import Command
from penstock.server.config.words import to_text
from penstock.server.net.access import DEFAULT_USER, Account, SlowCheck
from penstock.server.net.connection import Connection
from penstock.server.net.logins import Login
from penstock.server.server import Server
from penstock.wire.errors import SYNTAX, Refused

# The maximum length of a client's name.
_NAME_BYTES_MAX: Final = 1_024

# COMMAND describes at most this many commands at a time. A description is much longer than the name that asks for it.
_DESCRIBED_COMMANDS_MAX: Final = 1_000

# The maximum length of a password.
_PASSWORD_BYTES_MAX: Final = 512

_WRONG: Final = b"ERR invalid password"
_WRONG_PAIR: Final = b"WRONGPASS invalid username-password pair or user is disabled."

# The flags of a command in COMMAND by their letters, in the order of the reply.
_FLAGS: Final = {"w": b"write", "r": b"readonly", "m": b"denyoom", "a": b"admin", "l": b"loading", "F": b"fast"}


class ConnectionCommands:
    """The HELLO, AUTH, PING, TIME and COMMAND commands."""

    def __init__(self, server: Server) -> None:
        self._server = server

    def hello(self, caller: Connection, args: list[bytes], now: int) -> None:
        """Run HELLO: without arguments as in Disque, or HELLO 2|3 [AUTH user password] [SETNAME name] as in Redis."""
        if len(args) == 1:
            if not caller.is_authenticated:
                raise Refused(b"NOAUTH Authentication required.")
            self._introduce(caller, now)
            return
        if args[1] not in (b"2", b"3"):
            raise Refused(b"NOPROTO unsupported protocol version")
        password, user, name = None, b"", None
        at = 2
        while at < len(args):
            word = args[at].upper()
            if word == b"AUTH" and at + 2 < len(args):
                user, password = args[at + 1], args[at + 2]
                at += 3
            elif word == b"SETNAME" and at + 1 < len(args):
                name = check_client_name(args[at + 1])
                at += 2
            else:
                raise Refused(b"ERR Syntax error in HELLO option '" + word[:32] + b"'")
        greet = partial(self._greet, caller, args[1], name)
        if password is not None:
            self._log_in(caller, to_text(user), password, _WRONG_PAIR, greet)
            return
        if not caller.is_authenticated:
            raise Refused(
                b"NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH "
                b"<user> <pass> option can be used to authenticate the client and select the RESP protocol version at "
                b"the same time"
            )
        greet()

    def _greet(self, caller: Connection, version: bytes, name: bytes | None) -> None:
        """Reply to Redis's HELLO, switch to the requested version of RESP, and set the client's name if given."""
        if name is not None:
            caller.set_name(name)
        reply = caller.reply
        reply.resp3 = version == b"3"
        reply.map(7)
        for word, value in ((b"server", b"penstock"), (b"version", __version__.encode())):
            reply.bulk(word)
            reply.bulk(value)
        reply.bulk(b"proto")
        reply.integer(int(version))
        reply.bulk(b"id")
        reply.integer(caller.number)
        for word, value in ((b"mode", b"standalone"), (b"role", b"master")):
            reply.bulk(word)
            reply.bulk(value)
        reply.bulk(b"modules")
        reply.array(0)

    def _introduce(self, caller: Connection, now: int) -> None:
        """Reply to Disque's HELLO with this node and its peers."""
        reply, members = caller.reply, self._server.membership.members
        self._server.membership.cluster.announce_condition(now)
        flags = members.condition | (NODE_LEAVING if self._server.context.leaving else 0)
        known = [peer for peer in members.peers.values() if peer.is_member()]
        reply.array(3 + len(known))
        reply.integer(1)
        node = self._server.node_id.encode()
        reply.bulk(node)
        host, _, port = self._server.membership.address_for(caller.local_address).rpartition(":")
        reply.bulks([node, host.strip("[]").encode(), port.encode(), b"%d" % _priority(flags, True)])
        for peer in known:
            priority = _priority(int(peer.flags), peer.linked)
            reply.bulks([peer.id, peer.host.encode(), b"%d" % int(peer.port), b"%d" % priority])

    def auth(self, caller: Connection, args: list[bytes], now: int) -> None:
        """Run AUTH [user] password: log the client in. A token can take the place of the password."""
        if len(args) > 3:
            raise Refused(SYNTAX)
        if len(args) == 3:
            self._log_in(caller, to_text(args[1]), args[2], _WRONG_PAIR, caller.reply.ok)
        elif not self._server.accounts.has_default_password and self._server.tokens.read(args[1]) is None:
            raise Refused(b"ERR Client sent AUTH, but no password is set")
        else:
            self._log_in(caller, DEFAULT_USER, args[1], _WRONG, caller.reply.ok)

    def _log_in(
        self, caller: Connection, name: str, password: bytes, refusal: bytes, accept: Callable[[], None]
    ) -> None:
        """Log a client in. If the password is right, `accept` writes the reply. Otherwise the reply is `refusal`."""
        self._server.logins.begin(caller, _RespLogin(self._server, caller, name, password, refusal, accept))

    def ping(self, caller: Connection, args: list[bytes], now: int) -> None:
        """Run PING [message]: reply with PONG, or with the message."""
        if len(args) > 2:
            raise Refused(b"ERR wrong number of arguments for 'ping' command")
        if len(args) == 2:
            caller.reply.bulk(args[1])
        else:
            caller.reply.simple(b"PONG")

    def time(self, caller: Connection, args: list[bytes], now: int) -> None:
        """Run TIME: reply with the seconds since 1970, and the microseconds of the second."""
        seconds, ns = divmod(time.time_ns(), 1_000_000_000)
        caller.reply.bulks([b"%d" % seconds, b"%d" % (ns // 1000)])

    def command(self, caller: Connection, args: list[bytes], now: int) -> None:
        """Run COMMAND [COUNT | LIST | INFO name ... | DOCS name ...]: describe commands.

        A user sees the commands that it may run. A renamed command is shown only to a user who asks for its new name.
        """
        commands = {
            name: command for name, command in self._server.dispatcher.commands.items() if command.group & caller.groups
        }
        listed = {name: command for name, command in commands.items() if name == command.name}
        reply = caller.reply
        word = args[1].upper() if len(args) > 1 else b""
        if len(args) - 2 > _DESCRIBED_COMMANDS_MAX:
            raise Refused(b"ERR COMMAND describes up to %d commands at a time" % _DESCRIBED_COMMANDS_MAX)
        if len(args) == 1:
            reply.array(len(listed))
            for command in listed.values():
                self._write_command(caller, command)
        elif word == b"COUNT" and len(args) == 2:
            reply.integer(len(listed))
        elif word == b"LIST" and len(args) == 2:
            reply.bulks(list(listed))
        elif word == b"INFO":
            names = args[2:] or list(listed)
            reply.array(len(names))
            for name in names:
                found = commands.get(name.lower())
                if found is None:
                    reply.null()
                else:
                    self._write_command(caller, found)
        elif word == b"DOCS":
            known = {name.lower(): commands[name.lower()] for name in args[2:] or listed if name.lower() in commands}
            reply.map(len(known))
            for name, found in known.items():
                reply.bulk(name)
                self._write_docs(caller, found)
        else:
            raise Refused(b"ERR Unknown subcommand or wrong number of arguments.")

    def _write_docs(self, caller: Connection, command: Command) -> None:
        """Write the help that redis-cli shows for a command.

        All arguments are written as one, because the format of redis-cli cannot describe our grammar.
        """
        reply = caller.reply
        reply.map(4 if command.members else 3)
        if command.members:
            reply.bulk(b"subcommands")
            reply.map(len(command.members))
            for member in command.members:
                reply.bulk(member.name.replace(b" ", b"|"))
                self._write_docs(caller, member)
        reply.bulk(b"summary")
        reply.bulk(command.summary.encode())
        reply.bulk(b"group")
        reply.bulk(next(name for name, bit in GROUPS.items() if command.group & bit).encode())
        reply.bulk(b"arguments")
        reply.array(1 if command.grammar else 0)
        if command.grammar:
            reply.map(2)
            for text in ("name", command.grammar, "type", "string"):
                reply.bulk(text.encode())

    def _write_command(self, caller: Connection, command: Command) -> None:
        reply = caller.reply
        # Clients of RESP 3 expect the longer form of newer Redis versions.
        reply.array(10 if reply.resp3 else 6)
        reply.bulk(command.name)
        reply.integer(command.arity)
        reply.array(len(command.flags))
        for letter, flag in _FLAGS.items():
            if letter in command.flags:
                reply.simple(flag)
        for _ in range(3):
            reply.integer(0)
        if reply.resp3:
            for _ in range(4):
                reply.array(0)


class _RespLogin(Login):
    """A login by AUTH or HELLO."""

    def __init__(
        self,
        server: Server,
        caller: Connection,
        name: str,
        password: bytes,
        refusal: bytes,
        accept: Callable[[], None],
    ) -> None:
        self._accounts = server.accounts
        self._tokens = server.tokens
        self._reply = caller.reply
        self._name = name
        self._password = password
        self._refusal = refusal
        self._accept = accept

    def account(self) -> Account | None:
        if len(self._password) > _PASSWORD_BYTES_MAX:
            return None
        return self._accounts.log_in(self._name, self._password)

    def slow_check(self) -> SlowCheck | None:
        if len(self._password) > _PASSWORD_BYTES_MAX:
            return None
        return self._accounts.slow_check(self._name, self._password)

    def account_of_token(self, now: int) -> Account | None:
        token = self._tokens.read(self._password)
        # A client that gives no user name logs in as the default user. A token contains the name.
        if token is None or self._name not in (token.user, DEFAULT_USER):
            return None
        return self._tokens.account(token, now)

    def accept(self) -> None:
        self._accept()

    def refuse(self) -> None:
        self._reply.error(self._refusal)

    def refuse_token(self, reason: BadToken) -> None:
        self._reply.error(b"WRONGPASS " + str(reason).encode())

    def refuse_as_busy(self, sentence: str) -> None:
        self._reply.error(b"BUSY " + sentence.encode())


def _priority(flags: int, is_linked: bool) -> int:
    """Return the priority of a node for clients. The lowest is the best. Disque uses 1, 5, 10 and 100."""
    if flags & (NODE_FAILED | NODE_LEAVING | NOADDR):
        return 100
    if flags & NODE_SUSPECTED:
        return 10
    if flags & (NODE_NO_DISK | NODE_NO_MEMORY):
        return 8
    if not is_linked:
        return 5
    return 2 if flags & NODE_PAUSED else 1


def check_client_name(name: bytes) -> bytes:
    """Return the name of a client if it is valid. Raise an error if it is too long or would break CLIENT LIST."""
    if len(name) > _NAME_BYTES_MAX:
        raise Refused(b"ERR Client names may have up to %d bytes." % _NAME_BYTES_MAX)
    if any(byte < 33 or byte > 126 for byte in name):
        raise Refused(b"ERR Client names cannot contain spaces, newlines or special characters.")
    return name
