"""The handshake of a connection: authentication, the session, and the check that the server is Penstock.

`session_commands` and `plain_commands` return the commands to send. `read_session` and `read_plain` interpret the
replies. This module does no I/O.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from typing import Any, Final

from penstock._version import __version__
from penstock.client.commands import number, token_of
from penstock.client.url import Target, address
from penstock.core.errors import (
    BadAnswer,
    CommandError,
    NoServer,
    ProtocolError,
    Unauthenticated,
    UnknownSession,
    WrongPassword,
    WrongServer,
    refusal_of,
)
from penstock.wire.resp_client import ErrorReply

# The errors after which a connection cannot be used any more.
LOST: Final = (OSError, EOFError, ProtocolError)


@dataclass(frozen=True)
class Handshake:
    """The result of a handshake."""

    number: int  # The number of the connection.
    token: str  # The token of its session.
    max_body: int  # The maximum length of a body in bytes.
    nodes: object  # The list of all nodes, as the node reports it.


def session_commands(target: Target, token: str, grace_ms: int) -> list[list[bytes]]:
    """Return the commands that open a connection and join the session of this token, or begin one if it is empty."""
    identify = [b"IDENTIFY", token.encode()] if token else [b"IDENTIFY"]
    hello, *about = plain_commands(target)
    return [hello, [*identify, b"GRACE", b"%dms" % grace_ms], *about, [b"HELLO"]]


def plain_commands(target: Target) -> list[list[bytes]]:
    """Return the commands that open a connection without a session. A session would be written to the journal."""
    hello = [b"HELLO", b"3"]
    if target.user or target.password:
        hello += [b"AUTH", (target.user or "default").encode(), target.password]
    if target.name:
        hello += [b"SETNAME", target.name.encode()]
    return [
        hello,
        [b"CLIENT", b"SETINFO", b"LIB-NAME", b"penstock"],
        [b"CLIENT", b"SETINFO", b"LIB-VER", __version__.encode()],
    ]


def read_session(seed: tuple[str, int], answers: list[object]) -> Handshake:
    """Return the result of a handshake. Raise an error if the server refuses it or is not Penstock."""
    hello = read_plain(seed, answers)
    identity = answers[1]
    if isinstance(identity, ErrorReply):
        raise refusal(identity)
    if not isinstance(identity, dict):
        raise _strange(seed)
    try:
        return Handshake(number(hello[b"id"]), token_of(identity), max(0, number(identity[b"max-body"])), answers[-1])
    except (BadAnswer, KeyError, ValueError):
        raise _strange(seed) from None


def read_plain(seed: tuple[str, int], answers: list[object]) -> dict[Any, Any]:
    """Return the reply to HELLO. Raise an error if the server refuses the client or is not Penstock."""
    where = address(*seed)
    hello = answers[0]
    if isinstance(hello, ErrorReply):
        raise _refused(where, hello)
    server = hello.get(b"server") if isinstance(hello, dict) else None
    if server != b"penstock":
        name = server.decode("utf-8", "replace") if isinstance(server, bytes) else "something else"
        raise WrongServer(f"{where} is {name}, not Penstock; check the address and the port")
    if not isinstance(hello, dict):
        raise _strange(seed)
    return hello


def _strange(seed: tuple[str, int]) -> WrongServer:
    return WrongServer(f"{address(*seed)} answers the handshake with something else; check the server's version")


def refusal(answer: ErrorReply) -> CommandError:
    """Convert an error reply of a server to an exception, and return the exception."""
    code, _, sentence = answer.line.decode("utf-8", "backslashreplace").partition(" ")
    if not code.isupper():
        return CommandError(answer.line.decode("utf-8", "backslashreplace"))
    if code in (Unauthenticated.code, WrongPassword.code):
        # The sentences of these classes explain where the password belongs in a URL.
        return Unauthenticated() if code == Unauthenticated.code else WrongPassword()
    return refusal_of(code, sentence)


def _refused(where: str, answer: ErrorReply) -> Exception:
    known = refusal(answer)
    if isinstance(known, (Unauthenticated, WrongPassword, UnknownSession)):
        return known
    if "unknown command" in str(known).lower():
        return WrongServer(f"{where} does not know HELLO, so it is no Penstock; check the address and the port")
    return NoServer(f"{where} refuses the connection: {known}")


def no_answer(target: Target, seed: tuple[str, int], error: Exception) -> NoServer:
    """Return the error for a failed attempt to connect. Its sentence says what to do."""
    where = address(*seed)
    if isinstance(error, NoServer):
        return error
    if isinstance(error, ProtocolError):
        return WrongServer(f"{where} is no Penstock, {_kind(str(error))}; check the address and the port")
    if isinstance(error, ssl.SSLCertVerificationError):
        return NoServer(f"the certificate of {where} is not good: {error.verify_message}; give the right ca=")
    if isinstance(error, ssl.SSLError):
        return WrongServer(f"the TLS handshake with {where} failed ({error.reason}); check the port and tls=")
    if isinstance(error, EOFError):
        hint = "" if target.tls else "; if the port is encrypted, set tls=1"
        return WrongServer(f"{where} closed the connection during the handshake{hint}")
    if isinstance(error, TimeoutError):
        return NoServer(f"{where} does not answer; check the address and that a server runs there")
    if isinstance(error, ConnectionRefusedError):
        return NoServer(f"no server listens on {where}; start one with `penstock serve`, or check the address")
    return NoServer(f"{where} cannot be reached: {getattr(error, 'strerror', None) or error}; check the address")


def _kind(sentence: str) -> str:
    if "HTTP/" in sentence:
        return "it answers like a web server"
    if "Tarantool" in sentence:
        return "it answers like a Tarantool (this client speaks RESP)"
    if "\\x15" in sentence:
        return "it speaks TLS (set tls=1)"
    return "it does not speak RESP"
