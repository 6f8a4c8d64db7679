"""Who may do what: users, their passwords, and what happens to those who guess."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterable
from typing import Final

from penstock.core.errors import OutOfRange
from penstock.core.tube_patterns import EVERY_TUBE, TubePatterns
from penstock.dialects.command import EVERYTHING, GROUPS
from penstock.server.words import to_bytes
from penstock.wire.bus import PATTERNS_MAX

# The user whom a password alone belongs to, as in Redis.
DEFAULT_USER: Final = "default"

# So many wrong passwords from an address in a minute are answered at once; the rest after a second each.
_WRONG_MAX: Final = 10
_WRONG_WINDOW_S: Final = 60.0
SLOW_ANSWER_S: Final = 1.0

# So many addresses are remembered.
_ADDRESSES_MAX: Final = 10_000


class Account:
    """Somebody with a password, who may run some groups of commands on some tubes."""

    def __init__(
        self,
        name: str,
        secret: bytes | None,
        groups: int = EVERYTHING,
        tubes: TubePatterns = EVERY_TUBE,
        chap: bytes = b"",
    ) -> None:
        """Take the SHA-256 of the password, or None where any password will do; and what scrambles are checked with."""
        self.name = name
        self.groups = groups
        self.chap = chap  # The SHA-1 of the SHA-1 of the password; empty where only the SHA-256 is known.
        self._secret = secret
        self.tubes = tubes

    def has_password(self, password: bytes) -> bool:
        """Tell whether this is its password, in the same time whether it is or not."""
        return self._secret is None or hmac.compare_digest(hashlib.sha256(password).digest(), self._secret)

    def has_scrambled(self, scramble: bytes, salt: bytes) -> bool:
        """Tell whether this is made of its password and a salt, by chap-sha1."""
        # The other side has sent sha1(password) xor sha1(salt + chap).
        mask = hashlib.sha1(salt + self.chap).digest()
        once = bytes(a ^ b for a, b in zip(scramble, mask, strict=False))
        is_right = hmac.compare_digest(hashlib.sha1(once).digest(), self.chap)
        return is_right and len(scramble) == len(mask)

    def grant(self, tube: bytes) -> None:
        """Let it use another tube."""
        if self.tubes.match(tube):
            return
        if len(self.tubes.texts) >= PATTERNS_MAX:
            raise OutOfRange(
                f"user {self.name!r} has {PATTERNS_MAX} patterns of tubes, as many as there may be; "
                "configure fewer that match more"
            )
        pattern = re.sub(r"([\\*?\[\]])", r"\\\1", tube.decode("latin-1"))
        self.tubes.add(pattern.encode("latin-1"))


class Accounts:
    """Everybody who may connect."""

    def __init__(self) -> None:
        self._users: dict[str, Account] = {}
        self._wrong: dict[str, list[float]] = {}  # When wrong passwords came, by address.

    def set_password(self, password: str) -> None:
        """Give the default user a password; empty for none."""
        if password:
            secret = hashlib.sha256(to_bytes(password)).digest()
            self._users[DEFAULT_USER] = Account(DEFAULT_USER, secret, chap=chap_of(to_bytes(password)))
        else:
            self._users.pop(DEFAULT_USER, None)

    def add(
        self, name: str, secret: bytes | None, groups: Iterable[str], tubes: Iterable[bytes], chap: bytes = b""
    ) -> None:
        """Let another user in."""
        mask = 0
        for group in groups:
            mask |= GROUPS[group]
        self._users[name] = Account(name, secret, mask, TubePatterns(list(tubes)), chap)

    @property
    def has_default_password(self) -> bool:
        """Whether a password alone says who somebody is."""
        return DEFAULT_USER in self._users

    @property
    def any(self) -> bool:
        """Whether clients have to say who they are."""
        return bool(self._users)

    def log_in(self, name: str, password: bytes) -> Account | None:
        """The user of this name and password. It takes as long when there is none of this name."""
        user = self._users.get(name)
        if user is None:
            _NOBODY.has_password(password)
            return None
        return user if user.has_password(password) else None

    def log_in_by_scramble(self, name: str, scramble: bytes, salt: bytes) -> Account | None:
        """The same of one who does not send the password, but proves to know it."""
        user = self._users.get(name, _NOBODY)
        return user if user.has_scrambled(scramble, salt) and user.chap else None

    def has_no_scramble(self, name: str) -> bool:
        """Whether of a user's password only what RESP needs is known."""
        return name in self._users and not self._users[name].chap

    def grant(self, name: str, tube: bytes) -> bool:
        """Let a user use another tube, until the server ends; tell whether there is such a user."""
        user = self._users.get(name)
        if user is not None:
            user.grant(tube)
        return user is not None

    def was_wrong(self, address: str, now: float) -> bool:
        """Somebody at an address gave a wrong password; tell whether its next answer should be slow."""
        times = [when for when in self._wrong.pop(address, []) if when > now - _WRONG_WINDOW_S]
        times = [*times[-_WRONG_MAX:], now]
        self._wrong[address] = times
        if len(self._wrong) > _ADDRESSES_MAX:
            del self._wrong[next(iter(self._wrong))]
        return len(times) > _WRONG_MAX


def chap_of(password: bytes) -> bytes:
    """What scrambles made of a password are checked with."""
    return hashlib.sha1(hashlib.sha1(password).digest()).digest()


ANYBODY: Final = Account("default", None)
_NOBODY: Final = Account("", hashlib.sha256(b"nobody").digest(), 0)
