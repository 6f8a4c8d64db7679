"""Drivers that a server loads at its start: tube types in Python, named in the configuration file.

    [drivers]                                               driver stack my_drivers:Lifo
    stack = "my_drivers:Lifo"

The left side is TOML, the right side is Disque's form. The module must be installed, or be in a directory of
PYTHONPATH. Only the file can name drivers, so that permission to change a flag, an environment variable or a setting at
run time is not permission to run code.
"""

from __future__ import annotations

import importlib
import re
from typing import Any, Final

from penstock.core.errors import CommandError, PenstockError
from penstock.drivers import register_driver, registered_driver
from penstock.server.config.kinds import Collected, Refused

_TARGET: Final = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


class DriverModules(Collected[str]):
    """The kind of the setting `drivers`: the module and class of each tube type."""

    annotation = "dict[str, str]"
    allowed = "a type of tube, then a module and a name in it, like my_drivers:Lifo"

    def entry(self, words: list[str]) -> tuple[str, str]:
        if len(words) != 2 or not words[0] or not _TARGET.fullmatch(words[1]):
            raise Refused(self.allowed)
        return words[0], words[1]

    def toml_entry(self, name: str, value: object) -> tuple[str, str]:
        if not isinstance(value, str):
            raise Refused(self.allowed)
        return self.entry([name, value])


class CannotLoad(PenstockError):
    """A configured driver cannot be loaded. The message has the reason."""


def load_drivers(drivers: dict[str, str]) -> None:
    """Import the configured drivers, and register each as a tube type. Raise CannotLoad if that fails."""
    for name, target in drivers.items():
        try:
            driver = _load(target)
            if registered_driver(name) is not driver:
                register_driver(name, driver)
        except (Exception, SystemExit) as error:
            why = str(error) if isinstance(error, CommandError) else f"{type(error).__name__}: {error}"
            raise CannotLoad(f"driver {name}: cannot load {target}: {why}") from error


def _load(target: str) -> Any:
    module, _, path = target.partition(":")
    found: Any = importlib.import_module(module)
    for part in path.split("."):
        found = getattr(found, part)
    return found
