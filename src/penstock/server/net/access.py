"""Users: their passwords, and which commands and tubes each of them may use."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterable
from typing import Final

from penstock.core.errors import OutOfRange
from penstock.core.limits import NEVER
from penstock.core.tube_patterns import EVERY_TUBE, TubePatterns
from penstock.node.caller import EVERYTHING, GROUPS
from penstock.node.client import DEFAULT_USER as DEFAULT_USER
from penstock.server.config.words import to_bytes
from penstock.wire.bus import PATTERNS_MAX


class Account:
    """A user: its password, and the commands and tubes that it may use."""

    def __init__(
        self,
        name: str,
        secret: bytes | None,
        groups: int = EVERYTHING,
        tubes: TubePatterns = EVERY_TUBE,
        chap: bytes = b"",
    ) -> None:
        """Create a user. `secret` is the SHA-256 of the password, or None if every password is accepted.

        `chap` is the digest for logins over IPROTO (`chap_of`). If it is empty, such logins are refused.
        """
        self.name = name
        self.groups = groups
        self.chap = chap  # The SHA-1 of the SHA-1 of the password; empty if only the SHA-256 is configured.
        self._secret = secret
        self.tubes = tubes
        self.truncates: set[bytes] = set()  # Tubes that the user was granted to truncate.
        self.user = self  # The user itself, if this is the account of a token.
        self.expires_ms = NEVER  # When the token of this account expires.
        self.token_name = ""

    @property
    def is_of_token(self) -> bool:
        """Return whether a client of this account logged in with a token."""
        return self.user is not self

    @property
    def credential(self) -> bytes:
        """Return bytes that differ for different passwords of a user."""
        return self._secret or b""

    def limited(self, groups: int, tubes: list[bytes] | None, expires_ms: int, token_name: str) -> Account:
        """Return the account of a token of this user: only these command classes and, unless None, these tubes."""
        patterns = self.tubes if tubes is None else self.tubes.within(tubes)
        account = Account(self.name, self._secret, self.groups & groups, patterns)
        account.truncates = self.truncates
        account.user = self
        account.expires_ms = expires_ms
        account.token_name = token_name
        return account

    def has_password(self, password: bytes) -> bool:
        """Return whether the password is right. The comparison takes equally long for right and wrong passwords."""
        return self._secret is None or hmac.compare_digest(hashlib.sha256(password).digest(), self._secret)

    def has_scrambled(self, scramble: bytes, salt: bytes) -> bool:
        """Return whether a chap-sha1 scramble was made from the password and `salt`."""
        # The client has sent sha1(password) xor sha1(salt + chap).
        mask = hashlib.sha1(salt + self.chap).digest()
        once = bytes(a ^ b for a, b in zip(scramble, mask, strict=False))
        is_right = hmac.compare_digest(hashlib.sha1(once).digest(), self.chap)
        return is_right and len(scramble) == len(mask)

    def grant(self, tube: bytes, truncate: bool = False) -> None:
        """Give the user access to another tube. If `truncate` is set, the user may also truncate the tube."""
        if len(self.tubes.texts) >= PATTERNS_MAX and not self.tubes.match(tube):
            raise OutOfRange(
                f"user {self.name!r} already has the maximum of {PATTERNS_MAX} tube patterns; "
                "configure fewer patterns that match more"
            )
        if truncate:
            if len(self.truncates) >= PATTERNS_MAX and tube not in self.truncates:
                raise OutOfRange(
                    f"user {self.name!r} may already truncate the maximum of {PATTERNS_MAX} tubes; "
                    "make the user an administrator of its tubes instead"
                )
            self.truncates.add(tube)
        if self.tubes.match(tube):
            return
        pattern = re.sub(r"([\\*?\[\]])", r"\\\1", tube.decode("latin-1"))
        self.tubes.add(pattern.encode("latin-1"))


class Accounts:
    """All users of a server, by name."""

    def __init__(self) -> None:
        self._users: dict[str, Account] = {}

    def set_password(self, password: str) -> None:
        """Set the password of the default user, or remove the user if `password` is empty.

        A changed password creates a new account, so clients that logged in with the old one are no longer admitted.
        """
        if not password:
            self._users.pop(DEFAULT_USER, None)
            return
        before = self._users.get(DEFAULT_USER)
        if before is None or not before.has_password(to_bytes(password)):
            secret = hashlib.sha256(to_bytes(password)).digest()
            self._users[DEFAULT_USER] = Account(DEFAULT_USER, secret, chap=chap_of(to_bytes(password)))

    def add(
        self, name: str, secret: bytes | None, groups: Iterable[str], tubes: Iterable[bytes], chap: bytes = b""
    ) -> None:
        """Add a user. `secret` and `chap` are digests of the password (see Account)."""
        mask = 0
        for group in groups:
            mask |= GROUPS[group]
        self._users[name] = Account(name, secret, mask, TubePatterns(list(tubes)), chap)

    @property
    def has_default_password(self) -> bool:
        """Return whether clients can log in with a password alone, because the default user exists."""
        return DEFAULT_USER in self._users

    @property
    def any(self) -> bool:
        """Return whether there are users, so that clients have to authenticate."""
        return bool(self._users)

    def admits(self, account: Account) -> bool:
        """Return whether a client may stay connected: its account is still valid, or there are no users."""
        return not self._users or self._users.get(account.name) is account.user

    def find(self, name: str) -> Account | None:
        """Return the user with this name, or None."""
        return self._users.get(name)

    def log_in(self, name: str, password: bytes) -> Account | None:
        """Return the user with this name and password, or None. An unknown name takes as long as a wrong password."""
        user = self._users.get(name)
        if user is None:
            _UNKNOWN_USER.has_password(password)
            return None
        return user if user.has_password(password) else None

    def log_in_by_scramble(self, name: str, scramble: bytes, salt: bytes) -> Account | None:
        """Return the user whose password made this scramble, or None."""
        user = self._users.get(name, _UNKNOWN_USER)
        return user if user.has_scrambled(scramble, salt) and user.chap else None

    def has_no_scramble(self, name: str) -> bool:
        """Return whether a user cannot log in over IPROTO, because only the SHA-256 of its password is configured."""
        return name in self._users and not self._users[name].chap

    def grant(self, name: str, tube: bytes, truncate: bool) -> bool:
        """Give a user access to another tube until the server ends. Return whether there is such a user.

        If `truncate` is set, the user may also truncate the tube.
        """
        user = self._users.get(name)
        if user is not None:
            user.grant(tube, truncate)
        return user is not None


def chap_of(password: bytes) -> bytes:
    """Return the SHA-1 of the SHA-1 of a password. It is used to check logins over IPROTO."""
    return hashlib.sha1(hashlib.sha1(password).digest()).digest()


ANONYMOUS: Final = Account("default", None)
_UNKNOWN_USER: Final = Account("", hashlib.sha256(b"nobody").digest(), 0)
