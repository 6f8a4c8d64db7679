"""What is said first on a connection, and what becomes of it: who we are, which session, and whether that is Penstock.

Pure: `words` is what to send, `read` what to make of the answers.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from typing import Any

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
from penstock.wire.answers import Refusal


@dataclass(frozen=True)
class Greeted:
    """What a server said to a connection."""

    number: int  # Of the connection.
    token: str  # Of its session.
    max_body: int  # How many bytes a body may have.
    nodes: object  # What the node says of all nodes.


def words(target: Target, token: str, grace_ms: int) -> list[list[bytes]]:
    """The first commands on a connection, which are sent at once. The session is made if there is no token."""
    identify = [b"IDENTIFY", token.encode()] if token else [b"IDENTIFY"]
    hello, *about = plain_words(target)
    return [hello, [*identify, b"GRACE", b"%dms" % grace_ms], *about, [b"HELLO"]]


def plain_words(target: Target) -> list[list[bytes]]:
    """The same for a connection that takes nothing, and so wants no session: the log need not know of it."""
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


def read(seed: tuple[str, int], answers: list[object]) -> Greeted:
    """What the answers say. What is no Penstock, or does not let us in, is refused in a sentence."""
    hello = read_plain(seed, answers)
    identity = answers[1]
    if isinstance(identity, Refusal):
        raise refusal(identity)
    if not isinstance(identity, dict):
        raise _strange(seed)
    try:
        return Greeted(number(hello[b"id"]), token_of(identity), max(0, number(identity[b"max-body"])), answers[-1])
    except (BadAnswer, KeyError, ValueError):
        raise _strange(seed) from None


def read_plain(seed: tuple[str, int], answers: list[object]) -> dict[Any, Any]:
    """The same where there is no session: what the server says of itself."""
    where = address(*seed)
    hello = answers[0]
    if isinstance(hello, Refusal):
        raise _refused(where, hello)
    server = hello.get(b"server") if isinstance(hello, dict) else None
    if server != b"penstock":
        name = server.decode("utf-8", "replace") if isinstance(server, bytes) else "something else"
        raise WrongServer(f"{where} is {name}, not Penstock; check the address and the port")
    if not isinstance(hello, dict):
        raise _strange(seed)
    return hello


def _strange(seed: tuple[str, int]) -> WrongServer:
    return WrongServer(f"{address(*seed)} does not greet like this Penstock does; check its version")


def refusal(answer: Refusal) -> CommandError:
    """The engine's own error behind a refusal of a server."""
    code, _, sentence = answer.line.decode("utf-8", "backslashreplace").partition(" ")
    if not code.isupper():
        return CommandError(answer.line.decode("utf-8", "backslashreplace"))
    if code in (Unauthenticated.code, WrongPassword.code):
        # Ours say what to do with a URL.
        return Unauthenticated() if code == Unauthenticated.code else WrongPassword()
    return refusal_of(code, sentence)


def _refused(where: str, answer: Refusal) -> Exception:
    known = refusal(answer)
    if isinstance(known, (Unauthenticated, WrongPassword, UnknownSession)):
        return known
    if "unknown command" in str(known).lower():
        return WrongServer(f"{where} does not know HELLO, so it is no Penstock; check the address and the port")
    return NoServer(f"{where} does not let us in: {known}")


def no_answer(target: Target, seed: tuple[str, int], error: Exception) -> NoServer:
    """Why a connection could not be made, in a sentence that says what to do."""
    where = address(*seed)
    if isinstance(error, NoServer):
        return error
    if isinstance(error, ProtocolError):
        return WrongServer(f"{where} is no Penstock, {_kind(str(error))}; check the address and the port")
    if isinstance(error, ssl.SSLCertVerificationError):
        return NoServer(f"the certificate of {where} is not good: {error.verify_message}; give the right ca=")
    if isinstance(error, ssl.SSLError):
        return WrongServer(f"{where} does not speak TLS, or not with us ({error.reason}); check the port and tls=")
    if isinstance(error, EOFError):
        hint = "" if target.tls else "; if it speaks TLS, say tls=1"
        return WrongServer(f"{where} hung up instead of greeting us{hint}")
    if isinstance(error, TimeoutError):
        return NoServer(f"{where} does not answer; check the address and that a server runs there")
    if isinstance(error, ConnectionRefusedError):
        return NoServer(f"nobody listens on {where}; start a server with `penstock serve`, or check the address")
    return NoServer(f"{where} cannot be reached: {getattr(error, 'strerror', None) or error}; check the address")


def _kind(sentence: str) -> str:
    if "HTTP/" in sentence:
        return "it answers like a web server"
    if "Tarantool" in sentence:
        return "it answers like a Tarantool (this client speaks RESP)"
    if "\\x15" in sentence:
        return "it speaks TLS (say tls=1)"
    return "it does not speak RESP"
