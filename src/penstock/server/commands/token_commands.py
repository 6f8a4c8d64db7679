"""TOKEN: create and describe tokens, which log clients in in place of a password (`net/tokens.py`)."""

from __future__ import annotations

from typing import Final

from penstock.core.durations import write_duration
from penstock.core.errors import BadToken, NoUsers, OutOfRange
from penstock.core.limits import NEVER
from penstock.dialects.native.arguments import Words, excerpt
from penstock.node.caller import EVERYTHING, GROUPS, Caller
from penstock.server.net.access import Account
from penstock.server.net.connection import Connection
from penstock.server.net.tokens import TOKEN_PATTERNS_MAX
from penstock.server.server import Server
from penstock.wire.errors import Refused

_TTL_MS: Final = 12 * 3_600_000
_TTL_MS_MAX: Final = 366 * 86_400_000
_NAME_CHARACTERS_MAX: Final = 64


class TokenCommands:
    """The TOKEN commands."""

    def __init__(self, server: Server) -> None:
        self._server = server

    def create(self, caller: Caller, args: list[bytes], now: int) -> None:
        """Run TOKEN CREATE [TTL d] [COMMANDS class,...] [TUBES pattern,...] [NAME text]: reply with a new token."""
        account = self._account(caller)
        ttl_ms, groups, tubes, name = _TTL_MS, EVERYTHING, None, ""
        words = Words(args, 2)
        while words.has_more():
            word = words.option()
            if word == b"TTL":
                ttl_ms = words.duration()
            elif word == b"COMMANDS":
                groups = _classes(words.value(), account)
            elif word == b"TUBES":
                tubes = _patterns(words.value(), account)
            elif word == b"NAME":
                name = _name(words.text())
            else:
                raise words.unknown(["TTL", "COMMANDS", "TUBES", "NAME"])
        if not 0 < ttl_ms <= _TTL_MS_MAX:
            raise OutOfRange(f"TTL must be at most {write_duration(_TTL_MS_MAX)}, and more than 0")
        if account.is_of_token:
            # A token must not give its holder more rights or more time than it has itself.
            groups &= account.groups
            if tubes is None and account.tubes is not account.user.tubes:
                tubes = tuple(account.tubes.texts)
            ttl_ms = min(ttl_ms, account.expires_ms - now)
        caller.reply.bulk(self._server.tokens.create(account.user, now + ttl_ms, groups, tubes, name))

    def info(self, caller: Caller, args: list[bytes], now: int) -> None:
        """Run TOKEN INFO [token]: describe a token, or the rights with which the caller has logged in."""
        if len(args) > 3:
            raise Words(args, 4).unknown([])
        if len(args) == 3:
            token = self._server.tokens.read(args[2])
            if token is None:
                raise BadToken()
            account = self._server.tokens.account(token, now)
        else:
            account = _connection(caller).user
        reply = caller.reply
        reply.map(5)
        reply.bulk(b"user")
        reply.bulk(account.name.encode())
        reply.bulk(b"name")
        reply.bulk(account.token_name.encode())
        reply.bulk(b"expires")
        if account.expires_ms == NEVER:
            reply.null()
        else:
            reply.integer(account.expires_ms)
        reply.bulk(b"commands")
        reply.bulks([word.encode() for word, bit in GROUPS.items() if account.groups & bit])
        reply.bulk(b"tubes")
        reply.bulks(account.tubes.texts)

    def _account(self, caller: Caller) -> Account:
        """Return the account of a caller who may create tokens."""
        accounts, account = self._server.accounts, _connection(caller).user
        if not accounts.any:
            raise NoUsers()
        if not accounts.admits(account):
            raise Refused(b"NOAUTH the password was changed after this client connected; log in again")
        return account


def _connection(caller: Caller) -> Connection:
    """Return the caller, which must be connected to this node: only this node has checked its password."""
    if not isinstance(caller, Connection):
        raise Refused(b"NOPERM a command about tokens is not run for a client of another node")
    return caller


def _classes(word: bytes, account: Account) -> int:
    """Return the mask of command classes in a list like `read,write`. The user must have all of them."""
    groups = 0
    for each in word.lower().split(b","):
        bit = GROUPS.get(each.decode("latin-1"))
        if bit is None:
            raise OutOfRange(f"COMMANDS must be some of {','.join(GROUPS)}, not {excerpt(each)}")
        groups |= bit
    if groups & ~account.groups:
        own = ",".join(name for name, bit in GROUPS.items() if account.groups & bit)
        raise Refused(f"NOPERM this client has only the command classes {own}".encode())
    return groups


def _patterns(word: bytes, account: Account) -> tuple[bytes, ...]:
    """Return the tube patterns in a list like `mail.*,news`. The user must have access to all tubes that they match."""
    patterns = tuple(word.split(b","))
    if not all(patterns) or len(patterns) > TOKEN_PATTERNS_MAX:
        raise OutOfRange(f"TUBES must be 1 to {TOKEN_PATTERNS_MAX} patterns, none of them empty")
    for pattern in patterns:
        if not account.tubes.covers(pattern):
            shown = excerpt(pattern).encode()
            raise Refused(b"NOPERM the pattern " + shown + b" is not within the tube patterns of this client")
    return patterns


def _name(name: str) -> str:
    if len(name) > _NAME_CHARACTERS_MAX or not name.isprintable():
        raise OutOfRange(f"NAME must be up to {_NAME_CHARACTERS_MAX} printable characters")
    return name
