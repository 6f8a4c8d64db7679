"""Options that many commands share. A bundle is a dataclass whose fields are options, with methods that use them.

    @app.command()
    @shared_options
    def peek(tube: Annotated[str, typer.Argument()], target: Target, out: Output) -> None:

The command line shows the fields of `Target` and `Output` as options of `peek`. The function receives the two objects.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable
from inspect import Parameter
from typing import Any, TypeVar, get_type_hints

import typer

F = TypeVar("F", bound=Callable[..., Any])


class CommandGroup(typer.Typer):
    """A group of commands. Without arguments it prints its help.

    A parameter of a command can be a dataclass, such as Target. Each field of the dataclass becomes an option.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(no_args_is_help=True, **options)

    def command(self, *args: Any, **options: Any) -> Callable[[F], F]:
        """Register the decorated function as a command, and return the function unchanged."""
        register = super().command(*args, **options)

        def add(function: F) -> F:
            register(_with_options(function))
            return function

        return add


def _with_options(function: Callable[..., None]) -> Callable[..., None]:
    """Return the command with options instead of its dataclass parameters: one option for each field."""
    hints = get_type_hints(function, include_extras=True)
    parameters = inspect.signature(function).parameters.values()
    bundles = {each.name: hints[each.name] for each in parameters if dataclasses.is_dataclass(hints[each.name])}

    @functools.wraps(function)
    def run(**given: Any) -> None:
        for name, bundle in bundles.items():
            given[name] = bundle(**{field.name: given.pop(field.name) for field in dataclasses.fields(bundle)})
        function(**given)

    options = [option for bundle in bundles.values() for option in _options(bundle)]
    own = [
        each.replace(annotation=hints[each.name], kind=Parameter.KEYWORD_ONLY)
        for each in parameters
        if each.name not in bundles
    ]
    run.__signature__ = inspect.Signature([*own, *options])  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in [*own, *options]}
    return run


# Cached, because nearly every command has the same bundles and reading annotations is slow.
@functools.cache
def _options(bundle: Any) -> list[Parameter]:
    hints = get_type_hints(bundle, include_extras=True)
    return [
        Parameter(
            field.name,
            Parameter.KEYWORD_ONLY,
            # A field without a default is a required option.
            default=Parameter.empty if field.default is dataclasses.MISSING else field.default,
            annotation=hints[field.name],
        )
        for field in dataclasses.fields(bundle)
    ]
