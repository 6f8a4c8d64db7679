"""Tokens: signed texts that log a client in as a user in place of the password, with limited rights and a limited time.

    pst1.PAYLOAD.SIGNATURE      both parts in base64url without padding

The payload is JSON: the user, the time of expiry, and, if they are limited, the command classes and the tube patterns.
The signature is the HMAC-SHA256 of the payload. The server stores no tokens. It checks the signature, which needs no
slow comparison of passwords, because a signature cannot be guessed.

The payload also has a fingerprint of the user's password. If the password changes or the user is removed, the
fingerprint is wrong, so all tokens of the user are revoked. The key is derived from the cluster secret, so that all
nodes of a cluster accept a token, or else from the secret key in the node's directory.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from dataclasses import dataclass
from typing import Any, Final

from penstock.core.errors import BadToken, OutOfRange
from penstock.node.caller import EVERYTHING, GROUPS
from penstock.server.config.words import to_bytes
from penstock.server.net.access import Account, Accounts

_PREFIX: Final = b"pst1."

# Fits in a cookie of a browser, together with its name and attributes.
TOKEN_BYTES_MAX: Final = 2_048

# Each pattern of a token is compared with all patterns of its user at every login.
TOKEN_PATTERNS_MAX: Final = 32

_FINGERPRINT_BYTES: Final = 12


@dataclass(frozen=True)
class Token:
    """The contents of a token. Its rights are the intersection of `groups` and `tubes` with those of the user."""

    user: str
    expires_ms: int
    fingerprint: str  # Of the user's password.
    groups: int  # A mask of the command classes.
    tubes: tuple[bytes, ...] | None  # Patterns. None: all tubes of the user.
    name: str  # Chosen by its creator; "" for none.


class Tokens:
    """Creates and checks the tokens of a server."""

    def __init__(self, secret: bytes, accounts: Accounts) -> None:
        """`secret` is shared by all servers that accept each other's tokens."""
        self._key = _digest(secret, b"penstock tokens")
        self._accounts = accounts

    def create(
        self, account: Account, expires_ms: int, groups: int, tubes: tuple[bytes, ...] | None, name: str
    ) -> bytes:
        """Return a new token for a user."""
        fields: dict[str, Any] = {"user": account.name, "expires": expires_ms, "password": self._fingerprint(account)}
        if groups != EVERYTHING:
            fields["commands"] = [word for word, bit in GROUPS.items() if groups & bit]
        if tubes is not None:
            fields["tubes"] = [text.decode("latin-1") for text in tubes]
        if name:
            fields["name"] = name
        payload = _base64(json.dumps(fields, separators=(",", ":")).encode())
        token = _PREFIX + payload + b"." + self._signature(payload)
        if len(token) > TOKEN_BYTES_MAX:
            raise OutOfRange(f"the token would have more than {TOKEN_BYTES_MAX} bytes; give it fewer tube patterns")
        return token

    def read(self, text: bytes) -> Token | None:
        """Return the contents of a token of this server, also of an expired one. Return None for any other text."""
        if len(text) > TOKEN_BYTES_MAX or not text.startswith(_PREFIX):
            return None
        payload, _, signature = text.removeprefix(_PREFIX).rpartition(b".")
        if not hmac.compare_digest(signature, self._signature(payload)):
            return None
        fields = json.loads(base64.urlsafe_b64decode(payload + b"=" * (-len(payload) % 4)))
        tubes = fields.get("tubes")
        return Token(
            fields["user"],
            fields["expires"],
            fields["password"],
            sum(GROUPS[word] for word in fields.get("commands", GROUPS)),
            None if tubes is None else tuple(text.encode("latin-1") for text in tubes),
            fields.get("name", ""),
        )

    def account(self, token: Token, now: int) -> Account:
        """Return the user of a token with the rights of the token. Raise BadToken if it is expired or revoked."""
        account = self._accounts.find(token.user)
        if token.expires_ms <= now:
            raise BadToken("the token has expired; create a new one")
        if account is None or not hmac.compare_digest(token.fingerprint, self._fingerprint(account)):
            raise BadToken("the token was revoked: its user was removed or has a new password; create a new one")
        tubes = None if token.tubes is None else list(token.tubes)
        return account.limited(token.groups, tubes, token.expires_ms, token.name)

    def _fingerprint(self, account: Account) -> str:
        found = _digest(self._key, b"password\0" + to_bytes(account.name) + b"\0" + account.credential)
        return _base64(found[:_FINGERPRINT_BYTES]).decode()

    def _signature(self, payload: bytes) -> bytes:
        return _base64(_digest(self._key, b"token\0" + payload))


def _digest(key: bytes, data: bytes) -> bytes:
    return hmac.digest(key, data, hashlib.sha256)


def _base64(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")
