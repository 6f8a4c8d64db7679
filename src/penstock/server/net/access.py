"""Users: their passwords, and which commands and tubes each of them may use.

The password of a user is compared with its SHA-256 or its scrypt hash. Scrypt takes tenths of a second, so this happens
in a thread (`SlowCheck`). When a password was right once, its keyed digest is kept in memory, so later logins with it
are as fast as with SHA-256.

A reply to a wrong password takes equally long for users who exist and for others: the password for an unknown name is
compared with that of a user who is chosen by a secret function of the name. So an unknown name takes as long as the
name of some user, always the same one.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Iterable
from typing import Final

from penstock.core.errors import OutOfRange
from penstock.core.limits import NEVER
from penstock.core.tube_patterns import EVERY_TUBE, TubePatterns
from penstock.node.caller import EVERYTHING, GROUPS
from penstock.node.client import DEFAULT_USER as DEFAULT_USER
from penstock.server.config.scrypt import ScryptHash
from penstock.server.config.words import to_bytes
from penstock.wire.bus import PATTERNS_MAX


class Account:
    """A user: its password, and the commands and tubes that it may use."""

    def __init__(
        self,
        name: str,
        secret: bytes | ScryptHash | None,
        groups: int = EVERYTHING,
        tubes: TubePatterns = EVERY_TUBE,
        chap: bytes = b"",
    ) -> None:
        """Create a user. `secret` is the SHA-256 or scrypt hash of the password, or None if any password is accepted.

        `chap` is the digest for logins over IPROTO (`chap_of`). If it is empty, such logins are refused.
        """
        self.name = name
        self.groups = groups
        self.chap = chap  # The SHA-1 of the SHA-1 of the password; empty if only a hash is configured.
        self._secret = secret
        self._proof = b""  # The proof (see `_proof_of`) of a password that has this scrypt hash; empty for none yet.
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
        return str(self._secret).encode() if isinstance(self._secret, ScryptHash) else self._secret or b""

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
        """Return whether the password is right. The comparison takes equally long for right and wrong passwords.

        If the user has a scrypt hash, the result is True only for a password that was right before.
        """
        if isinstance(self._secret, ScryptHash):
            return hmac.compare_digest(_proof_of(password), self._proof)
        return self._secret is None or hmac.compare_digest(hashlib.sha256(password).digest(), self._secret)

    @property
    def has_scrypt(self) -> bool:
        return isinstance(self._secret, ScryptHash)

    def matches_scrypt(self, password: bytes) -> bool:
        """Return whether the password has the scrypt hash of this user. This takes long, and is called in a thread."""
        return isinstance(self._secret, ScryptHash) and self._secret.matches(password)

    def keep_proof(self, password: bytes) -> None:
        """Make later comparisons with this password fast, because it has the scrypt hash of this user."""
        self._proof = _proof_of(password)

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


class SlowCheck:
    """The comparison of a password with a scrypt hash. `run` is called in a thread."""

    def __init__(self, name: str, password: bytes, judge: Account, is_known: bool) -> None:
        """`judge` is the user of this name or, if the name is unknown, another user."""
        self.key = (name, _proof_of(password))  # Equal for logins with the same name and password.
        self._password = password
        self._judge = judge
        self._is_known = is_known

    def run(self) -> bool:
        return self._judge.matches_scrypt(self._password)

    def account(self, is_right: bool) -> Account | None:
        """Return the user who is logged in if `run` returned `is_right`, or None."""
        if not (is_right and self._is_known):
            return None
        self._judge.keep_proof(self._password)
        return self._judge


class Accounts:
    """All users of a server, by name."""

    def __init__(self) -> None:
        self._users: dict[str, Account] = {}
        self._key = secrets.token_bytes(32)

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
        self,
        name: str,
        secret: bytes | ScryptHash | None,
        groups: Iterable[str],
        tubes: Iterable[bytes],
        chap: bytes = b"",
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
        """Return the user with this name and password, or None. Before, the caller has to call `slow_check`."""
        judge = self._judge(name)
        return judge if judge.has_password(password) and name in self._users else None

    def slow_check(self, name: str, password: bytes) -> SlowCheck | None:
        """Return the comparison that is needed for a login, or None if `log_in` returns its result at once."""
        judge, is_known = self._judge(name), name in self._users
        # For an unknown name, a fast refusal would show that the password is the one of some user.
        if judge.has_scrypt and not (is_known and judge.has_password(password)):
            return SlowCheck(name, password, judge, is_known)
        return None

    def _judge(self, name: str) -> Account:
        """Return the user of this name. For an unknown name, return another user, always the same one."""
        users = list(self._users.values()) or [_UNKNOWN_USER]
        chosen = int.from_bytes(hmac.digest(self._key, to_bytes(name), "sha256")) % len(users)
        return self._users.get(name, users[chosen])

    def log_in_by_scramble(self, name: str, scramble: bytes, salt: bytes) -> Account | None:
        """Return the user whose password made this scramble, or None."""
        user = self._users.get(name, _UNKNOWN_USER)
        return user if user.has_scrambled(scramble, salt) and user.chap else None

    def has_no_scramble(self, name: str) -> bool:
        """Return whether a user cannot log in over IPROTO, because only a hash of its password is configured."""
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


def _proof_of(password: bytes) -> bytes:
    """Return a digest of a password that is useless without the memory of this process."""
    return hmac.digest(_PROOF_KEY, password, "sha256")


_PROOF_KEY: Final = secrets.token_bytes(32)
ANONYMOUS: Final = Account("default", None)
_UNKNOWN_USER: Final = Account("", hashlib.sha256(b"nobody").digest(), 0)
