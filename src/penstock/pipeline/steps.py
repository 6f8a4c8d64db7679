"""Names the steps of a turn. Tests kill the process between two steps to prove that no step can lose or repeat data."""

from __future__ import annotations

from collections.abc import Callable

_hooks: list[Callable[[str], None]] = []


def after_step(name: str) -> None:
    """Report that a step is complete."""
    for hook in _hooks:
        hook(name)


def on_step(hook: Callable[[str], None]) -> None:
    """Call `hook` with the name of each step from now on."""
    _hooks.append(hook)
