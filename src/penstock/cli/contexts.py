"""Places that have a name: one file of the user's, ~/.config/penstock/contexts.json, which only the user can read."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

from penstock.cli.exits import NOT_FOUND, USAGE, fail

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)


def config_home() -> Path:
    """Where the user's settings are."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "penstock"


def state_home() -> Path:
    """Where what the user's commands remember is."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "penstock"


def write_private(path: Path, value: object) -> None:
    """Let a file hold a value as JSON, whole or not at all, for nobody else to read."""
    from penstock.server.text_file import replace

    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    replace(path, json.dumps(value, indent=2) + "\n")


def read_private(path: Path) -> Any:
    """What a file holds; None if it is not there."""
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValueError:
        fail(f"{path} is damaged: it holds no JSON; mend it, or remove it")


@dataclass
class Contexts:
    """The places, the one that is selected, and the one that was before."""

    urls: dict[str, str] = field(default_factory=dict)
    selected: str | None = None
    previous: str | None = None

    @staticmethod
    def path() -> Path:
        """The file."""
        return config_home() / "contexts.json"

    @classmethod
    def load(cls) -> Contexts:
        """As they are on disk."""
        told = read_private(cls.path())
        if told is None:
            return cls()
        try:
            urls = {str(name): str(url) for name, url in told["contexts"].items()}
            return cls(urls, told.get("selected"), told.get("previous"))
        except (KeyError, TypeError, AttributeError):
            fail(f'{cls.path()} is damaged: it has no "contexts"; mend it, or remove it')

    def save(self) -> None:
        """To disk."""
        told = {"contexts": self.urls, "selected": self.selected, "previous": self.previous}
        write_private(self.path(), told)

    def url_of(self, name: str) -> str:
        """The URL of a context."""
        if name not in self.urls:
            near = get_close_matches(name, self.urls, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"make it with `penstock context add {name} URL`"
            fail(f"there is no context {name!r}; {hint}", NOT_FOUND)
        return self.urls[name]

    def selected_url(self) -> str | None:
        """The URL of the one that is selected, if one is."""
        return None if self.selected is None else self.url_of(self.selected)

    def add(self, name: str, url: str) -> None:
        """Give a place a name."""
        if not _NAME.fullmatch(name):
            fail(f"{name!r} is no name for a context; use up to 64 letters, digits, dots, dashes and _", USAGE)
        self.urls[name] = url

    def select(self, name: str) -> None:
        """Use a context where no other is named."""
        self.url_of(name)
        if name != self.selected:
            self.selected, self.previous = name, self.selected

    def remove(self, name: str) -> None:
        """Forget a context."""
        self.url_of(name)
        del self.urls[name]
        self.selected = None if self.selected == name else self.selected
        self.previous = None if self.previous == name else self.previous
