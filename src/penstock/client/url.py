"""The URL of a server and the options of a connection: `penstock://[user:password@]host[:port][,host…][?option=value&…]`.

An argument of `connect` has precedence over the URL, and the URL over the default. Characters that have a meaning in a
URL are written as %XX: the password `p@ss` is `p%40ss`.
"""

from __future__ import annotations

import difflib
import os
import ssl
from dataclasses import dataclass, field
from typing import Final, TypedDict, Unpack
from urllib.parse import parse_qsl, unquote_to_bytes

from penstock.client.reach import Reachability
from penstock.core.durations import NO_DURATION, read_duration
from penstock.core.errors import BadUrl, OutOfRange, WrongType
from penstock.core.limits import NEVER
from penstock.keywords import check_keywords
from penstock.options import Duration, Seconds, duration_ms, to_bytes

DEFAULT_URL: Final = "penstock://127.0.0.1:7711"
DEFAULT_PORT: Final = 7711
VARIABLE: Final = "PENSTOCK_URL"

# How long a session keeps its jobs after its connection is lost.
GRACE_S: Final = 10
# How long one attempt to connect may take.
CONNECT_S: Final = 5
# How long a reply may take, beyond the time that the call waits.
ANSWER_S: Final = 60
# How long an unreachable server is retried. The first connection is tried only once, unless `retry_for` is given.
RETRY_S: Final = 20

_SCHEME: Final = "penstock://"
_DURATIONS: Final = ("grace", "connect_timeout", "timeout", "retry_for")
_FILES: Final = ("ca", "cert", "key")
_OPTIONS: Final = ("tls", *_FILES, "name", *_DURATIONS)
_YES: Final = ("1", "yes", "true")
_NO: Final = ("0", "no", "false")


@dataclass(frozen=True, kw_only=True)
class Target:
    """A server and the options of a connection to it."""

    seeds: tuple[tuple[str, int], ...]  # The addresses, which are tried in this order.
    user: str
    password: bytes
    tls: ssl.SSLContext | None
    name: str  # The name of this client, for CLIENT LIST.
    grace_ms: int
    connect_s: float
    answer_s: float | None  # How long a reply may take, beyond the time that the call waits. None: no limit.
    retry_s: float | None  # How long an unreachable server is retried. None: no limit.
    first_s: float | None  # The value of `retry_s` for the first connection; 0: it is tried once.
    reach: Reachability = field(compare=False)

    def __str__(self) -> str:
        """Return the addresses, without the password."""
        return ", ".join(address(*seed) for seed in self.seeds)


def address(host: str, port: int | str) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


@dataclass(frozen=True, kw_only=True)
class Pieces:
    """The parts of a URL as they were written. They are not checked yet."""

    scheme: str
    who: str | None  # The user and the password: user:password.
    hosts: str
    query: str | None

    def __str__(self) -> str:
        who = "" if self.who is None else f"{self.who}@"
        return f"{self.scheme}://{who}{self.hosts}" + ("" if self.query is None else f"?{self.query}")


def pieces(url: str) -> Pieces:
    """Split a URL. The last @ ends the user and the password, because a password can contain @ and slashes."""
    scheme, _, rest = url.partition("://")
    rest, question, query = rest.partition("?")
    who, at, hosts = rest.removesuffix("/").rpartition("@")
    return Pieces(scheme=scheme, who=who if at else None, hosts=hosts, query=query if question else None)


class ConnectOptions(TypedDict, total=False):
    """Options of a connection. Each can also be given in the URL; the argument has precedence. None means not given."""

    user: str | None  # Name of the user. Default: that of the URL.
    password: str | None  # Password of the user. Default: that of the URL.
    tls: bool | ssl.SSLContext | None  # Encrypt the connection. Default: only if ca, cert or key is given.
    ca: str | os.PathLike[str] | None  # File with the certificates that may sign the server's. Default: the system's.
    cert: str | os.PathLike[str] | None  # File with the certificate of this client.
    key: str | os.PathLike[str] | None  # File with the private key of `cert`.
    name: str | None  # Name of this client, for lists of clients.
    grace: Seconds | None  # How long the session keeps its jobs after its connection is lost. Default: 10 s.
    connect_timeout: Seconds | None  # How long one attempt to connect may take. Default: 5 s.
    timeout: Duration | None  # How long a reply may take, beyond the time that a call waits. Default: 60 s.
    retry_for: Duration | None  # How long an unreachable server is retried. Default: 20 s, but not for the first time.


_KEYWORDS: Final = frozenset(ConnectOptions.__annotations__)


def target(url: str | None = None, method: str = "connect", **options: Unpack[ConnectOptions]) -> Target:
    """Return the server of a URL. The default is the URL in PENSTOCK_URL, or else port 7711 of this machine.

    `method` is the public function that was called, for the error about a misspelt keyword.
    """
    check_keywords(method, options, _KEYWORDS, "url")
    retry_for = options.get("retry_for")
    if url is None:
        url = os.environ.get(VARIABLE) or DEFAULT_URL
    if not isinstance(url, str):
        raise WrongType(f"a server's URL is text, not {type(url).__name__}")
    url_user, url_password, seeds, said = _split(url)
    times = {
        "grace": (options.get("grace"), GRACE_S),
        "connect_timeout": (options.get("connect_timeout"), CONNECT_S),
        "timeout": (options.get("timeout"), ANSWER_S),
        "retry_for": (retry_for, RETRY_S),
    }
    ms = {what: _time(what, given, said, default) for what, (given, default) in times.items()}
    if ms["grace"] == NEVER or ms["connect_timeout"] in (0, NEVER):
        raise OutOfRange("grace and connect_timeout end some time, and a connection takes more than 0 seconds")
    retry_s = None if ms["retry_for"] == NEVER else ms["retry_for"] / 1000
    is_patient = retry_for is not None or "retry_for" in said
    ca, cert, key = options.get("ca"), options.get("cert"), options.get("key")
    files = [_file(given, what, said) for what, given in zip(_FILES, (ca, cert, key), strict=True)]
    user, password, name = options.get("user"), options.get("password"), options.get("name")
    return Target(
        seeds=tuple(seeds),
        user=url_user if user is None else to_bytes(user, "the user").decode(),
        password=url_password if password is None else to_bytes(password, "the password"),
        tls=_context(options.get("tls"), said.get("tls"), *files),
        name=said.get("name", "") if name is None else to_bytes(name, "the name of a client").decode(),
        grace_ms=ms["grace"],
        connect_s=ms["connect_timeout"] / 1000,
        answer_s=None if ms["timeout"] == NEVER else ms["timeout"] / 1000,
        retry_s=retry_s,
        first_s=retry_s if is_patient else 0.0,
        reach=Reachability(", ".join(address(*seed) for seed in seeds)),
    )


def _split(url: str) -> tuple[str, bytes, list[tuple[str, int]], dict[str, str]]:
    """Return the user, the password, the addresses and the options of a URL."""
    if not url.lower().startswith(_SCHEME):
        scheme = url.partition("://")[0] if "://" in url else ""
        got = f"this one begins with {scheme}://" if scheme else "this one does not begin with penstock://"
        raise BadUrl(f"a server's URL reads like penstock://host:7711, and {got}")
    found = pieces(url)
    where = found.hosts
    user, _, password = (found.who or "").partition(":")
    if "/" in where or "#" in where:
        raise BadUrl("a server's URL has nothing behind its hosts but options, as in ?tls=1")
    seeds = [_seed(part) for part in where.split(",")] if where else [("127.0.0.1", DEFAULT_PORT)]
    return _plain(user, "the user").decode(), _plain(password, "the password"), seeds, _options(found.query or "")


def _seed(text: str) -> tuple[str, int]:
    """Return the address of one host, with an optional port. IPv6 addresses stand in brackets."""
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise BadUrl("an IPv6 address stands in brackets, as in [::1]:7711")
        port = rest[1:]
        has_port = bool(rest)
    else:
        host, colon, port = text.partition(":")
        has_port = bool(colon)
        if ":" in port:
            raise BadUrl("an IPv6 address stands in brackets, as in [::1]:7711")
    if not host:
        raise BadUrl("a server's URL has an empty host")
    if has_port and not (port.isascii() and port.isdigit() and 1 <= int(port) <= 65_535):
        # Do not print a port that is not a number: it may be the password of a URL without @host.
        got = f", not {port}" if port.isascii() and port.isdigit() else ""
        raise BadUrl(f"a port is a number from 1 to 65535{got}")
    return _host(_plain(host, "the host").decode()), int(port) if has_port else DEFAULT_PORT


def _host(name: str) -> str:
    try:
        if b"\0" not in name.encode("idna"):
            return name
    except UnicodeError:
        pass
    raise BadUrl(f"no host has the name {name!r}")


def _plain(text: str, what: str) -> bytes:
    """Return a part of a URL with %XX decoded."""
    for at, sign in enumerate(text):
        if sign == "%":
            digits = text[at + 1 : at + 3]
            if len(digits) < 2 or not all(digit in "0123456789abcdefABCDEF" for digit in digits):
                raise BadUrl(f"{what} in a server's URL has a % without two hexadecimal digits; write % as %25")
    try:
        raw = unquote_to_bytes(text)
        raw.decode()
    except UnicodeError:
        raise BadUrl(f"{what} in a server's URL is not UTF-8") from None
    return raw


def _options(query: str) -> dict[str, str]:
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query), errors="strict")
    except ValueError:
        raise BadUrl("the options of a server's URL read like ?tls=1&grace=30s") from None
    for name, _ in pairs:
        if name not in _OPTIONS:
            close = difflib.get_close_matches(name, _OPTIONS, 1, 0.6)
            hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(_OPTIONS)}"
            raise BadUrl(f"a server's URL has no option {name!r}; {hint}")
    return dict(pairs)


def _time(what: str, given: Duration | None, said: dict[str, str], default: int) -> int:
    if given is not None:
        return duration_ms(given, what)
    if what not in said:
        return default * 1000
    ms = read_duration(said[what].encode())
    if ms == NO_DURATION:
        raise BadUrl(f"{what} in a server's URL is a time like 30, 1.5s, 250ms or forever, not {said[what]!r}")
    return ms


def _file(given: str | os.PathLike[str] | None, what: str, said: dict[str, str]) -> str | None:
    return said.get(what) if given is None else os.fspath(given)


def _context(
    given: bool | ssl.SSLContext | None, said: str | None, ca: str | None, cert: str | None, key: str | None
) -> ssl.SSLContext | None:
    if isinstance(given, ssl.SSLContext):
        return given
    if said is not None and said.lower() not in (*_YES, *_NO):
        raise BadUrl(f"tls in a server's URL is 1 or 0, not {said!r}")
    wanted = given if given is not None else said.lower() in _YES if said is not None else None
    if wanted is False and (ca or cert or key):
        raise BadUrl("ca, cert and key are for TLS: leave them out, or set tls=1")
    if not (wanted or ca or cert or key):
        return None
    if key and not cert:
        raise BadUrl("a key goes with a certificate: give cert as well")
    try:
        context = ssl.create_default_context(cafile=ca)
        if cert:
            context.load_cert_chain(cert, key)
    except (OSError, ssl.SSLError) as error:
        files = ", ".join(file for file in (ca, cert, key) if file)
        raise BadUrl(f"the certificates cannot be used ({files}): {error}") from None
    return context
