"""The setting `users`: users with their own passwords, commands and tubes.

    [users.alice]                                           user alice password:s3cret commands:read tubes:mail.*,q?
    password = "s3cret"
    commands = ["read"]
    tubes = ["mail.*", "q?"]

The left side is TOML, the right side is Disque's form.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from penstock.server.config.kinds import Collected, Refused
from penstock.server.config.scrypt import read_hash
from penstock.server.config.words import to_bytes
from penstock.wire.bus import PATTERNS_MAX

COMMAND_CLASSES: Final = ("read", "write", "admin", "debug")
_LISTS: Final = ("commands", "tubes")
_PASSWORDS: Final = ("password", "password_sha256", "password_scrypt")  # A user has one of them.
_FIELDS: Final = (*_PASSWORDS, *_LISTS)
_NAME: Final = re.compile(r"[^\s\x00-\x1f\x7f]{1,64}")
_SHA256: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)


@dataclass(frozen=True)
class User:
    """One user. One of the three passwords is set, and the others are empty. None is ever shown."""

    name: str
    password: str = field(repr=False)
    password_sha256: str = field(repr=False)  # In lower-case hex digits.
    password_scrypt: str = field(repr=False)  # In the form of config/scrypt.py.
    commands: frozenset[str]  # Of COMMAND_CLASSES.
    tubes: tuple[bytes, ...]  # Patterns. The user may use a tube that matches one of them.


class Users(Collected[User]):
    """The kind of the setting `users`: users by name."""

    annotation = "dict[str, User]"
    allowed = (
        "a name, then password:…, password_sha256:… or password_scrypt:…, and, if wanted, "
        f"commands: with some of {','.join(COMMAND_CLASSES)} and tubes: with patterns"
    )

    def entry(self, words: list[str]) -> tuple[str, User]:
        if not words:
            raise Refused(self.allowed)
        fields: dict[str, list[str]] = {}
        for word in words[1:]:
            key, colon, value = word.partition(":")
            if not colon or (key in fields and key not in _LISTS):
                raise Refused(self.allowed)
            fields.setdefault(key, []).extend(value.split(",") if key in _LISTS else [value])
        _check_fields(fields)
        return words[0], self._user(words[0], fields)

    def toml_entry(self, name: str, value: object) -> tuple[str, User]:
        if not isinstance(value, dict):
            raise Refused(f"a table for each user: {', '.join(_FIELDS)}")
        _check_fields(value)
        return name, self._user(name, {key: self._toml_list(key, each) for key, each in value.items()})

    def _toml_list(self, key: str, value: object) -> list[str]:
        listed = value if key in _LISTS and isinstance(value, list) else [value]
        texts = [each for each in listed if isinstance(each, str)]
        if len(texts) < len(listed):
            raise Refused(f"configured with text as {key}" + ", or a list of texts" * (key in _LISTS))
        return texts

    def _user(self, name: str, fields: dict[str, list[str]]) -> User:
        if not _NAME.fullmatch(name):
            raise Refused("configured with names of 1 to 64 characters without spaces")
        password, digest, scrypt = ("".join(fields.get(name, [])) for name in _PASSWORDS)
        digest = digest.lower()
        if [password, digest, scrypt].count("") != 2:
            raise Refused("configured with one of these: password, password_sha256 or password_scrypt")
        if digest and not _SHA256.fullmatch(digest):
            raise Refused("configured with a password_sha256 of 64 hex digits")
        if scrypt and read_hash(scrypt) is None:
            raise Refused(
                "configured with a password_scrypt of the form scrypt$N$R$P$SALT$HASH: `penstock config hash-password` "
                "prints one"
            )
        commands = fields.get("commands", COMMAND_CLASSES[:2])
        if not set(commands) <= set(COMMAND_CLASSES):
            raise Refused(f"configured with commands of these classes: {', '.join(COMMAND_CLASSES)}")
        patterns = fields.get("tubes", ["*"])
        if not all(patterns) or not patterns:
            raise Refused(
                "configured with one or more tube patterns, none of them empty; leave `tubes` out to allow every tube"
            )
        tubes = tuple(to_bytes(pattern) for pattern in patterns)
        if len(tubes) > PATTERNS_MAX:
            raise Refused(f"configured with at most {PATTERNS_MAX:,} tube patterns")
        return User(name, password, digest, scrypt, frozenset(commands), tubes)

    def masked(self, value: dict[str, User]) -> str:
        return ", ".join(value)


def _check_fields(fields: Iterable[str]) -> None:
    if not set(fields) <= set(_FIELDS):
        raise Refused(f"configured with these fields only: {', '.join(_FIELDS)}")
