"""The contexts of a user, stored in ~/.config/penstock/contexts.json, which only the user can read."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

from penstock.cli.errors import NOT_FOUND, USAGE, fail

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)


def config_home() -> Path:
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "penstock"


def state_home() -> Path:
    """Return the directory in which commands keep state between runs."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "penstock"


def write_private(path: Path, value: object) -> None:
    """Write a value as JSON to a file that only the user can read. The file is replaced atomically."""
    from penstock.server.config.text_file import replace

    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    replace(path, json.dumps(value, indent=2) + "\n")


def read_private(path: Path) -> Any:
    """Return the JSON value in a file, or None if the file does not exist."""
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValueError:
        fail(f"{path} is damaged: it is not JSON; repair it or remove it")


@dataclass
class Contexts:
    """The URLs of all contexts by name, the selected context and the previously selected one."""

    urls: dict[str, str] = field(default_factory=dict)
    selected: str | None = None
    previous: str | None = None

    @staticmethod
    def path() -> Path:
        return config_home() / "contexts.json"

    @classmethod
    def load(cls) -> Contexts:
        stored = read_private(cls.path())
        if stored is None:
            return cls()
        try:
            urls = {str(name): str(url) for name, url in stored["contexts"].items()}
            return cls(urls, stored.get("selected"), stored.get("previous"))
        except (KeyError, TypeError, AttributeError):
            fail(f'{cls.path()} is damaged: it has no "contexts"; repair it or remove it')

    def save(self) -> None:
        stored = {"contexts": self.urls, "selected": self.selected, "previous": self.previous}
        write_private(self.path(), stored)

    def url_of(self, name: str) -> str:
        """Return the URL of a context. Exit if there is no such context."""
        if name not in self.urls:
            near = get_close_matches(name, self.urls, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"create it with `penstock context add {name} URL`"
            fail(f"there is no context {name!r}; {hint}", NOT_FOUND)
        return self.urls[name]

    def selected_url(self) -> str | None:
        return None if self.selected is None else self.url_of(self.selected)

    def add(self, name: str, url: str) -> None:
        """Add a context, or replace the one of this name."""
        if not _NAME.fullmatch(name):
            fail(f"{name!r} is not a valid name of a context; use up to 64 letters, digits, dots, dashes and _", USAGE)
        self.urls[name] = url

    def select(self, name: str) -> None:
        self.url_of(name)
        if name != self.selected:
            self.selected, self.previous = name, self.selected

    def remove(self, name: str) -> None:
        self.url_of(name)
        del self.urls[name]
        self.selected = None if self.selected == name else self.selected
        self.previous = None if self.previous == name else self.previous
