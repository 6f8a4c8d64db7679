"""The credentials of a request: HTTP Basic, a bearer token, or the cookie of the dashboard.

The API checks none of them. It authenticates to the node with them, and keeps only a digest to find the connections
that were opened with the same credentials. The key of the digest exists only in this process.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from typing import Final

from penstock.web.refusals import Refused

COOKIE: Final = "penstock"
CSRF_HEADER: Final = "X-CSRF-Token"

BASIC: Final = "basic"
BEARER: Final = "bearer"
BY_COOKIE: Final = "cookie"
NONE: Final = "none"

_KEY: Final = secrets.token_bytes(32)
_HEADER_BYTES_MAX: Final = 8_192


class Credentials:
    """What a request presents, before the node has checked it."""

    __slots__ = ("_value", "key", "kind")

    def __init__(self, kind: str, value: bytes) -> None:
        self.kind = kind
        self._value = value
        self.key = hashlib.blake2b(value, key=_KEY, digest_size=16, person=kind.encode()).digest()

    def __repr__(self) -> str:
        return f"<credentials {self.kind}>"

    def user_and_secret(self) -> tuple[str, bytes] | None:
        """Return the user and its password or token; None if the request presents nothing."""
        if self.kind == NONE:
            return None
        if self.kind == BASIC:
            try:
                user, colon, password = base64.b64decode(self._value, validate=True).partition(b":")
                name = user.decode()
            except (binascii.Error, ValueError):
                raise _malformed("Basic") from None
            if not colon:
                raise _malformed("Basic")
            return name or "default", password
        # A token contains the name of its user, so the node accepts it for the default user.
        return "default", self._value

    def csrf_token(self) -> str:
        """Return the token that an unsafe request with this cookie has to present in a header."""
        return hashlib.blake2b(self._value, digest_size=16, person=b"penstock csrf").hexdigest()

    def is_csrf_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode("utf-8", "replace"), self.csrf_token().encode())


ANONYMOUS: Final = Credentials(NONE, b"")


def credentials_of(authorization: bytes | None, cookie: bytes | None) -> Credentials:
    """Return the credentials in the headers of a request. Authorization has precedence over the cookie."""
    if authorization is not None:
        scheme, _, value = authorization.partition(b" ")
        value = value.strip()
        if len(value) > _HEADER_BYTES_MAX:
            raise Refused("WRONGPASS", "the header Authorization is too long")
        word = scheme.lower()
        if word == b"basic":
            return Credentials(BASIC, value)
        if word == b"bearer" and value:
            return Credentials(BEARER, value)
        raise Refused("WRONGPASS", "the header Authorization needs Basic or Bearer credentials")
    if cookie is not None and (value := cookie_value(cookie)):
        return Credentials(BY_COOKIE, value)
    return ANONYMOUS


def cookie_value(header: bytes) -> bytes:
    """Return the value of the dashboard's cookie in a Cookie header, or b""."""
    for part in header.split(b";"):
        name, _, value = part.strip().partition(b"=")
        if name == COOKIE.encode():
            return value[:_HEADER_BYTES_MAX]
    return b""


def new_cookie(token: bytes, path: str, max_age_s: int, is_secure: bool) -> str:
    """Return the Set-Cookie header for a user that has signed in."""
    return _cookie(token.decode("ascii"), path, max_age_s, is_secure)


def no_cookie(path: str, is_secure: bool) -> str:
    """Return the Set-Cookie header that removes the cookie."""
    return _cookie("", path, 0, is_secure)


def _cookie(value: str, path: str, max_age_s: int, is_secure: bool) -> str:
    secure = "; Secure" if is_secure else ""
    return f"{COOKIE}={value}; Path={path or '/'}; Max-Age={max_age_s}; HttpOnly; SameSite=Strict{secure}"


def _malformed(scheme: str) -> Refused:
    return Refused("WRONGPASS", f"the header Authorization has malformed {scheme} credentials")
